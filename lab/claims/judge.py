"""Judge claims by records: counts, differences with their intervals, a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isnan, nan
from typing import Any

from lab.claims.claim import OF_SEEDS, Claim, claims, seeds_of
from lab.claims.trained import Trained
from lab.paired import PairedArms
from reports.ratios import discoveries
from search.stats.counting import COUNTED, GrokRate, missed
from search.stats.intervals import LEVEL, Interval, exact_low, power
from search.stats.record import SeedRecord
from search.study.trial import Configuration
from trainer import Outcome

Row = Mapping[str, Any]
Arm = dict[tuple[int, int], Row]
"""Rows of the counted seeds of one configuration."""
Run = tuple[str, tuple[int, int]]
"""A study, and a seed of it."""
MARGIN = 0.05
"""A gain below 5 points is none."""
HOLD = 10_000  # steps for which a grokked seed must stay perfect
HARMLESS = 0.5
"""A harmless change leaves at least this share of the rate without it."""
ALWAYS = 0.5
"""An `always` claim holds if the lower bound of the share exceeds this."""


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "open"


@dataclass(frozen=True)
class Count:
    """k of n seeds, and an upper bound on how many more a stopping rule may have kept from it.

    steps: how far half of them were trained, at least; None for checkpoints.
    """

    k: int
    n: int
    wrongly: float = 0.0
    steps: int | None = None

    @property
    def interval(self) -> Interval:
        return GrokRate(self.k, self.n, self.wrongly).interval

    def __str__(self) -> str:
        return f"{self.k} of {self.n}"


@dataclass(frozen=True)
class Judged:
    """A claim with its counts. paired: of the seeds that both arms had.

    believed: its test counts, by itself or at the false discovery rate of all claims.
    """

    claim: Claim
    with_it: Count
    without: Count | None = None
    paired: PairedArms | None = None
    believed: bool = True

    @property
    def p(self) -> float | None:
        """Return p of the test of the claim's kind; None where there is none."""
        if self.paired is None or not self.paired.n or self.claim.kind == "rate":
            return None
        return self.paired.association if self.claim.kind == "unrelated" else self.paired.p

    @property
    def power(self) -> float | None:
        """Return how likely McNemar's test tells the better arm from one in which no seed succeeds."""
        if self.p is None or self.paired is None or self.claim.kind == "unrelated":
            return None
        return power(self.paired.n, (self.paired.both + max(self.paired.first, self.paired.second)) / self.paired.n)

    @property
    def interval(self) -> Interval:
        """Return the interval of the difference, wider by the seeds that a stopping rule may have kept from an arm."""
        if self.paired is None or self.without is None or not self.paired.n:
            return -1.0, 1.0
        low, high = self.paired.interval
        n = self.paired.n
        return max(-1.0, low - self.without.wrongly / n), min(1.0, high + self.with_it.wrongly / n)

    @property
    def verdict(self) -> Verdict:
        if self.claim.kind is None or not self.with_it.n:
            return Verdict.OPEN
        return _RULES[self.claim.kind](self)

    def _differs(self, sign: int) -> bool:
        """Return True if the arm with it has more (sign 1) or fewer (-1) by the paired test and by the interval."""
        if self.paired is None or not self.paired.n or not self.believed or self.paired.p >= LEVEL:
            return False
        low, high = self.interval
        return low > 0 if sign > 0 else high < 0


def _possible(judged: Judged) -> Verdict:
    if judged.with_it.k:
        return Verdict.HOLDS
    return Verdict.FAILS if judged._differs(-1) else Verdict.OPEN


def _impossible(judged: Judged) -> Verdict:
    return _OPPOSITE[_possible(judged)]


def _better(judged: Judged) -> Verdict:
    if judged._differs(1):
        return Verdict.HOLDS
    return Verdict.FAILS if judged.interval[1] < MARGIN or judged._differs(-1) else Verdict.OPEN


def _no_better(judged: Judged) -> Verdict:
    return _OPPOSITE[_better(judged)]


def _harmless(judged: Judged) -> Verdict:
    if judged._differs(-1):
        return Verdict.FAILS
    assert judged.paired
    base = (judged.paired.both + judged.paired.second) / judged.paired.n if judged.paired.n else 0.0
    return Verdict.HOLDS if base and judged.interval[0] >= (HARMLESS - 1) * base else Verdict.OPEN


def _rate(judged: Judged) -> Verdict:
    (low, high), (least, highest) = judged.with_it.interval, judged.claim.bounds
    if least <= low and high <= highest:
        return Verdict.HOLDS
    return Verdict.FAILS if high < least or highest < low else Verdict.OPEN


def _unrelated(judged: Judged) -> Verdict:
    is_related = judged.p is not None and judged.p < LEVEL and judged.believed
    return Verdict.FAILS if is_related else Verdict.OPEN


def _found(judged: Judged) -> Verdict:
    return Verdict.HOLDS if judged.with_it.k else Verdict.OPEN


