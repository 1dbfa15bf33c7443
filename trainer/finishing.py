"""Finishing a seed that has spent its budget (`Recipe.finish_above`): a part of another package, by an entry point.

[project.entry-points."adder_search.finishers"]
curvature = "my_package:finish"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from model.doors import FINISHERS, first_line, points
from trainer.recipe.stages import road_of

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec
    from model.tied import Ties

NOBODY = "finish_above needs a package that finishes seeds, such as adders, and none is installed"


class Finisher(Protocol):
    """Take a θ that is nearly right further."""

    def __call__(self, spec: Spec, ties: Ties | None, theta_P: Tensor, seed: int, /) -> Tensor:
        """Return a better θ [P] that keeps its ties, or the one that was given. seed: names its problems."""


def check_finisher(recipe: Any) -> None:
    """Raise ValueError for a recipe, or a stage of it, whose seeds nobody here can finish."""
    stages = [each for stage in road_of(recipe) for each in stage.recipes]
    if any(each.finish_above < 1 for each in (recipe, *stages)):
        installed()


def installed() -> Finisher:
    """Return the first finisher. Raise ValueError, in one line, where there is none or it cannot be imported."""
    for name, point in points(FINISHERS).items():
        try:
            return point.load()
        except Exception as error:  # another package's import may raise anything
            raise ValueError(f"finish_above: {name}: {point.value} cannot be imported: {first_line(error)}") from None
    raise ValueError(NOBODY)


def finish(spec: Spec, ties: Ties | None, theta_P: Tensor, seed: int) -> Tensor:
    """Return θ [P] as the first finisher that is installed leaves it. Raise ValueError where there is none."""
    return installed()(spec, ties, theta_P, seed)
