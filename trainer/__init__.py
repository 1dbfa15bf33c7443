"""How one bank is trained: problems, schedules, optimiser, evaluation, state. Needs torch and safetensors."""

from trainer.bank import Bank
from trainer.hopeless import FALSE_KILLS_UPPER, RULE, Rule
from trainer.judge import MEASURES, Outcome, Result
from trainer.recipe import Pair, Recipe, Seed

__all__ = [
    "FALSE_KILLS_UPPER",
    "MEASURES",
    "RULE",
    "Bank",
    "Outcome",
    "Pair",
    "Recipe",
    "Result",
    "Rule",
    "Seed",
]
