"""The futility rule, which gives up seeds that will not grok.

Grokking is a jump after a long plateau, so ranks among seeds say nothing. But most losers show themselves early:
they stay at the token accuracy of a model that has learnt next to nothing (0.2). No winner was seen there for
long once it had met ten-digit numbers. measured.json has the constants and the experiments behind them;
`python -m benchmarks.stopping` replays the rule over complete runs and tunes it.

Axes: R row (a seed at one of its evaluations).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.recipe import Seed

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 10


@dataclass(frozen=True)
class FutilityRule:
    """Checkpoints (progress, exact, token) at which a seed is given up; progress as `progress_of` counts it.

    At or past `progress` a seed is hopeless if its best exact match so far is below `exact` and its best
    token accuracy so far below `token` (fractions of the 5,000 selection problems and their digits).
    """

    checkpoints: tuple[tuple[float, float, float], ...]

    def is_futile(self, progress_R: Tensor, exact_R: Tensor, token_R: Tensor) -> Tensor:
        """Return a bool [R], from each row's progress and its best measures so far."""
        import torch  # not at the head: counting seeds needs the constants below and no torch

        # Any checkpoint may call a seed.
        futile_R = torch.zeros_like(progress_R, dtype=torch.bool)
        for progress, exact, token in self.checkpoints:
            futile_R |= (progress_R >= progress) & (exact_R < exact) & (token_R < token)
        return futile_R


_MEASURED = json.loads(Path(__file__).with_name("measured.json").read_bytes())
FUTILITY_RULE = FutilityRule(tuple(map(tuple, _MEASURED["futility_rule"]["checkpoints"])))

FALSE_KILLS_UPPER: float = _MEASURED["futility_rule"]["false_kills_upper"]
"""Upper bound (one-sided 95 %) on the share of given-up seeds that would have grokked."""

MEASURED = frozenset(_MEASURED["futility_rule"]["configurations"])
"""Keys of the configurations for which FALSE_KILLS_UPPER holds. Of any other, only its own spared seeds say
how often the rule is wrong (search/stats/counting.py)."""

MEASURED_SCREENS: dict[tuple[str, str], tuple[int, int]] = {
    (row["configuration"], row["rung"]): (row["grokked"], row["called"]) for row in _MEASURED["screens"]["rungs"]
}
"""(configuration's key, rung) -> how many of the seeds that it called and that ran on grokked, and of how many."""


def full_length_from(curriculum: Sequence[Sequence[int]]) -> int:
    """Return the step from which a seed meets ten-digit numbers, from a recipe's pairs [digits, steps].

    All selection problems have ten digits, so scores before this step say little.
    """
    full_from = end = 0
    for digits, steps in curriculum:
        end += steps
        if digits < DIGITS:
            full_from = end
    return full_from


def progress_of(step_R: Tensor, full_length_R: Tensor, steps_R: Tensor) -> Tensor:
    """Return the share of the budget `steps_R` after `full_length_R` that is spent at `step_R` [R].

    0 or less before. In float64, so that an evaluation made exactly at a checkpoint counts as there.
    """
    return (step_R - full_length_R).double() / (steps_R - full_length_R).clamp(min=1).double()


def is_spared(seed: Seed) -> bool:
    """True for a random tenth of all seeds, which no rule ends, by their numbers alone.

    A bank goes by it where a pair does not say itself if it is spared.
    """
    text = f"spared {seed.init_seed} {seed.data_seed}"
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") % 10 == 0
