"""Counting, in one place: grok rates and how sure one can be of them, what rows of the ledger come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from statistics import fmean, median
from typing import Any

from search.stats.intervals import Interval, stopped, wilson
from trainer import FALSE_KILLS_UPPER, Outcome, Seed
from trainer.bank.hopeless import MEASURED, upper
from trainer.recipe.screen import MEASURED as SCREENS
from trainer.recipe.screen import PROBE, Rung

Row = dict[str, Any]
COUNTED = (Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP, Outcome.SCREENED)
Until = tuple[int, Sequence[Seed]]
"""How many grokked seeds a configuration stops at, and its seeds in order (study/file.py, stops_at)."""
ENOUGH = "enough had grokked"
"""Why a seed is censored that `until` needed no more: nobody waits for its end."""


def seed_of(row: Mapping[str, Any]) -> Seed:
    """The seed that a row is of."""
    return Seed(row["init_seed"], row["data_seed"])


def grouped(rows: Iterable[Row], by: str) -> dict[str, list[Row]]:
    """Rows by what they have in one column, in the order in which that comes."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[by], []).append(row)
    return found


@dataclass(frozen=True)
class GrokRate:
    """Grokked of all counted seeds; only censored seeds leave n (docs/architecture.md, "Counting")."""

    grokked: int
    n: int
    given_up: int = 0
    wrongly: float = 0.0
    """At most so many of the seeds that rules ended would have grokked, by `wrongly_given_up` and so on."""
    tries: tuple[int, int, int] | None = None
    """Where it stopped once enough had grokked: how many, and at which try, see `tries_until`."""
    ends: Interval | None = None
    """The interval of one that stopped, where its seeds are not at hand."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], until: Until | None = None) -> GrokRate:
        """Of ledger rows. until: of one configuration, when it was to stop."""
        rows = list(rows)
        counts = Counter(r["outcome"] for r in rows)
        return cls(
            grokked=counts[Outcome.GROKKED],
            n=sum(counts[o] for o in COUNTED),
            given_up=counts[Outcome.GIVEN_UP],
            wrongly=wrongly_given_up(rows) + wrongly_screened(rows),
            tries=tries_until(rows, *until) if until else None,
        )

    @property
    def rate(self) -> float:
        return self.grokked / self.n if self.n else 0.0

    @property
    def stopped(self) -> bool:
        return bool(self.tries or self.ends)

    @property
    def interval(self) -> Interval:
        """95 %: Wilson's, with what the given-up and the screened seeds might have done.

        At the lower end they are failures. At the upper end as many of them grokked as may at most have been
        stopped wrongly: Wilson's end is taken for these and the grokked together, as which seeds a study
        meets is chance for the one as for the other. Where few grok that is wider than adding their share to
        the end for the grokked alone. Where it went on until enough had grokked it is the exact one for that.
        """
        if self.ends:
            return self.ends
        if self.tries:
            return stopped(*self.tries, more=self.wrongly)
        might = min(self.grokked + self.wrongly, self.n)
        return wilson(self.grokked, self.n)[0], wilson(might, self.n)[1]

    def __str__(self) -> str:
        low, high = self.interval
        if self.stopped:
            return f"{self.grokked} of {self.n} grokked, where it stopped ({STOPPED} {low:.1%} to {high:.1%})"
        return f"{self.grokked} of {self.n} grokked: {self.rate:.1%} (95 % interval {low:.1%} to {high:.1%})"


STOPPED = "95 % interval for stopping there, negative binomial:"


def wrongly_given_up(rows: Iterable[Mapping[str, Any]]) -> float:
    """How many of the given-up seeds may at most have grokked, had they run on.

    Of a configuration by which the rule was measured the share is FALSE_KILLS_UPPER; of another one it is the
    one-sided 95 % upper bound (Clopper-Pearson) of the share of its own spared seeds that grokked, and where
    none was spared all may have.
    """
    total = 0.0
    for key, mine in grouped((dict(r) for r in rows), "configuration").items():
        found = Stopping.of(mine)
        own = upper(found.spared_grokked, found.spared)
        total += found.ended * (FALSE_KILLS_UPPER if key in MEASURED else own)
    return total


def tries_until(
    rows: Iterable[Mapping[str, Any]], k: int, seeds: Iterable[Seed]
) -> tuple[int, int, int] | None:
    """k, and at which of the seeds the k-th had grokked: at the latest and at the earliest, as the outcome of
    those that were ended or not begun is not known. None where fewer grokked.

    Seeds are trained side by side, and which end first depends on what becomes of them. In the order in which
    the study's file has them, which was fixed before, they are tries until the k-th success.
    """
    became = {seed_of(r): r["outcome"] for r in rows}
    outcomes = [became.get(seed) for seed in seeds]
    latest = _place([o == Outcome.GROKKED for o in outcomes], k)
    earliest = _place([o == Outcome.GROKKED or o not in COUNTED for o in outcomes], k)
    return (k, latest, earliest) if latest and earliest else None


def _place(successes: Sequence[bool], count: int) -> int | None:
    """How many it takes for so many successes."""
    places = [place for place, success in enumerate(successes, 1) if success]
    return places[count - 1] if len(places) >= count else None


def difference(one: GrokRate, other: GrokRate) -> Interval:
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
    """What one of the rules that stop seeds did, and what became of the random tenth that it would have ended
    and spared. `seeds` are the counted ones, as in GrokRate.
    """

    seeds: int
    ended: int = 0
    spared: int = 0
    spared_grokked: int = 0

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], outcome: Outcome = Outcome.GIVEN_UP) -> Stopping:
        """Of ledger rows; outcome: of those that the rule ended, which says which one is meant."""
        counted = [r for r in rows if r["outcome"] in COUNTED]
        called = [r["outcome"] for r in counted if r.get(CALLED[outcome]) is not None]
        spared = [o for o in called if o != outcome]
        return cls(len(counted), len(called) - len(spared), len(spared), spared.count(Outcome.GROKKED))

    def says(self, outcome: Outcome = Outcome.GIVEN_UP) -> str:
        """Empty where it called nobody."""
        if not self.ended and not self.spared:
            return ""
        said = f"{outcome.value.replace('_', ' ')}: {self.ended} of {self.seeds}"
        if not self.spared:
            return said
        return f"{said}; {self.spared} more ran on: {self.spared_grokked or 'none'} grokked"

    def told(self, did: str) -> str:
        """Whole sentences; empty where it called nobody. did: `The hopeless rule gave up`."""
        if not self.ended and not self.spared:
            return ""
        words = f"{did} {self.ended:,} of {self.seeds:,} seeds. "
        if self.spared:
            became = f"{self.spared_grokked:,} of them grokked" if self.spared_grokked else "none grokked"
            words += f"{self.spared:,} more that it called were spared and ran on: {became}. "
        return words


CALLED = {Outcome.GIVEN_UP: "hopeless_step", Outcome.SCREENED: "screen"}
"""The columns that say of a seed that a rule would end it, by what becomes of those that it does end."""


def wrongly_screened(rows: Iterable[Mapping[str, Any]]) -> float:
    """How many of the screened seeds may at most have grokked, had they run on.

    By each rung of each configuration: the seeds that it ended times the one-sided 95 % upper bound
    (Clopper-Pearson) of the share that grokked of those that it would have ended and that ran on: the spared
    ones, and those that trainer/recipe/screen.py knows of this rung and configuration. Where nobody ran on, all may.
    """
    called: dict[tuple[str, str], list[str]] = {}
    for r in rows:
        if r.get("screen") is not None and r["outcome"] in COUNTED:
            called.setdefault((r.get("configuration", ""), r["screen"]), []).append(r["outcome"])
    total = 0.0
    for key, outcomes in called.items():
        ended = outcomes.count(Outcome.SCREENED)
        grokked, of = SCREENS.get(key, (0, 0))
        total += ended * upper(grokked + outcomes.count(Outcome.GROKKED), of + len(outcomes) - ended)
    return total


def screen_words(rungs: Sequence[Rung], configurations: Iterable[str]) -> str:
    """What a study's screen does, and what was measured of it before with these configurations."""
    said = f"ends seeds without {', then '.join(map(str, rungs))}; a random tenth spared. "
    known = [SCREENS.get((key, str(rung))) for key in configurations for rung in rungs]
    found = [counts for counts in known if counts is not None]
    if len(found) < len(known) or not known:
        missing = (
            "it was not measured for this spec and recipe" if len(known) == 1 else "not all was measured"
        )
        return f"{said}What it kills, its spared ones say alone: {missing}"
    grokked, of = map(sum, zip(*found, strict=True))
    return f"{said}Measured before: of {of:,} seeds that it called and that ran on {grokked:,} grokked"


