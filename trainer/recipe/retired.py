"""Fields of a recipe that were measured, lost and went away: their off values, and the tag that has them."""

from __future__ import annotations

from typing import Any

MEASURED = "optimisers-measured"

RETIRED: dict[str, tuple[Any, str]] = {
    "damping": (0.01, MEASURED),
    "damping_by": (2.0, MEASURED),
    "jiggle_candidates": (2, MEASURED),
    "jiggle_every": (0, MEASURED),
    "jiggle_settle": (2_000, MEASURED),
    "jiggle_strength": (3.0, MEASURED),
    "lookahead_alpha": (0.5, MEASURED),
    "lookahead_k": (0, MEASURED),
    "noise_eta": (0.0, MEASURED),
    "noise_gamma": (0.55, MEASURED),
    "root_damping": (0.001, MEASURED),
    "root_every": (100, MEASURED),
}
"""Name -> (off value, git tag)."""
