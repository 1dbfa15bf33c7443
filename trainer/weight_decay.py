"""Weight decay: its numbers, and what its factor is at a step."""

from __future__ import annotations

import dataclasses

from model.fields import option
from trainer.fields import Group


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decay(Group):
    weight_decay: float = option(0.01, "decoupled decay of every parameter", unit="per unit of lr", low=0.0)
    wd_drop: float = option(
        1.0, "adaptive decay: factor at each of two thresholds; 1 is off", unit="fraction", low=0, high=1
    )
    wd_drop_token: float = option(0.7, "token accuracy that a drop needs", unit="fraction", low=0, high=1)
    wd_drop_exact: float = option(0.02, "exact match of the first drop", unit="fraction", low=0, high=1)
    wd_drop_exact_final: float = option(0.2, "exact match of the second drop", unit="fraction", low=0, high=1)
