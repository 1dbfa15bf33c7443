"""What the records say of a claim: counts, differences with their intervals, a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isnan, nan
from typing import Any

from lab.claims.claim import OF_SEEDS, Claim, arm, claims, seeds_of
from lab.claims.trained import Trained
from search.stats.counting import COUNTED, missed_by_hopeless_rule
from search.stats.intervals import LEVEL, Interval, Paired, discoveries, exact_low, power, wilson
from trainer import Outcome

Row = Mapping[str, Any]
Arm = dict[tuple[int, int], Row]
"""Rows of the counted seeds of one configuration."""
MARGIN = 0.05
"""A gain below 5 points is none."""
HOLD = 10_000  # steps for which a grokked seed must stay perfect
KEPT = 0.5
"""What costs nothing leaves at least so much of the rate without it."""
MOST = 0.5
"""What always is so is so of more than this share of what is trained."""


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "open"


@dataclass(frozen=True)
class Count:
    """k of n seeds, and of how many others a rule may at most have kept it."""

    k: int
    n: int
    wrongly: float = 0.0

    @property
    def interval(self) -> Interval:
        return wilson(self.k, self.n)[0], wilson(min(self.k + self.wrongly, self.n), self.n)[1]

    def __str__(self) -> str:
        return f"{self.k} of {self.n}"


@dataclass(frozen=True)
class Judged:
    """A claim and what is known of it. `paired`: of the seeds that both arms had."""

    claim: Claim
    with_it: Count
    without: Count | None = None
    paired: Paired | None = None

    @property
    def p(self) -> float | None:
        """Of the test that the claim's kind asks for; None where there is none."""
        if self.paired is None or not self.paired.n or self.claim.kind == "rate":
            return None
        return self.paired.association if self.claim.kind == "unrelated" else self.paired.p

    @property
    def power(self) -> float | None:
        """How likely McNemar's test would have told the arm in which more do from one in which none does."""
        if self.p is None or self.paired is None or self.claim.kind == "unrelated":
            return None
        return power(
            self.paired.n, (self.paired.both + max(self.paired.first, self.paired.second)) / self.paired.n
        )

    @property
    def verdict(self) -> Verdict:
        if self.claim.kind is None or not self.with_it.n:
            return Verdict.OPEN
        return _RULES[self.claim.kind](self)

    def _differs(self, sign: int) -> bool:
        """Whether the arm with it has more (1) or fewer (-1) by the paired test."""
        differs = self.paired is not None and self.paired.n > 0 and self.paired.p < LEVEL
        return differs and self.paired is not None and self.paired.difference * sign > 0


def _possible(judged: Judged) -> Verdict:
    if judged.with_it.k:
        return Verdict.HOLDS
    return Verdict.FAILS if judged._differs(-1) else Verdict.OPEN


def _impossible(judged: Judged) -> Verdict:
    return _OPPOSITE[_possible(judged)]


def _better(judged: Judged) -> Verdict:
    if judged._differs(1):
        return Verdict.HOLDS
    assert judged.paired
    small = judged.paired.n > 0 and judged.paired.interval[1] < MARGIN
    return Verdict.FAILS if small or judged._differs(-1) else Verdict.OPEN


def _no_better(judged: Judged) -> Verdict:
    return _OPPOSITE[_better(judged)]


def _harmless(judged: Judged) -> Verdict:
    if judged._differs(-1):
        return Verdict.FAILS
    assert judged.paired and judged.without
    base = (judged.paired.both + judged.paired.second) / judged.paired.n if judged.paired.n else 0.0
    return Verdict.HOLDS if base and judged.paired.interval[0] >= (KEPT - 1) * base else Verdict.OPEN


def _rate(judged: Judged) -> Verdict:
    (low, high), (least, most) = judged.with_it.interval, judged.claim.bounds
    if least <= low and high <= most:
        return Verdict.HOLDS
    return Verdict.FAILS if high < least or most < low else Verdict.OPEN


def _unrelated(judged: Judged) -> Verdict:
    return Verdict.FAILS if judged.p is not None and judged.p < LEVEL else Verdict.OPEN


def _found(judged: Judged) -> Verdict:
    return Verdict.HOLDS if judged.with_it.k else Verdict.OPEN


def _always(judged: Judged) -> Verdict:
    if judged.with_it.k < judged.with_it.n:
        return Verdict.FAILS
    return Verdict.HOLDS if exact_low(judged.with_it.k, judged.with_it.n) > MOST else Verdict.OPEN


