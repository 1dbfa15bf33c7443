"""The fields of a loss that is more than cross-entropy.

The arithmetic is in trainer/step/objective.py, and for the engine in model/cpp/loss.h and trainer/engine/cpp/aims.h.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from model.fields import ON, option
from trainer.fields import Group, dependent_option
from trainer.recipe.teacher import teacher_of

WARLOCKEE = "warlockee/AdderBoard, train.py"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Losses(Group):
    """They combine: of a problem's answers the smoothed cross-entropy, times the focal factor; of the
    problems the weighted mean of those that count. Evaluations measure plain cross-entropy as ever.
    """

    label_smoothing: float = option(
        0.0, "share of each target that is spread evenly over all tokens; 0 is off", unit="fraction", ge=0,
        le=0.99, switch=True, source="Szegedy et al., Rethinking Inception, CVPR 2016, section 7",
    )  # fmt: skip
    focal_gamma: float = option(
        0.0, "focal loss: an answer counts (1 - p of what is right) to this power; 0 is off", unit="exponent",
        ge=0, le=10, switch=True, source="Lin et al., Focal loss, ICCV 2017, section 3.2, without alpha",
    )  # fmt: skip
    chain_beta: float = option(
        0.0,
        "a problem counts 1 + this · (columns in its longest run of carries) / 10, in the mean 1; 0 is off",
        unit="factor", ge=0, le=1_000, switch=True,
        source=f"{WARLOCKEE}, 49p: beta 2 and the longest run; the form is ours, theirs is not published",
    )  # fmt: skip
    hardest: float = option(
        1.0, "share of a step's problems that count, those of the largest cross-entropy; 1 is off",
        unit="fraction", ge=0.001, le=1, switch=True,
        source=f"Shrivastava et al., OHEM, CVPR 2016; {WARLOCKEE}: a half",
    )  # fmt: skip

    distill_alpha: float = option(
        0.0, "distillation: share of T² KL(teacher, seed), at a temperature T, in the loss; 0 is off",
        unit="fraction", ge=0, le=1, switch=True, off=0.0, needs={"teacher": ON},
        source=f"Hinton, Vinyals and Dean, arXiv 1503.02531, section 2; Reflection 7; {WARLOCKEE}: 0.5",
    )  # fmt: skip
    distill_temperature: float = dependent_option(
        "distill_alpha", 2.0, "that temperature T", unit="factor", ge=0.1, le=100, source=WARLOCKEE
    )
    teacher: str = dependent_option(
        "distill_alpha", "", "a checkpoint's folder, of any family with the same sequence, that has grokked; "
        "a recipe has what was read there, so its key does not depend on the path", unit="folder",
        shapes=True, source="Reflection 7",
    )  # fmt: skip

    @property
    def losses(self) -> tuple[str, ...]:
        """The fields that make the loss more than cross-entropy."""
        defaults = {f.name: f.default for f in dataclasses.fields(Losses)}
        values = {"distill_temperature", "teacher"}  # of what is on by another field
        return tuple(n for n, off in defaults.items() if getattr(self, n) != off and n not in values)

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.teacher:
            teacher_of(recipe.teacher)
