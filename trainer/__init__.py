"""Training of one bank: problems, schedules, optimiser, evaluation, state. Needs torch and safetensors.

Names are imported when they are first read (PEP 562): a recipe or an outcome needs no torch, a bank does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.bank.bank import Bank
    from trainer.bank.futility import FALSE_KILLS_UPPER, FUTILITY_RULE, FutilityRule
    from trainer.bank.tracker import Result
    from trainer.recipe import Pair, Recipe, Seed
    from trainer.recipe.outcomes import MEASURES, Outcome

_PLACES = {
    "bank.bank": ("Bank",),
    "bank.futility": ("FALSE_KILLS_UPPER", "FUTILITY_RULE", "FutilityRule"),
    "bank.tracker": ("Result",),
    "recipe.outcomes": ("MEASURES", "Outcome"),
    "recipe": ("Pair", "Recipe", "Seed"),
}
__all__ = [
    "FALSE_KILLS_UPPER",
    "FUTILITY_RULE",
    "MEASURES",
    "Bank",
    "FutilityRule",
    "Outcome",
    "Pair",
    "Recipe",
    "Result",
    "Seed",
]


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"{__name__}.{place}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