_OPPOSITE = {Verdict.HOLDS: Verdict.FAILS, Verdict.FAILS: Verdict.HOLDS, Verdict.OPEN: Verdict.OPEN}
_RULES: dict[str, Callable[[Judged], Verdict]] = {
    "possible": _possible,
    "impossible": _impossible,
    "better": _better,
    "no-better": _no_better,
    "harmless": _harmless,
    "rate": _rate,
    "unrelated": _unrelated,
    "found": _found,
    "not-found": lambda judged: _OPPOSITE[_found(judged)],
    "always": _always,
}


def arms(rows: Iterable[Row]) -> dict[str, Arm]:
    """The counted seeds of each configuration. A seed of several studies counts once: a seed is a function of
    its configuration and numbers, so that they are the same run, of which one table may say more; where they
    are not (another engine), the one whose study comes first by name counts.
    """
    found: dict[str, Arm] = {}
    for row in sorted(rows, key=lambda r: str(r["study"]), reverse=True):
        if row["outcome"] in COUNTED:
            seeds = found.setdefault(row["configuration"], {})
            called = row.get("hopeless_step")
            none = {"hopeless_step": None if called is None or isnan(called) else called}
            numbers = int(row["init_seed"]), int(row["data_seed"])
            seeds[numbers] = {**seeds.get(numbers, {}), **row, **none}
    return found


def judge(claim: Claim, known: Mapping[str, Arm], trained: Sequence[Trained] = ()) -> Judged:
    """A claim by the records of `arms`, or by checkpoints."""
    if claim.kind not in OF_SEEDS:
        return Judged(claim, _of_checkpoints(claim, trained))
    assert claim.study and claim.with_
    one = _eligible(claim, known.get(arm(claim.study, claim.with_).key, {}))
    if claim.without is None:
        return Judged(claim, _count(claim, one))
    other = _eligible(claim, known.get(arm(claim.study, claim.without).key, {}))
    pairs = [(_succeeds(claim, one[s]), _succeeds(claim, other[s])) for s in one.keys() & other.keys()]
    return Judged(claim, _count(claim, one), _count(claim, other), Paired.of(pairs))


def _of_checkpoints(claim: Claim, trained: Sequence[Trained]) -> Count:
    mine = [t for t in trained if t.rung in claim.rungs]
    if claim.measure is None:
        return Count(len(mine), len(mine))
    low, high = claim.bounds
    return Count(sum(low <= t.measure(claim.measure) <= high for t in mine), len(mine))


def judge_all(rows: Iterable[Row], trained: Sequence[Trained] = ()) -> list[Judged]:
    """All claims, in the papers' order."""
    known = arms(rows)
    return [judge(claim, known, trained) for claim in claims()]


def believed(judged: Sequence[Judged]) -> list[Judged]:
    """Those whose test counts, and which to believe so that at most 5 % of them are expected to be false."""
    tested = [j for j in judged if j.p is not None]
    return [j for j, keep in zip(tested, discoveries([j.p or 0.0 for j in tested]), strict=True) if keep]


def _eligible(claim: Claim, seeds: Arm) -> Arm:
    """The counted seeds that the claim's study lists; where it is about some that grokked, those."""
    assert claim.study
    listed = seeds_of(claim.study)
    return {s: row for s, row in seeds.items() if s in listed and _could_show(claim, row)}


def _could_show(claim: Claim, row: Row) -> bool:
    if claim.within is not None:
        return row["outcome"] == Outcome.GROKKED and not isnan(row.get("rise", nan))
    return not claim.held or _could_hold(row)


def _could_hold(row: Row) -> bool:
    return row["outcome"] == Outcome.GROKKED and (
        bool(row["held"]) or row["grok_step"] + HOLD <= row["budget"]
    )


def _succeeds(claim: Claim, row: Row) -> bool:
    if claim.held:
        return bool(row["held"])
    if claim.within is not None:
        return float(row["rise"]) <= claim.within
    if claim.reaches is not None:
        return float(row["best_token"]) >= claim.reaches
    return str(row["outcome"]) == Outcome.GROKKED


def _count(claim: Claim, seeds: Arm) -> Count:
    wrongly = 0.0 if claim.held or claim.within else missed_by_hopeless_rule(seeds.values())
    return Count(sum(_succeeds(claim, row) for row in seeds.values()), len(seeds), wrongly)
