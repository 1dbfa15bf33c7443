"""The rule for hopeless seeds, which gives up those that will not grok.

Grokking is a jump after a long plateau, so ranks among seeds say nothing. But most losers show themselves early:
they stay at the token accuracy of a model that has learnt next to nothing (0.2). No winner was seen there for
long once it had met ten-digit numbers. measured.json has the constants and the experiments behind them.

Axes: L seed; R row (a seed at one of its evaluations).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.outcomes import Outcome
from trainer.stopping.rule import MEASURED, Rule, Seen

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 10
_MEASURED = MEASURED["futility_rule"]
FALSE_KILLS_UPPER: float = _MEASURED["false_kills_upper"]
"""Upper bound (one-sided 95 %) on the share of given-up seeds that would have grokked."""
CONFIGURATIONS = frozenset(_MEASURED["configurations"])
"""Keys of the configurations for which FALSE_KILLS_UPPER holds. Of any other, only its own spared seeds say
how often the rule is wrong (search/stats/counting.py)."""


@dataclass(frozen=True)
class Hopeless(Rule):
    """Checkpoints (progress, exact, token) at which a seed is given up; progress as `progress_of` counts it.

    At or past `progress` a seed is hopeless if its best exact match so far is below `exact` and its best
    token accuracy so far below `token` (fractions of the 5,000 selection problems and their digits).
    """

    key = "hopeless"
    help = "give up seeds that the rule calls hopeless, a random tenth of them spared"
    is_default = True
    outcome = Outcome.GIVEN_UP
    column = "hopeless_step"
    ended = "given_up"
    prefix = ""

    checkpoints: tuple[tuple[float, float, float], ...] = tuple(map(tuple, _MEASURED["checkpoints"]))

    def suits(self, task: Any) -> bool:
        return bool(task.is_measured)

    def applies(self, pair: Any) -> bool:
        """True for what it was measured on: seeds that begin at random, once, and have their form from the start."""
        return pair.start is None and pair.recipe.counts_from == 0 and not pair.recipe.again_at

    def calls(self, seen: Seen) -> Tensor:
        import torch

        recipes = seen.recipes
        full_L = torch.tensor([full_length_from(recipe.curriculum) for recipe in recipes])
        budget_L = torch.tensor([recipe.steps for recipe in recipes])
        progress_L = progress_of(seen.step_L, full_L, budget_L)
        return self.is_futile(progress_L, seen.best("exact"), seen.best("token"))

    def is_futile(self, progress_R: Tensor, exact_R: Tensor, token_R: Tensor) -> Tensor:
        """Return a bool [R], from each row's progress and its best measures so far."""
        import torch

        # Any checkpoint may call a seed, not only the newest: what a late one lets pass an early one may have called.
        futile_R = torch.zeros_like(progress_R, dtype=torch.bool)
        for progress, exact, token in self.checkpoints:
            futile_R |= (progress_R >= progress) & (exact_R < exact) & (token_R < token)
        return futile_R

    def note(self, step: int) -> int:
        return step

    @classmethod
    def called(cls, noted: Any) -> str:
        return cls.ended

    @classmethod
    def measured(cls, configuration: str, called: str) -> float | None:
        return FALSE_KILLS_UPPER if configuration in CONFIGURATIONS else None

    @classmethod
    def describe(cls, rules: Sequence[Hopeless]) -> str:
        return "seeds that it calls hopeless are given up"


HOPELESS = Hopeless()


def full_length_from(curriculum: Sequence[Sequence[int]]) -> int:
    """Return the step from which a seed meets ten-digit numbers, from a recipe's pairs [digits, steps].

    All selection problems have ten digits, so scores before this step say little.
    """
    full_from = end = 0
    for digits, steps in curriculum:
        end += steps
        if digits < DIGITS:  # lengths may fall again: what counts is the last short stage
            full_from = end
    return full_from


def progress_of(step_R: Tensor, full_length_R: Tensor, steps_R: Tensor) -> Tensor:
    """Return the share of the budget `steps_R` after `full_length_R` that is spent at `step_R` [R].

    0 or less before. In float64, so that an evaluation made exactly at a checkpoint counts as there.
    """
    return (step_R - full_length_R).double() / (steps_R - full_length_R).clamp(min=1).double()
