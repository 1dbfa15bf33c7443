"""Grok rates and how sure one can be of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

from trainer import Outcome

Z_95 = 1.959963984540054
COUNTED = (Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP)


def wilson(k: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of k successes in n (Wilson, JASA 22, 1927). (0, 1) for n = 0."""
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

    @classmethod
    def of(cls, outcomes: Iterable[str]) -> GrokRate:
        counts = Counter(outcomes)
        return cls(counts[Outcome.GROKKED], sum(counts[o] for o in COUNTED))

    @property
    def rate(self) -> float:
        return self.grokked / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.grokked, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.grokked} of {self.n} grokked: {self.rate:.1%} (95 % interval {low:.1%} to {high:.1%})"
