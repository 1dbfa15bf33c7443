"""How one bank is trained: problems, schedules, optimiser, evaluation, state. Needs torch alone."""

from trainer.bank import MEASURES, Bank, Outcome, Pair, Result
from trainer.recipe import Recipe, Seed

__all__ = ["MEASURES", "Bank", "Outcome", "Pair", "Recipe", "Result", "Seed"]
