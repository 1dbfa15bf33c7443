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
    accuracy, and by less than a thousandth of that by the median grok step. wanted: GROK_RATE, or PER_MILLION
    seed-steps: the rate divided by the mean steps of a seed.
    """
    counted = [row for row in rows if row.is_final]
    grok_steps = [row.grok_step or 0 for row in counted if row.has_grokked]
    token = fmean(_number(row.best_token) for row in counted) if counted else 0.0
    early = 1 - median(grok_steps) / recipe.steps if grok_steps else 0.0

    t = (TOKEN_WEIGHT * min(token, 1.0) + early) / (TOKEN_WEIGHT + 2)  # below 1, as token and early are at most 1
    rate = (len(grok_steps) + t) / (len(counted) + 2)
    if wanted != PER_MILLION:
        return rate
    each = fmean(row.steps for row in counted) if counted else 0.0
    return 1e6 * rate / (each or recipe.steps)


def _number(value: float | None) -> float:
    """Return a measure; 0 for a seed that diverged before it was evaluated."""
    return value if value is not None and math.isfinite(value) else 0.0


def select_for_more_seeds(scores: Mapping[str, ConfigurationScore], rule: Allocation) -> list[str]:
    """Return the keys of configurations that get more seeds, the most promising first.

    A sure loser is not among them: its verdict is closed, and a model of its size or smaller is better.
    """
    keys = []
    for key in _by_objective(scores):
        score = scores[key]
        if score.rate.n < rule.most and (score.is_open(rule.threshold) or _may_lead(score, scores)):
            keys.append(key)
    return keys


def _by_objective(scores: Mapping[str, ConfigurationScore]) -> list[str]:
    """Return the keys of configurations, the best first, equally good ones by key."""
    return sorted(scores, key=lambda key: (-scores[key].objective, key))


def _may_lead(score: ConfigurationScore, scores: Mapping[str, ConfigurationScore]) -> bool:
    """True if it could be the best of the models of its size or smaller, and more seeds could show it.

    It has grokked, its interval reaches the best rate of its rivals, and their intervals reach into its own.
    """
    rivals = [other.rate for other in scores.values() if other.params <= score.params and other is not score]
    if not rivals or not score.rate.grokked:
        return False

    low, high = score.rate.interval
    best = max(rate.rate or 0.0 for rate in rivals)
    highest = max(rate.interval[1] for rate in rivals)
    return best <= high and low <= highest


def select_for_confirmation(scores: Mapping[str, ConfigurationScore], count: int, by_size: bool) -> list[str]:
    """Return the keys of the `count` configurations to confirm, the best first; fewer if fewer have a success.

    They are the best by their objective. by_size: first all of the Pareto front of size and objective, then the front
    of the others, until there are so many.
    """
    left = [key for key in _by_objective(scores) if scores[key].rate.grokked]
    if not by_size:
        return left[:count]

    chosen: list[str] = []
    while left and len(chosen) < count:
        sizes = [scores[key].params for key in left]
        objectives = [scores[key].objective for key in left]
        members = pareto(sizes, objectives)
        chosen += [key for key, is_member in zip(left, members, strict=True) if is_member]
        left = [key for key in left if key not in chosen]
    return chosen[:count]
