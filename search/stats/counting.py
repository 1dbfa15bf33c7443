"""Outcomes of seeds, grok rates with their intervals, and what configurations and studies come to.

Outcomes: a seed *grokked*, *failed* (spent its budget), *diverged*, was *given up* (by the hopeless rule) or
*screened* (by the study's screen): these are counted. Seeds that were ended from outside are *censored*, and
leave n. Rules that end seeds early spare a random tenth of those they would end, and these bound how many of
the ended ones would have grokked: a rate's upper end allows for as many. The seeds of a search and those that
confirm what it chose have a rate each. docs/statistics.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Self, TypeVar

from search.plugins import rules
from search.stats.intervals import LEVEL, Interval, clustered, exact_high, mid_p, stopped
from search.stats.record import COLUMNS, ENOUGH, SeedRecord
from trainer import Outcome, Rule, Seed

Counts = Mapping[str, Any]
"""What is counted of several seeds, by name."""
R = TypeVar("R", bound=SeedRecord | Counts)
COUNTED = (Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP, Outcome.SCREENED)
INTERRUPTED = "interrupted"
"""State of seeds that were ended from outside and go on when the study does."""
WORDS: dict[str, str] = {o.value: o.value.replace("_", " ") for o in Outcome} | {
    Outcome.FAILED: "not grokked",
    Outcome.QUEUED: "waiting",
    Outcome.CENSORED: "cut off",
    INTERRUPTED: INTERRUPTED,
}
"""Outcomes, and what else a seed can be, as users read them: what spent its budget has not failed."""
ENDED_BY_RULES = (Outcome.GIVEN_UP, Outcome.SCREENED)
Until = tuple[int, Sequence[Seed]]
"""Number of grokked seeds at which a configuration stops, and its seeds in order (search/study/schema.py)."""
NONE_ENDED = "no seed has ended"
WIDER = 0.05
"""What rules may add to the upper end of an interval before a plan, and the end of a run, advise against them."""


def state_of(row: SeedRecord) -> str:
    """Return a seed's outcome, or INTERRUPTED if it is still to be trained to its end."""
    is_open = row.outcome == Outcome.CENSORED and row.reason != ENOUGH
    return INTERRUPTED if is_open else str(row.outcome)


def by_phase(rows: Iterable[SeedRecord]) -> tuple[list[SeedRecord], list[SeedRecord]]:
    """Return the rows of a search, by which configurations were chosen, and those that confirm them."""
    phases: tuple[list[SeedRecord], list[SeedRecord]] = [], []
    for row in rows:
        phases[row.confirmation].append(row)  # False is 0, True is 1
    return phases


def grokking(grok_step: int, held: bool | None, hold: int, steps: int) -> str:
    """Return when a seed grokked, and if it held. hold: for so many steps it was to; none if 0. steps: its budget."""
    text = f"grokked at step {grok_step:,}"
    if not hold:
        return text
    if held:
        return f"{text} and held"
    if steps - grok_step < hold:
        return f"{text}, too late to hold for {hold:,} steps"
    return f"{text} and did not hold"


