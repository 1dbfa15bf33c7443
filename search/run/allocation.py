"""Who gets more seeds: configurations whose verdict is open, and those that may yet be the best.

Pure functions of what is known; the planner asks them, `python -m benchmarks.allocation` simulates them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search.store.stats import GrokRate, pareto
from search.study.schema import Allocation


@dataclass(frozen=True)
class Standing:
    """What a configuration has shown in the search: its rate, its size and how it is ranked among equals."""

    rate: GrokRate
    params: int
    objective: float

    def is_open(self, threshold: float) -> bool:
        """Whether the interval of its rate has the threshold in it."""
        low, high = self.rate.interval
        return low < threshold < high


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

    What never grokked is none of them.
    """
    grokked = {key: s for key, s in standings.items() if s.rate.grokked}
    if front:
        members = pareto([s.params for s in grokked.values()], [s.objective for s in grokked.values()])
        grokked = {key: s for (key, s), kept in zip(grokked.items(), members, strict=True) if kept}
    return sorted(grokked, key=lambda key: (-grokked[key].objective, key))[:count]
