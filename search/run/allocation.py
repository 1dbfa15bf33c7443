"""Who is ahead, and who gets more seeds: what may yet be the best, and configurations whose verdict is open.

Pure functions of what is known; the planner asks them, `python -m benchmarks.allocation` simulates them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from search.errors import UserError
from search.stats.counting import GrokRate, pareto
from search.store.ledger import Row, is_final
from search.study.sampler import GROK_RATE, PER_MILLION
from search.study.schema import Allocation
from trainer import Outcome, Recipe

TOKENS = 1_000
"""The weight of token accuracy against that of the grok step."""


@dataclass(frozen=True)
class Standing:
    """What a configuration has shown in the search: its rate, its size and how it is ranked among equals."""

    rate: GrokRate
    params: int
    objective: float
    found: int = 0
    """Seeds that did what is sought: grokked, or reached what the search's objective asks for."""

    def is_open(self, threshold: float) -> bool:
        """Whether the interval of its rate has the threshold in it."""
        low, high = self.rate.interval
        return low < threshold < high


def successes(rows: Sequence[Row], wanted: str = GROK_RATE) -> int:
    """How many of some seeds did what is sought. Raises UserError where nobody looked for it.

    wanted: an objective by its name, of a share how it is spelt.
    """
    if wanted in (GROK_RATE, PER_MILLION):
        return sum(r["outcome"] == Outcome.GROKKED for r in rows)
    if any(wanted not in (r["reached"] or {}) for r in rows):
        raise UserError(f"sampler.objectives: seeds are recorded without {wanted!r}; go on with --fresh")
    return sum(r["reached"][wanted] for r in rows)


def objective(rows: Sequence[Row], recipe: Recipe, wanted: str = GROK_RATE) -> float:
    """A shrunk grok rate, finite for any rows: (k + t) / (n + 2), the posterior's mean under Beta(t, 2 - t).

    k of n counted seeds grokked. Of as many seeds, whoever has more grokked is ahead, whatever t is, for
    0 <= t < 1. At a few per cent nearly every configuration has k = 0, so t breaks ties: first the mean of
    the seeds' best token accuracy, and then, by less than a thousandth of that, the median grok step. Where
    a share is wanted, k is of seeds that reached it; per million seed-steps, the rate is divided by what a
    seed took.
    """
    counted = [r for r in rows if is_final(r)]
    grokked = [r for r in counted if r["outcome"] == Outcome.GROKKED]
    token = fmean(_number(r["best_token"]) for r in counted) if counted else 0.0
    early = 1 - median(r["grok_step"] for r in grokked) / recipe.steps if grokked else 0.0
    t = (TOKENS * min(token, 1.0) + early) / (TOKENS + 2)
    rate = (successes(counted, wanted) + t) / (len(counted) + 2)
    each = fmean(r["steps"] for r in counted) if counted and wanted == PER_MILLION else 0.0
    return 1e6 * rate / (each or recipe.steps) if wanted == PER_MILLION else rate


def _number(found: float | None) -> float:
    """A seed that diverged before it was evaluated got nowhere."""
    return found if found is not None and math.isfinite(found) else 0.0


def deserving(standings: Mapping[str, Standing], rule: Allocation) -> list[str]:
    """Keys of the configurations that are to get more seeds, the most promising first.

    A sure loser is none of them: its verdict is closed, and something as small is better.
    """
    found = [
        key
        for key, mine in standings.items()
        if mine.rate.n < rule.most and (mine.is_open(rule.threshold) or _may_lead(mine, standings))
    ]
    return sorted(found, key=lambda key: (-standings[key].objective, key))


def _may_lead(mine: Standing, standings: Mapping[str, Standing]) -> bool:
    """Whether more seeds may settle if it is the best of those with as few parameters.

    It has grokked, its interval reaches the best rate of its rivals, and theirs reach into its own.
    """
    low, high = mine.rate.interval
    rivals = [s.rate for s in standings.values() if s.params <= mine.params and s is not mine]
    if not rivals or not mine.rate.grokked:
        return False
    return max(r.rate for r in rivals) <= high and low <= max(r.interval[1] for r in rivals)


def leaders(standings: Mapping[str, Standing], count: int, front: bool) -> list[str]:
    """Keys of those to be confirmed: the best by their objective, of the Pareto front if there are two.

    What never grokked, or never reached what is sought, is none of them.
    """
    grokked = {key: s for key, s in standings.items() if s.found or s.rate.grokked}
    if front:
        members = pareto([s.params for s in grokked.values()], [s.objective for s in grokked.values()])
        grokked = {key: s for (key, s), kept in zip(grokked.items(), members, strict=True) if kept}
    return sorted(grokked, key=lambda key: (-grokked[key].objective, key))[:count]