def group_by(rows: Iterable[R], column: str) -> dict[str, list[R]]:
    """Return rows by their values in a column, in order of first appearance."""
    groups: dict[str, list[R]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


# Grok rates


@dataclass(frozen=True)
class GrokRate:
    """Grokked seeds of all counted seeds, with what bounds the rate."""

    grokked: int
    n: int
    missed: float = 0.0
    """Upper bound on the seeds that rules ended and that would have grokked."""
    tries: tuple[int, int, int] | None = None
    """Where it stopped once enough had grokked (`tries_until`)."""
    recorded_interval: Interval | None = None
    """The interval as it was recorded, where its seeds are not at hand."""

    @classmethod
    def of(cls, rows: Iterable[SeedRecord], until: Until | None = None, bounded: bool = True) -> Self:
        """Count ledger rows.

        until: where one configuration was to stop. bounded: compute `missed`, which the interval needs and
        for which SciPy may have to be loaded.
        """
        rows = list(rows)
        counts = Counter(r.outcome for r in rows)
        return cls(
            grokked=counts[Outcome.GROKKED],
            n=sum(counts[o] for o in COUNTED),
            missed=missed(rows) if bounded else nan,
            tries=tries_until(rows, *until) if until else None,
        )

    @property
    def rate(self) -> float | None:
        """None where no seed has ended."""
        return self.grokked / self.n if self.n else None

    def named(self, *names: str) -> dict[str, float]:
        """Return the rate and its interval's ends by these names; nothing where no seed has ended."""
        if self.rate is None:
            return {}
        return dict(zip(names, (self.rate, *self.interval), strict=True))

    @property
    def interval(self) -> Interval:
        """95 % interval: the mid-P one, or the exact one for stopping at enough grokked seeds.

        Seeds that rules ended are failures at the lower end. At the upper end `missed` of them grokked:
        the end is taken for these and the grokked together, as it is chance for both which seeds a study
        meets. Where few grok that is wider than adding their share to the end for the grokked alone.
        """
        if self.recorded_interval:
            return self.recorded_interval
        if self.tries:
            return stopped(*self.tries, missed=self.missed)
        low, _ = mid_p(self.grokked, self.n)
        at_most = min(self.grokked + self.missed, self.n)
        _, high = mid_p(at_most, self.n)
        return low, high

    @property
    def is_widened(self) -> bool:
        """True if rules add more than WIDER to the upper end of the interval."""
        _, high = self.interval
        _, high_without_rules = mid_p(self.grokked, self.n)
        return high > high_without_rules + WIDER

    def __str__(self) -> str:
        if not self.n:
            return NONE_ENDED
        counts = f"{self.grokked:,} of {self.n:,} grokked"
        interval = f"95 % interval {percents(self.interval)}"
        if self.tries:  # no rate: where it stopped is a success
            return f"{counts}, then it stopped ({interval}: in the file's order {self.place} grokked)"
        if self.missed >= 0.5:  # which rounds to a seed
            interval += f": up to {self.missed:,.0f} that rules ended might have grokked"
        return f"{counts}: {percent(self.rate or 0.0)} ({interval})"

    @property
    def place(self) -> str:
        """Words on where it stopped: `the first seed`, `2 of the first 20 seeds`; empty if that is not at hand."""
        if not self.tries:
            return ""
        k, latest, earliest = self.tries
        if latest == 1:
            return "the first seed"
        first = f"{earliest:,} to {latest:,}" if earliest < latest else f"{latest:,}"
        return f"{k:,} of the first {first} seeds"


def called_by(rule: type[Rule], row: SeedRecord) -> str | None:
    """Return the name by which a kind of rule called a seed; None if it did not.

    A spared seed that it called runs on. A seed that it ended was called, also where the row lacks the rule's column.
    """
    noted = row[rule.column]
    was_called = noted is not None or row.outcome == rule.outcome
    return rule.called(noted) if was_called else None


def missed(rows: Sequence[SeedRecord], pooled: bool = False) -> float:
    """Return an upper bound on the seeds that rules ended and that would have grokked: the sum of `missed_by`."""
    return sum(missed_by(rule, rows, pooled) for rule in rules().values())


def missed_by(rule: type[Rule], rows: Iterable[SeedRecord], pooled: bool = False) -> float:
    """Return an upper bound on the seeds that a kind of rule ended and that would have grokked.

    For each configuration, in its search and in its confirmation, and for each name by which it called: the seeds that
    the rule ended, times the one-sided 95 % bound (Clopper-Pearson) of the share that grokked of those that it called
    and that ran on. These are the spared seeds, and those measured before. What it calls of other configurations says
    nothing: a recipe that learns late may lose winners that others keep. Where the share itself was measured
    (`Rule.measured`), it is taken instead.

    pooled: bound configurations together of which nothing was measured before, for a rate of all of them.
    """
    called: dict[tuple[str, bool, str], list[str]] = {}
    for row in rows:
        name = called_by(rule, row)
        if name is None or row.outcome not in COUNTED:
            continue
        is_unmeasured = pooled and rule.measured(row.configuration, name) is None
        group = "" if is_unmeasured else row.configuration
        called.setdefault((group, row.confirmation, name), []).append(row.outcome)

    total = 0.0
    for (key, _, name), outcomes in called.items():
        ended = outcomes.count(rule.outcome)
        measured = rule.measured(key, name)
        if isinstance(measured, float):
            total += ended * measured
        elif ended:  # else there is nothing to bound, and no need to load SciPy
            grokked_before, n_before = measured or (0, 0)
            grokked = grokked_before + outcomes.count(Outcome.GROKKED)
            ran_on = n_before + len(outcomes) - ended
            total += ended * exact_high(grokked, ran_on, LEVEL)
    return total


def tries_until(rows: Iterable[SeedRecord], k: int, seeds: Iterable[Seed]) -> tuple[int, int, int] | None:
    """Return k, and the latest and the earliest try at which the k-th seed grokked; None if fewer did.

    Seeds train side by side, and their outcomes decide which end first. In the order of the study's file,
    which was fixed before, they are tries until the k-th success. The two places differ where the outcomes of
    earlier seeds, ended from outside or not begun, are unknown.
    """
    by_seed = {row.seed: row.outcome for row in rows}
    grokked: list[int] = []  # places in the file's order, from 1 on
    at_best: list[int] = []  # the same, if all that are unknown had grokked
    for place, seed in enumerate(seeds, 1):
        outcome = by_seed.get(seed)
        if outcome == Outcome.GROKKED:
            grokked.append(place)
        if outcome == Outcome.GROKKED or outcome not in COUNTED:
            at_best.append(place)
    return (k, grokked[k - 1], at_best[k - 1]) if len(grokked) >= k else None


# Rates of several configurations

FEWEST_SEEDS = 10
"""Seeds from which on a rate of several configurations has an interval."""
TOO_FEW = "too few seeds to pool"


@dataclass(frozen=True)
class PooledRate:
    """Grokked pairs of all counted ones of several configurations, which share their seeds.

    The same seeds in every configuration are not independent: the interval is clustered by seed.
    """

    grokked: int
    n: int
    configurations: int
    seeds: int
    seeds_grokked: int
    """Number of seeds that grokked in some configuration."""
    interval: Interval | None
    """None with fewer than FEWEST_SEEDS seeds."""

    @classmethod
    def of(cls, rows: Iterable[SeedRecord]) -> Self:
        """Count rows of seeds."""
        rows = [row for row in rows if row.outcome in COUNTED]
        n = Counter(row.seed for row in rows)
        ended = Counter(row.seed for row in rows if row.outcome in ENDED_BY_RULES)
        grokked = Counter(row.seed for row in rows if row.has_grokked)

        interval = None
        if len(n) >= FEWEST_SEEDS:
            tries = list(n.values())
            low, _ = clustered([grokked[seed] for seed in n], tries)
            # Nobody knows which of the ended seeds would have grokked: each counts as the same share of a success.
            share = min(missed(rows, pooled=True) / max(ended.total(), 1), 1.0)
            _, high = clustered([grokked[seed] + share * ended[seed] for seed in n], tries)
            interval = low, high

        configurations = len({row.configuration for row in rows})
        return cls(grokked.total(), n.total(), configurations, len(n), len(grokked), interval)

    @property
    def rate(self) -> float:
        return self.grokked / self.n if self.n else 0.0

    def __str__(self) -> str:
        if not self.n:
            return NONE_ENDED
        is_complete = self.n == self.seeds * self.configurations
        up_to = "" if is_complete else "up to "
        pairs = f"{up_to}{self.seeds:,} seeds × {self.configurations:,} configurations"
        runs = f"{self.grokked:,} of {self.n:,} runs grokked; {pairs}"
        pooled = TOO_FEW
        if self.interval:
            pooled = f"{percent(self.rate)}, 95 % interval clustered by seed {percents(self.interval)}"
        return f"{runs} ({pooled}); {self.seeds_grokked:,} of {self.seeds:,} seeds grokked in some configuration"


# Stopping rules and cost


@dataclass(frozen=True)
class StoppingCounts:
    """Seeds that a stopping rule ended, and what became of those it would have ended but spared."""

    seeds: int
    """Counted seeds, as in GrokRate."""
    ended: int = 0
    spared: int = 0
    spared_grokked: int = 0

    @classmethod
    def of(cls, rows: Iterable[SeedRecord], rule: type[Rule]) -> Self:
        """Count ledger rows."""
        counted = [row for row in rows if row.outcome in COUNTED]
        called = [row.outcome for row in counted if called_by(rule, row) is not None]
        spared = [outcome for outcome in called if outcome != rule.outcome]
        return cls(
            seeds=len(counted),
            ended=len(called) - len(spared),
            spared=len(spared),
            spared_grokked=spared.count(Outcome.GROKKED),
        )

    @classmethod
    def read(cls, summary: Counts, rule: type[Rule]) -> Self:
        """Return the counts of a rule in a study's summary."""
        return cls(summary["counted"], *(summary.get(name, 0) for name in names_of_counts(rule)))

    def summary(self, rule: type[Rule]) -> str:
        """Return the counts in a line; empty if the rule never called a seed."""
        if not self.ended and not self.spared:
            return ""
        text = f"{rule.ended.replace('_', ' ')}: {self.ended:,} of {self.seeds:,}"
        if self.spared:
            text += f"; {self.spared:,} more spared, to check the rule: {self.spared_grokked or 'none'} grokked"
        return text

    @property
    def spared_share(self) -> float:
        """Share of the seeds that the rule called that it spared, if it called any."""
        return self.spared / (self.ended + self.spared)


def names_of_counts(rule: type[Rule]) -> tuple[str, str, str]:
    """Return what summaries and MLflow call a rule's ended seeds, its spared ones, and those of them that grokked."""
    return rule.ended, f"{rule.prefix}spared", f"{rule.prefix}spared_grokked"


def counts_of_rules(rows: Sequence[SeedRecord]) -> dict[str, int]:
    """Return the counts of all rules by name (`names_of_counts`)."""
    counts: dict[str, int] = {}
    for rule in rules().values():
        count = StoppingCounts.of(rows, rule)
        counts |= zip(names_of_counts(rule), (count.ended, count.spared, count.spared_grokked), strict=True)
    return counts


def describe_rules(kind: type[Rule], asked: Sequence[Rule], configurations: Iterable[str]) -> str:
    """Describe the rules of a kind that a study has, and what was measured of them before with these configurations."""
    text = f"{kind.describe(asked)}; a random tenth spared. "
    lookups = [kind.measured(key, str(rule)) for key in configurations for rule in asked]
    measured = [counts for counts in lookups if isinstance(counts, tuple)]
    if len(measured) < len(lookups) or not lookups:
        missing = "not all was measured before"
        if len(lookups) == 1:
            missing = "it was not measured before with this spec and recipe"
        return f"{text}How many of the ended ones would have grokked, these spared ones tell: {missing}"

    grokked, n = map(sum, zip(*measured, strict=True))
    return f"{text}Measured before: {grokked:,} grokked of {n:,} seeds that it would have ended and that ran on"


def percent(share: float, digits: int = 1) -> str:
    """Return a share in per cent: with more digits where it would read 0 or 100, and is neither.

    >>> percent(0.25), percent(2_499 / 2_500), percent(1 / 256, 0), percent(1 - 1e-16)
    ('25.0%', '99.96%', '0.4%', '100.0%')
    """
    text = f"{share:.{digits}%}"
    is_rounded = float(text[:-1]) in (0, 100) and 1e-9 < share < 1 - 1e-9  # a computed end may be nearly one
    return percent(share, digits + 1) if is_rounded else text


def percents(ends: Interval, digits: int = 1) -> str:
    return " to ".join(percent(end, digits) for end in ends)


def few_digits(amount: float, digits: int = 2) -> str:
    """Return an amount in words: `digits` of it, but a large one as a whole number.

    >>> few_digits(0.1234), few_digits(12345.6), few_digits(4.484, 3)
    ('0.12', '12,346', '4.48')
    """
    is_large = amount >= 10 ** (digits - 1)
    return f"{amount:,.0f}" if is_large else f"{amount:.{digits}g}"


@dataclass(frozen=True)
class Cost:
    """Training that grokked seeds cost, that of all counted seeds included. Units: seed-steps, core-seconds."""

    grokked: int
    seed_steps: int
    core_s: float | None
    """None unless the C++ engine trained every seed."""

    @classmethod
    def of(cls, rows: Iterable[SeedRecord]) -> Self:
        """Add up ledger rows."""
        rows = [row for row in rows if row.outcome in COUNTED]
        seconds = [row.core_s for row in rows if row.core_s is not None]
        is_known = rows and len(seconds) == len(rows)
        return cls(
            grokked=sum(row.has_grokked for row in rows),
            seed_steps=sum(row.steps for row in rows),
            core_s=sum(seconds) if is_known else None,
        )

    @property
    def per_million(self) -> float | None:
        """Grokked seeds per million seed-steps; None before any was trained."""
        return 1e6 * self.grokked / self.seed_steps if self.seed_steps else None

    @property
    def each(self) -> float | None:
        """Core-seconds per grokked seed; None if unknown or none grokked."""
        return self.core_s / self.grokked if self.core_s is not None and self.grokked else None

    def __str__(self) -> str:
        if not self.grokked:
            return f"none grokked in {self.seed_steps:,} seed-steps (steps of all seeds together)"
        text = f"{few_digits(self.per_million or 0.0, 3)} grokked per million seed-steps"
        return text if self.each is None else f"{text}; each cost {few_digits(self.each)} core-seconds here"


# Summaries


def unended_warning(rows: Iterable[SeedRecord]) -> str:
    """Return how unended seeds bias a rate; empty if all seeds have ended, or none has."""
    rows = [row for row in rows if row.reason != ENOUGH]  # those end no more
    unended = sum(row.outcome not in COUNTED for row in rows)
    if unended in (0, len(rows)):
        return ""
    runs = "runs" if len({row.configuration for row in rows}) > 1 else "seeds"
    return (
        f"{unended:,} of {len(rows):,} {runs} have not ended. The first to end are given up or grok early: "
        "until the rest has ended, rates and intervals are biased"
    )


def rank(row: SeedRecord) -> tuple[Any, ...]:
    """Return a sorting key of rows, best first: grokked, proved before undecided before refuted, held, grokked early.

    Of those that did not grok the one with the highest exact match comes first, of equals that of token accuracy.
    """
    proved = {True: 0, None: 1, False: 2}[row.proved]
    exact = row.best_exact or 0.0
    token = row.best_token or 0.0
    return (not row.has_grokked, proved, not row.held, row.grok_step or 0, -exact, -token)


def proof_counts(rows: Iterable[SeedRecord]) -> dict[str, int]:
    """Return how many grokked rows are right on all pairs, on how many there is a verdict, and on how many a claim."""
    recorded = [row for row in rows if row.has_grokked and row.proof]
    # A verdict that this user has not decided is a claim.
    decided = [row.proved is True for row in recorded if "claimed" not in (row.proof or {})]
    return {"proved": sum(decided), "prove_tried": len(decided), "proofs_claimed": len(recorded) - len(decided)}


def common_counts(rows: Sequence[SeedRecord]) -> Counts:
    """Return what the metrics of a configuration and the summary of a study both have; None for what is unknown."""
    cost = Cost.of(rows)
    return {
        **{name: COLUMNS[name].summarise(rows) for name in ("held", "best_exact")},
        **counts_of_rules(rows),
        "seed_steps": cost.seed_steps,
        "grokked_per_million": cost.per_million,
        "core_s_per_grokked": cost.each,
    }


def summarise(rows: Sequence[SeedRecord], until: Until | None = None) -> Counts:
    """Return counts of some rows: of the search, and below `confirmation_*` of what confirms it, if anything does."""
    searched, fresh = by_phase(rows)
    confirmed = _rated(fresh) if fresh else {}
    return {
        "configurations": len({row.configuration for row in rows}),
        **_rated(searched, until),
        **{f"confirmation_{name}": value for name, value in confirmed.items()},
        **common_counts(searched),
        "verify_calls": sum(row.verify_calls for row in rows),
        "unended": unended_warning(rows),
    }


def _rated(rows: Sequence[SeedRecord], until: Until | None = None) -> Counts:
    """Return counts of seeds, and the grok rate where they are of one configuration.

    The rates of several configurations, chosen by earlier results, are not pooled.
    """
    configurations = len({row.configuration for row in rows})
    single = configurations == 1
    rate = GrokRate.of(rows, until if single else None, bounded=single)
    if rate.n and not single:
        said = f"{rate.grokked:,} of {rate.n:,} grokked over {configurations:,} configurations"
    else:
        said = str(rate)
    states = Counter(map(state_of, rows))
    return {
        "seeds": len(rows),
        "states": {state: states[state] for state in WORDS if states[state]},
        "grokked": rate.grokked,
        "counted": rate.n,
        "grok_rate": rate.rate if single else None,
        "interval": list(rate.interval) if single and rate.n else None,
        "stopped": bool(rate.tries),
        "said": said,
    }


def pareto(sizes: Sequence[int], scores: Sequence[float]) -> list[bool]:
    """Return which points are on the Pareto front, small sizes and high scores being better.

    A point is on it if no other is as small and scores as high, one of them strictly better. Equal points are
    on it together.
    """
    points = list(zip(sizes, scores, strict=True))
    front: set[tuple[int, float]] = set()
    highest = float("-inf")
    for size, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if score > highest:
            highest = score
            front.add((size, score))
    return [point in front for point in points]
