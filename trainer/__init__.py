"""Training of one bank: problems, schedules, optimiser, evaluation, state. Needs torch and safetensors.

Names are imported when they are first read (PEP 562): a recipe or an outcome needs no torch, a bank does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.bank.bank import Bank as Bank
    from trainer.bank.futility import FALSE_KILLS_UPPER as FALSE_KILLS_UPPER
    from trainer.bank.futility import FUTILITY_RULE as FUTILITY_RULE
    from trainer.bank.futility import FutilityRule as FutilityRule
    from trainer.bank.tracker import Result as Result
    from trainer.recipe import Pair as Pair
    from trainer.recipe import Recipe as Recipe
    from trainer.recipe import Seed as Seed
    from trainer.recipe.outcomes import MEASURES as MEASURES
    from trainer.recipe.outcomes import Outcome as Outcome

_PLACES = {
    "bank.bank": ("Bank",),
    "bank.futility": ("FALSE_KILLS_UPPER", "FUTILITY_RULE", "FutilityRule"),
    "bank.tracker": ("Result",),
    "recipe.outcomes": ("MEASURES", "Outcome"),
    "recipe": ("Pair", "Recipe", "Seed"),
}
__all__ = [name for names in _PLACES.values() for name in names]


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"{__name__}.{place}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
