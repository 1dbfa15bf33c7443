"""The learning rate: its numbers, and what it is at a step."""

from __future__ import annotations

import dataclasses

from model.fields import option
from trainer.fields import PAPER, Group


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates(Group):
    lr: float = option(0.02, "peak learning rate", unit="per step", low=0.0, source=PAPER)
    lr_floor: float = option(
        0.1, "learning rate at the last step, of the peak", unit="fraction", low=0, high=1
    )
    warmup: int = option(1_000, "linear warm-up of the learning rate", unit="steps", low=0)
