"""Fields of a recipe that lost, or that no study used, and went away: off values, and the commits that have them.

Records of before have every field. A retired one is ignored at its off value, and refused at any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEASURED, UNUSED, UNPLANNED, ASKED_BY_NONE = "e95297c", "72778fb", "43e0414", "1d694f4"
RETIRED: dict[str, tuple[Any, str]] = {
    "best_by": ("", UNUSED),
    "best_of": (1, UNUSED),
    "carry_lengths": ([], ASKED_BY_NONE),
    "chain_beta": (0.0, UNPLANNED),
    "damping": (0.01, MEASURED),
    "damping_by": (2.0, MEASURED),
    "focal_gamma": (0.0, UNPLANNED),
    "fold_step": (0, UNUSED),
    "grokfast_start": (0, ASKED_BY_NONE),
    "hardest": (1.0, UNPLANNED),
    "jiggle_candidates": (2, MEASURED),
    "jiggle_every": (0, MEASURED),
    "jiggle_settle": (2_000, MEASURED),
    "jiggle_strength": (3.0, MEASURED),
    "l1_end": (0, ASKED_BY_NONE),
    "label_smoothing": (0.0, UNPLANNED),
    "lookahead_alpha": (0.5, MEASURED),
    "lookahead_k": (0, MEASURED),
    "lr_cycle": (10_000, UNPLANNED),
    "lr_cycle_growth": (1, UNPLANNED),
    "lr_decay": (0.1, UNPLANNED),
    "lr_schedule": ("cosine", UNPLANNED),
    "noise_eta": (0.0, MEASURED),
    "noise_gamma": (0.55, MEASURED),
    "root_damping": (0.001, MEASURED),
    "root_every": (100, MEASURED),
    "swapped": (0.0, ASKED_BY_NONE),
    "wd_factors": ([], ASKED_BY_NONE),
    "wd_low": (0.0, ASKED_BY_NONE),
}
"""Name -> (off value, commit)."""
RETIRED_OPTIMISERS = {"full_adam": MEASURED, "levenberg_marquardt": MEASURED}


class Retired(ValueError):
    """A recipe asks for what went away. One line names the commit that has it."""

    def __init__(self, name: str, value: Any, commit: str) -> None:
        super().__init__(f"recipe.{name} = {value!s:.80}: removed; commit {commit} has it")


def without_retired(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's fields without retired ones. Raise Retired unless these are at their off values."""
    for name in fields.keys() & RETIRED.keys():
        off, commit = RETIRED[name]
        if fields[name] not in (off, str(off)):  # tables have lists as text
            raise Retired(name, fields[name], commit)
    return {name: value for name, value in fields.items() if name not in RETIRED}
