"""Grok rates and how sure one can be of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

from trainer import FALSE_KILLS_UPPER, Outcome

Z_95 = 1.959963984540054
COUNTED = (Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP)


def wilson(k: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of k successes in n (Wilson, JASA 22, 1927). (0, 1) for n = 0.

    An expected number of successes may be a fraction.
    """
    if n == 0:
        return 0.0, 1.0
    p, z2 = k / n, Z_95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low = 0.0 if k == 0 else max(0.0, centre - half)
    high = 1.0 if k == n else min(1.0, centre + half)
    return low, high


@dataclass(frozen=True)
class GrokRate:
    """Grokked of all counted seeds; only censored seeds leave n (docs/architecture.md, "Counting")."""

    grokked: int
    n: int
    given_up: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[str]) -> GrokRate:
        counts = Counter(outcomes)
        return cls(counts[Outcome.GROKKED], sum(counts[o] for o in COUNTED), counts[Outcome.GIVEN_UP])

    @property
    def rate(self) -> float:
        return self.grokked / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 %: Wilson's, with what the given-up seeds might have done.

        At the lower end they are failures. At the upper end FALSE_KILLS_UPPER of them, the share that the
        rule may at most stop wrongly, grokked: Wilson's end is taken for these and the grokked together, as
        which seeds a study meets is chance for the one as for the other. Where few grok that is wider than
        adding their share to the end for the grokked alone.
        """
        might = min(self.grokked + self.given_up * FALSE_KILLS_UPPER, self.n)
        return wilson(self.grokked, self.n)[0], wilson(might, self.n)[1]

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.grokked} of {self.n} grokked: {self.rate:.1%} (95 % interval {low:.1%} to {high:.1%})"


def difference(one: GrokRate, other: GrokRate) -> tuple[float, float]:
    """The 95 % interval of one grok rate less another, of independent seeds.

    The hybrid score interval, method 10 of Newcombe, Statistics in Medicine 17, 873-890 (1998), from the two
    rates' own intervals, given-up seeds included.
    """
    (low, high), (other_low, other_high) = one.interval, other.interval
    between = one.rate - other.rate
    down = sqrt((one.rate - low) ** 2 + (other_high - other.rate) ** 2)
    up = sqrt((high - one.rate) ** 2 + (other.rate - other_low) ** 2)
    return between - down, between + up


@dataclass(frozen=True)
class Stopping:
    """What the hopeless rule did, and what became of the random tenth that it called hopeless and spared.

    `seeds` are the counted ones, as in GrokRate.
    """

    seeds: int
    given_up: int
    spared: int
    spared_grokked: int

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Stopping:
        """Of ledger rows."""
        counted = [r for r in rows if r["outcome"] in COUNTED]
        called = [r["outcome"] for r in counted if r["hopeless_step"] is not None]
        spared = [o for o in called if o != Outcome.GIVEN_UP]
        return cls(len(counted), len(called) - len(spared), len(spared), spared.count(Outcome.GROKKED))

    def __str__(self) -> str:
        said = f"given up: {self.given_up} of {self.seeds}"
        if not self.spared:
            return said
        return f"{said}; {self.spared} more ran on: {self.spared_grokked or 'none'} grokked"
