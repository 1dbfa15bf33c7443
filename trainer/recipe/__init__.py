"""The recipe and the seed, which make a pair. A group of fields a file, without torch."""

from trainer.recipe.recipe import SHAPING, SWITCHES, Recipe
from trainer.recipe.seed import Pair, Seed

__all__ = ["SHAPING", "SWITCHES", "Pair", "Recipe", "Seed"]
