"""Fields of a recipe that lost, or that no study used, and went away: off values, and the commits that have them.

Older records have every field. A retired one is ignored at its off value, and refused at any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MEASURED = "e95297c"
"""The commit that has the fields and optimisers that lost when they were measured."""
OFF_VALUES: dict[str, dict[str, Any]] = {
    "72778fb": {  # no study used them
        "best_by": "",
        "best_of": 1,
        "fold_step": 0,
    },
    "1d694f4": {  # nobody asked for them
        "carry_lengths": [],
        "grokfast_start": 0,
        "l1_end": 0,
        "swapped": 0.0,
        "wd_factors": [],
        "wd_low": 0.0,
    },
    "43e0414": {  # no study was planned with them
        "chain_beta": 0.0,
        "focal_gamma": 0.0,
        "hardest": 1.0,
        "label_smoothing": 0.0,
        "lr_cycle": 10_000,
        "lr_cycle_growth": 1,
        "lr_decay": 0.1,
        "lr_schedule": "cosine",
    },
    MEASURED: {
        "damping": 0.01,
        "damping_by": 2.0,
        "jiggle_candidates": 2,
        "jiggle_every": 0,
        "jiggle_settle": 2_000,
        "jiggle_strength": 3.0,
        "lookahead_alpha": 0.5,
        "lookahead_k": 0,
        "noise_eta": 0.0,
        "noise_gamma": 0.55,
        "root_damping": 0.001,
        "root_every": 100,
    },
}
"""Commit that has them -> off values by name."""
RETIRED = {name: (off, commit) for commit, fields in OFF_VALUES.items() for name, off in fields.items()}
"""Name -> (off value, commit)."""
RETIRED_OPTIMISERS = dict.fromkeys(("full_adam", "levenberg_marquardt"), MEASURED)


class Retired(ValueError):
    """A recipe asks for a field or optimiser that went away. One line names the commit that has it."""

    def __init__(self, name: str, value: Any, commit: str) -> None:
        super().__init__(f"recipe.{name} = {value!s:.80}: removed; commit {commit} has it")


def without_retired(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's fields without retired ones. Raise Retired unless these are at their off values."""
    for name in fields.keys() & RETIRED.keys():
        off, commit = RETIRED[name]
        if fields[name] not in (off, str(off)):  # tables have lists as text
            raise Retired(name, fields[name], commit)
    return {name: value for name, value in fields.items() if name not in RETIRED}