@dataclass(frozen=True)
class Cost:
    """What grokked seeds cost, all counted seeds paid for. Units: seed-steps, core-seconds."""

    grokked: int
    seed_steps: int
    core_s: float | None
    """None where it is not known of every seed, as on a GPU."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Cost:
        """Of ledger rows."""
        counted = [r for r in rows if r["outcome"] in COUNTED]
        seconds = [r.get("core_s") for r in counted]
        known = None not in seconds and bool(seconds)
        return cls(
            grokked=sum(r["outcome"] == Outcome.GROKKED for r in counted),
            seed_steps=sum(r["steps"] for r in counted),
            core_s=sum(s for s in seconds if s is not None) if known else None,
        )

    @property
    def per_million(self) -> float:
        """Grokked seeds for each million seed-steps."""
        return 1e6 * self.grokked / self.seed_steps if self.seed_steps else 0.0

    @property
    def each(self) -> float | None:
        """Core-seconds for each grokked seed, where there is one."""
        return self.core_s / self.grokked if self.core_s is not None and self.grokked else None

    def __str__(self) -> str:
        if not self.grokked:
            return f"none grokked in {self.seed_steps / 1e6:.3g} million seed-steps"
        said = f"{self.per_million:.3g} grokked per million seed-steps"
        return said if self.each is None else f"{said}; each cost {self.each:,.0f} core-seconds here"


def unended(rows: Iterable[Mapping[str, Any]]) -> str:
    """What seeds that have not ended do to a rate; empty where all have, or none has."""
    outcomes = [r["outcome"] for r in rows if r["reason"] != ENOUGH]
    open_ = sum(o not in COUNTED for o in outcomes)
    if open_ in (0, len(outcomes)):
        return ""
    return (
        f"{open_:,} of {len(outcomes):,} seeds have not ended. Trials end first whose seeds were all given "
        "up, or all grokked early: until the rest has ended, rates and intervals are biased"
    )


def rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sorting key of rows, best first: grokked and held, grokked early, then the highest exact match."""
    grokked = row["outcome"] == Outcome.GROKKED
    exact, token = (row[name] or 0.0 for name in ("best_exact", "best_token"))
    return (not grokked, not row["held"], row["grok_step"] or 0, -exact, -token)


