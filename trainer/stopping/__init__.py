"""Rules that end seeds before their budget, one file per rule. Without torch: counting does not need it.

A study chooses its rules, each of its pairs carries them, and a bank asks them at every evaluation. Packages bring
more by their entry points (search/plugins.py).
"""

from trainer.stopping.hopeless import HOPELESS, Hopeless
from trainer.stopping.rule import Rule, Seen
from trainer.stopping.screen import Rung

RULES: tuple[type[Rule], ...] = (Hopeless, Rung)
"""The rules that come with the package, in the order in which a bank asks them."""
COLUMNS = tuple(dict.fromkeys(rule.column for rule in RULES))
"""Columns of a seed's record that rules write."""

__all__ = ["COLUMNS", "HOPELESS", "RULES", "Hopeless", "Rule", "Rung", "Seen"]
