"""Choice of the configurations that get more seeds: possible winners, and those whose verdict is open.

Pure functions; the policies call them, `lab/scripts/allocation.py` simulates them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from search.stats.counting import GrokRate, pareto
from search.stats.record import SeedRecord
from search.study.sampler import GROK_RATE, PER_MILLION
from search.study.seeds import Allocation
from trainer import Recipe

TOKEN_WEIGHT = 1_000
"""The weight of token accuracy against that of the grok step."""


@dataclass(frozen=True)
class ConfigurationScore:
    """Rate, size and objective of a configuration in the search."""

    rate: GrokRate
    params: int
    objective: float

    def is_open(self, threshold: float) -> bool:
        """True if the interval of its rate has the threshold in it."""
        low, high = self.rate.interval
        return low < threshold < high


def objective(rows: Sequence[SeedRecord], recipe: Recipe, wanted: str = GROK_RATE) -> float:
    """Return a shrunk grok rate, finite for any rows: (k + t) / (n + 2), the posterior mean under Beta(t, 2 - t).

    k of n counted seeds grokked. For 0 <= t < 1, more grokked of equally many seeds is always ahead. At a few
    per cent nearly every configuration has k = 0, so t breaks ties: by the mean of the seeds' best token
    accuracy, and by less than a thousandth of that by the median grok step. Per
    million seed-steps, the rate is divided by the mean steps of a seed.
    """
    counted = [r for r in rows if r.is_final]
    grokked = [r for r in counted if r.has_grokked]
    token = fmean(_number(r.best_token) for r in counted) if counted else 0.0
    early = 1 - median(r.grok_step or 0 for r in grokked) / recipe.steps if grokked else 0.0
    t = (TOKEN_WEIGHT * min(token, 1.0) + early) / (TOKEN_WEIGHT + 2)
    rate = (len(grokked) + t) / (len(counted) + 2)
    each = fmean(r.steps for r in counted) if counted and wanted == PER_MILLION else 0.0
    return 1e6 * rate / (each or recipe.steps) if wanted == PER_MILLION else rate


def _number(value: float | None) -> float:
    """Return 0 for a seed that diverged before it was evaluated."""
    return value if value is not None and math.isfinite(value) else 0.0


def select_for_more_seeds(scores: Mapping[str, ConfigurationScore], rule: Allocation) -> list[str]:
    """Return the keys of configurations that get more seeds, the most promising first.

    A sure loser is not among them: its verdict is closed, and a model of its size or smaller is better.
    """
    keys = [
        key
        for key, score in scores.items()
        if score.rate.n < rule.most and (score.is_open(rule.threshold) or _may_lead(score, scores))
    ]
    return sorted(keys, key=lambda key: (-scores[key].objective, key))


def _may_lead(score: ConfigurationScore, scores: Mapping[str, ConfigurationScore]) -> bool:
    """True if it could be the best of the models of its size or smaller, and more seeds could show it.

    It has grokked, its interval reaches the best rate of its rivals, and their intervals reach into its own.
    """
    low, high = score.rate.interval
    rivals = [s.rate for s in scores.values() if s.params <= score.params and s is not score]
    if not rivals or not score.rate.grokked:
        return False
    return max(r.rate or 0.0 for r in rivals) <= high and low <= max(r.interval[1] for r in rivals)


def select_for_confirmation(scores: Mapping[str, ConfigurationScore], count: int, by_size: bool) -> list[str]:
    """Return the keys of the `count` configurations to confirm, the best first; fewer if fewer have a success.

    They are the best by their objective. by_size: those of the Pareto front of size and objective, then those of the
    front of the others, until there are so many.
    """
    left = sorted((key for key, s in scores.items() if s.rate.grokked), key=lambda key: (-scores[key].objective, key))
    if not by_size:
        return left[:count]
    chosen: list[str] = []
    while left and len(chosen) < count:
        members = pareto([scores[key].params for key in left], [scores[key].objective for key in left])
        chosen += [key for key, is_member in zip(left, members, strict=True) if is_member]
        left = [key for key in left if key not in chosen]
    return chosen[:count]