def counted(rows: Sequence[Row], until: Until | None = None) -> dict[str, float]:
    """What a configuration's rows come to, by the names that follow `final.` in MLflow."""
    rate, stopping = GrokRate.of(rows, until), Stopping.of(rows)
    screen, cost = Stopping.of(rows, Outcome.SCREENED), Cost.of(rows)
    confirmation = GrokRate.of(r for r in rows if r["confirmation"])
    counts = Counter(r["outcome"] for r in rows)
    low, high = rate.interval
    grok_steps = [r["grok_step"] for r in rows if r["outcome"] == Outcome.GROKKED]
    values = {
        "grok_rate": rate.rate, "grok_rate_low": low, "grok_rate_high": high, "seeds": rate.n,
        "best_exact": max((r["best_exact"] or 0.0 for r in rows), default=0.0),
        "held": sum(bool(r["held"]) for r in rows),
        "spared": stopping.spared, "spared_grokked": stopping.spared_grokked,
        "screen_spared": screen.spared, "screen_spared_grokked": screen.spared_grokked,
        "screened_wrongly": wrongly_screened(rows),
        "seed_steps": cost.seed_steps, "grokked_per_million": cost.per_million,
        "confirmation_grokked": confirmation.grokked, "confirmation_seeds": confirmation.n,
        "confirmation_given_up": confirmation.given_up,
        "stopped": float(rate.stopped), "wrongly": rate.wrongly, "confirmation_wrongly": confirmation.wrongly,
        **{o.value: counts[o] for o in (*COUNTED, Outcome.CENSORED)},
    }  # fmt: skip
    if grok_steps:
        values["median_grok_step"] = float(median(grok_steps))
    return values | ({"core_s_per_grokked": cost.each} if cost.each is not None else {})


