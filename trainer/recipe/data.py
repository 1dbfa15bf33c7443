"""Changes to the drawn problems: swapped operands, and the seed's own errors drawn again."""

from __future__ import annotations

import dataclasses

from model.fields import option
from trainer.fields import Group
from trainer.recipe.losses import WARLOCKEE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data(Group):
    swapped: float = option(
        0.0, "share of problems whose operands change places (commutative augmentation); 0 is off",
        unit="fraction", ge=0, le=1, switch=True, source=f"{WARLOCKEE}: a half",
    )  # fmt: skip
    targeted: float = option(
        0.0,
        "share of a step's problems that are of the seed's own errors at the last evaluation, in a stream of "
        "its own of such problems as the lesson has then; 0 is off",
        unit="fraction", ge=0, le=1, switch=True,
        source="AdderBoard: tbukic and vijec fine-tune on error pairs; the stream is ours",
    )  # fmt: skip