def _always(judged: Judged) -> Verdict:
    if judged.with_it.k < judged.with_it.n:
        return Verdict.FAILS
    return Verdict.HOLDS if exact_low(judged.with_it.k, judged.with_it.n) > ALWAYS else Verdict.OPEN


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
    """Return the counted seeds of each configuration.

    A seed that several studies trained counts once. It is the same run, of which one table may say more; where it
    is not (another engine), the study that comes first by name counts.
    """
    by_key: dict[str, Arm] = {}
    for row in sorted(rows, key=lambda r: str(r["study"]), reverse=True):
        if row["outcome"] in COUNTED:
            seeds = by_key.setdefault(row["configuration"], {})
            numbers = int(row["init_seed"]), int(row["data_seed"])
            seeds[numbers] = {**seeds.get(numbers, {}), **row}
    return by_key


def judge(claim: Claim, by_key: Mapping[str, Arm], trained: Sequence[Trained] = ()) -> Judged:
    """Judge a claim by the rows of `arms`, or by checkpoints."""
    if claim.kind not in OF_SEEDS:
        return Judged(claim, _of_checkpoints(claim, trained))
    first, second = dict[Run, Row](), dict[Run, Row]()
    for contrast in claim.contrasts:
        first |= _eligible(claim, contrast.study, contrast.with_it, by_key)
        if contrast.without:
            second |= _eligible(claim, contrast.study, contrast.without, by_key)
    if not any(contrast.without for contrast in claim.contrasts):
        return Judged(claim, _count(claim, first))
    pairs = [(_succeeds(claim, first[run]), _succeeds(claim, second[run])) for run in first.keys() & second.keys()]
    return Judged(claim, _count(claim, first), _count(claim, second), PairedArms.of(pairs))


def _of_checkpoints(claim: Claim, trained: Sequence[Trained]) -> Count:
    checkpoints = [t for t in trained if t.preset in claim.rungs]
    if claim.measure is None:
        return Count(len(checkpoints), len(checkpoints))
    low, high = claim.bounds
    return Count(sum(low <= t.measure(claim.measure) <= high for t in checkpoints), len(checkpoints))


def judge_all(rows: Iterable[Row], trained: Sequence[Trained] = ()) -> list[Judged]:
    """Judge all claims, in the papers' order. A test decides what is left at a false discovery rate of 5 %."""
    by_key = arms(rows)
    judged = [judge(claim, by_key, trained) for claim in claims()]
    lasting = {id(j) for j in believed(judged)}
    return [replace(j, believed=id(j) in lasting) if j.p is not None else j for j in judged]


def believed(judged: Sequence[Judged]) -> list[Judged]:
    """Return the claims whose test is left at a false discovery rate of 5 %."""
    tested = [j for j in judged if j.p is not None]
    return [j for j, keep in zip(tested, discoveries([j.p or 0.0 for j in tested]), strict=True) if keep]


def _eligible(claim: Claim, study: str, configuration: Configuration, by_key: Mapping[str, Arm]) -> dict[Run, Row]:
    """Return a configuration's counted seeds that a study lists; of a claim about grokked seeds, those.

    One that curvature finished at the end of its budget has failed: training alone counts.
    """
    listed, recipe = seeds_of(study), configuration.recipe
    seeds = {s: row for s, row in by_key.get(configuration.key, {}).items() if s in listed}
    if recipe.finish_above < 1:
        failed = {"outcome": Outcome.FAILED, "held": False}
        seeds = {s: {**row, **(failed if row["grok_step"] == recipe.steps else {})} for s, row in seeds.items()}
    return {(study, s): row for s, row in seeds.items() if _could_show(claim, row)}


def _could_show(claim: Claim, row: Row) -> bool:
    if claim.within is not None:
        return row["outcome"] == Outcome.GROKKED and not isnan(row.get("rise", nan))
    return not claim.held or _could_hold(row)


def _could_hold(row: Row) -> bool:
    return row["outcome"] == Outcome.GROKKED and (bool(row["held"]) or row["grok_step"] + HOLD <= row["budget"])


def _succeeds(claim: Claim, row: Row) -> bool:
    if claim.held:
        return bool(row["held"])
    if claim.within is not None:
        return float(row["rise"]) <= claim.within
    if claim.reaches is not None:
        return float(row["best_token"]) >= claim.reaches
    return str(row["outcome"]) == Outcome.GROKKED


def _count(claim: Claim, seeds: Mapping[Run, Row]) -> Count:
    is_bounded = not (claim.held or claim.within)
    wrongly = missed([SeedRecord.of(row) for row in seeds.values()]) if is_bounded else 0.0
    steps = sorted(int(row["steps"]) for row in seeds.values())
    half = steps[(len(steps) - 1) // 2] if steps else None
    return Count(sum(_succeeds(claim, row) for row in seeds.values()), len(seeds), wrongly, half)