def overview(rows: Iterable[Row], until: Mapping[str, Until | None] | None = None) -> list[Row]:
    """One dictionary a study: trials, seeds, counts by outcome, grok rate with its interval. until: when
    studies stop.
    """
    stops = until or {}
    return [{"study": n, **summarise(mine, stops.get(n))} for n, mine in grouped(rows, "study").items()]


def summarise(rows: Sequence[Row], until: Until | None = None) -> Row:
    """Counts of some rows, and the grok rate where they are one configuration's: to pool the rates of
    several, chosen by what came before, means nothing. Where it stops (until) the confirmation is left out.
    """
    searched = [r for r in rows if not (until and r["confirmation"])]  # that is another rate
    rate, stopping, cost = GrokRate.of(searched, until), Stopping.of(rows), Cost.of(rows)
    screen = Stopping.of(rows, Outcome.SCREENED)
    counts = Counter(r["outcome"] for r in rows)
    configurations = len({r["configuration"] for r in rows})
    return {
        "configurations": configurations,
        "trials": len({r["trial"] for r in rows}),
        "seeds": len(rows),
        "states": {o.value: counts[o] for o in Outcome if counts[o]},
        "grokked": rate.grokked,
        "counted": rate.n,
        "grok_rate": rate.rate if configurations == 1 else None,
        "interval": list(rate.interval) if configurations == 1 else None,
        "stopped": rate.stopped,
        "held": sum(bool(r["held"]) for r in rows),
        "given_up": stopping.ended,
        "spared": stopping.spared,
        "spared_grokked": stopping.spared_grokked,
        "screened": screen.ended,
        "screen_spared": screen.spared,
        "screen_spared_grokked": screen.spared_grokked,
        "seed_steps": cost.seed_steps,
        "grokked_per_million": cost.per_million,
        "core_s_per_grokked": cost.each,
        "best_exact": max((r["best_exact"] or 0.0 for r in rows), default=0.0),
        "verify_calls": sum(r["verify_calls"] for r in rows),
        "unended": unended(rows),
    }


def step_metrics(step: int, rows: Sequence[Row]) -> dict[str, float]:
    """A configuration's metrics at a training step. Rows: exact, token, loss, grok_step and probes of its
    seeds. Of a probe it is the mean over seeds: of one that is 0 or 1, the share.
    """
    finite = [r for r in rows if isfinite(r["loss"])] or rows  # a diverged seed has no median
    grokked = [r["grok_step"] is not None and r["grok_step"] <= step for r in rows]
    probes = [name for name in rows[0] if name.startswith(PROBE)]
    read = {name: [r[name] for r in rows if isfinite(r.get(name, nan))] for name in probes}
    return {
        "grok_rate": sum(grokked) / len(rows),
        "best_exact": max(r["exact"] for r in finite),
        "median_exact": median(r["exact"] for r in finite),
        "median_token": median(r["token"] for r in finite),
        "loss": median(r["loss"] for r in finite),
        **{name: fmean(values) for name, values in read.items() if values},
    }


def pareto(params: Sequence[int], rates: Sequence[float]) -> list[bool]:
    """The Pareto front: True where no other has as few or fewer parameters and a rate as high or higher, one
    strictly better. Equals are on the front together.
    """
    order = sorted(range(len(params)), key=lambda i: (params[i], -rates[i]))
    on_front = [False] * len(params)
    best: tuple[float, float] = (float("-inf"), float("inf"))  # highest rate so far, and its parameters
    for i in order:
        if rates[i] > best[0]:
            best = (rates[i], params[i])
        on_front[i] = (rates[i], params[i]) == best
    return on_front
