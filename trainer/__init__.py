"""Training of one bank: problems, schedules, optimiser, evaluation, state. Needs torch and safetensors.

Names are imported when they are first read (PEP 562): a recipe or an outcome needs no torch, a bank does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.bank.bank import Bank as Bank
    from trainer.bank.tracker import Result as Result
    from trainer.outcomes import MEASURES as MEASURES
    from trainer.outcomes import Outcome as Outcome
    from trainer.recipe import Pair as Pair
    from trainer.recipe import Recipe as Recipe
    from trainer.recipe import Seed as Seed
    from trainer.stopping import HOPELESS as HOPELESS
    from trainer.stopping import Rule as Rule

_PLACES = {
    "bank.bank": ("Bank",),
    "bank.tracker": ("Result",),
    "outcomes": ("MEASURES", "Outcome"),
    "recipe": ("Pair", "Recipe", "Seed"),
    "stopping": ("HOPELESS", "Rule"),
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
