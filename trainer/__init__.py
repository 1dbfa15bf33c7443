"""How one bank is trained: problems, schedules, optimiser, evaluation, state. Needs torch and safetensors.

Names are found when they are first asked for (PEP 562): a recipe or an outcome needs no torch, a bank does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.bank import Bank
    from trainer.hopeless import FALSE_KILLS_UPPER, RULE, Rule
    from trainer.judge import Result
    from trainer.outcomes import MEASURES, Outcome
    from trainer.recipe import Pair, Recipe, Seed

_PLACES = {
    "bank": ("Bank",),
    "hopeless": ("FALSE_KILLS_UPPER", "RULE", "Rule"),
    "judge": ("Result",),
    "outcomes": ("MEASURES", "Outcome"),
    "recipe": ("Pair", "Recipe", "Seed"),
}
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


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"{__name__}.{place}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
