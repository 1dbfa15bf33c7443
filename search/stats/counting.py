"""Outcomes of seeds, grok rates with their intervals, and what configurations and studies come to.

Outcomes: a seed *grokked*, *failed* (spent its budget), *diverged*, was *given up* (by the hopeless rule) or
*screened* (by the study's screen): these are counted. Seeds that were ended from outside are *censored*, and
leave n. Rules that end seeds early spare a random tenth of those they would end, and these bound how many of
the ended ones would have grokked: a rate's upper end allows for as many. docs/statistics.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from statistics import fmean, median
from typing import Any, Self, TypeVar

from model.proof import is_right
from search.stats.intervals import LEVEL, Interval, clustered, exact_high, mid_p, stopped
from trainer import FALSE_KILLS_UPPER, Outcome, Seed
from trainer.bank.futility import MEASURED, MEASURED_SCREENS
from trainer.recipe.screen import PROBE, Rung

Row = Mapping[str, Any]
"""A record of a seed, or what is counted of several; a function takes any that has its columns."""
R = TypeVar("R", bound=Mapping[str, Any])
COUNTED = (Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP, Outcome.SCREENED)
WORDS = {o: o.value.replace("_", " ") for o in Outcome} | {
    Outcome.FAILED: "not grokked",
    Outcome.QUEUED: "waiting",
    Outcome.CENSORED: "cut off",
}
"""Outcomes as users read them: what spent its budget has not failed."""
RULE_COLUMNS = {Outcome.GIVEN_UP: "hopeless_step", Outcome.SCREENED: "screen"}
"""Outcome of a stopping rule -> column that is not None where the rule fired, on spared seeds too."""
Until = tuple[int, Sequence[Seed]]
"""Number of grokked seeds at which a configuration stops, and its seeds in order (search/study/schema.py)."""
StudyEvidence = Mapping[str, "Evidence"]
"""Of a whole study's spared seeds: by rung, and of the hopeless rule by its outcome's name (`evidence_of`)."""
NONE_ENDED = "no seed has ended"
FIRST_SEEDS = "first_seeds"
"""Prefix of metrics over steps: they are of a configuration's first seeds alone."""
ENOUGH = "enough had grokked"
"""Reason of seeds that were censored because `until` needed no more."""


def seed_of(row: Row) -> Seed:
    return Seed(row["init_seed"], row["data_seed"])


def grokking(row: Row, hold: int, steps: int) -> str:
    """Return when a seed grokked, and if it held where it was to for so many steps. steps: its budget."""
    stability = f" and {'held' if row['held'] else 'did not hold'}" if hold else ""
    if hold and not row["held"] and steps - row["grok_step"] < hold:
        stability = f", too late to hold for {hold:,} steps"
    return f"grokked at step {row['grok_step']:,}{stability}"


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
    given_up: int = 0
    missed: float = 0.0
    """Upper bound on the seeds that rules ended and that would have grokked."""
    tries: tuple[int, int, int] | None = None
    """Where it stopped once enough had grokked (`tries_until`)."""
    recorded_interval: Interval | None = None
    """The interval of a rate that stopped, where its seeds are not at hand."""

    @classmethod
    def of(
        cls, rows: Iterable[Row], until: Until | None = None, bounded: bool = True,
        evidence: StudyEvidence | None = None,
    ) -> Self:  # fmt: skip
        """Count ledger rows.

        until: where one configuration was to stop. bounded: compute `missed`, which the interval needs and
        for which SciPy may have to be loaded.
        """
        rows, missed = list(rows), nan
        if bounded:
            missed = sum(missed_by(rule, rows, evidence) for rule in RULE_COLUMNS)
        counts = Counter(r["outcome"] for r in rows)
        return cls(
            grokked=counts[Outcome.GROKKED],
            n=sum(counts[o] for o in COUNTED),
            given_up=counts[Outcome.GIVEN_UP],
            missed=missed,
            tries=tries_until(rows, *until) if until else None,
        )

    @property
    def rate(self) -> float:
        return self.grokked / self.n if self.n else 0.0

    @property
    def stopped(self) -> bool:
        return bool(self.tries or self.recorded_interval)

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
        return mid_p(self.grokked, self.n)[0], mid_p(min(self.grokked + self.missed, self.n), self.n)[1]

    def __str__(self) -> str:
        if not self.n:
            return NONE_ENDED
        interval = "(95 % interval {:.1%} to {:.1%})".format(*self.interval)
        if self.stopped:
            place = f"{interval[:-1]}: {self.place} in the file's order grokked)" if self.tries else interval
            return f"{self.grokked} of {self.n} grokked, then it stopped {place}"
        if self.missed >= 0.5:
            interval = f"{interval[:-1]}: up to {self.missed:.0f} that rules ended might have grokked)"
        return f"{self.grokked} of {self.n} grokked: {self.rate:.1%} {interval}"

    @property
    def place(self) -> str:
        """Words on where it stopped: `the first seed`, `2 of the first 20 seeds`; empty if that is not at hand."""
        if not self.tries:
            return ""
        k, latest, earliest = self.tries
        first = f"{earliest} to {latest}" if earliest < latest else latest
        return "the first seed" if latest == 1 else f"{k} of the first {first} seeds"


@dataclass(frozen=True)
class Evidence:
    """What the spared seeds of a whole study say of a rule.

    called, called_grokked: spared seeds that the rule called, and how many of them grokked. ended: seeds that it ended.
    uncalled_grokked: winners that it did not call.
    """

    called: int = 0
    called_grokked: int = 0
    ended: int = 0
    uncalled_grokked: int = 0

    def missed(self, ended: int, grokked: int) -> float:
        """Return an upper bound (one-sided 95 %) on seeds of a configuration that would have grokked, of `ended` ones.

        The greater of two: the rule is wrong as often as in the whole study, by the seeds that it ended; or it loses
        the same share of the winners, by the `grokked` ones. The first alone is too low for a configuration that
        groks often, the second for one that groks rarely.
        """
        if not self.called:
            return float(ended)
        by_ended = ended * exact_high(self.called_grokked, self.called, LEVEL)
        spared = self.called / (self.called + self.ended)
        odds = exact_high(self.called_grokked, self.called_grokked + self.uncalled_grokked, LEVEL)
        lost = (1 - spared) * odds / (odds + spared * (1 - odds))  # share of the winners that it ends
        by_winners = grokked * lost / (1 - lost) if lost < 1 else float(ended)
        return min(float(ended), max(by_ended, by_winners))


def evidence_of(rows: Iterable[Row]) -> StudyEvidence:
    """Return what a study's seeds say of each of its rules."""
    counts: dict[str, Counter[str]] = {}
    rows = [r for r in rows if r["outcome"] in COUNTED]
    for rule, column in RULE_COLUMNS.items():
        winners = sum(r["outcome"] == Outcome.GROKKED and r.get(column) is None for r in rows)
        for row in rows:
            if row.get(column) is not None:
                name = row[column] if rule == Outcome.SCREENED else rule
                count = counts.setdefault(name, Counter(uncalled_grokked=winners))
                is_ended = row["outcome"] == rule
                count["ended"] += is_ended
                count["called"] += not is_ended
                count["called_grokked"] += row["outcome"] == Outcome.GROKKED
    return {name: Evidence(**count) for name, count in counts.items()}


def missed_by(rule: Outcome, rows: Iterable[Row], evidence: StudyEvidence | None = None) -> float:
    """Return an upper bound on the seeds that a stopping rule ended and that would have grokked.

    For each configuration, and each rung of a screen: the seeds that the rule ended, times the one-sided 95 % bound
    (Clopper-Pearson) of the share that grokked of those that it called and that ran on. These are the spared seeds, and
    those measured before (trainer/recipe/screen.py). If `evidence` of the whole study says less, that counts. The
    hopeless rule loses at most FALSE_KILLS_UPPER of a configuration by which it was measured.

    rule: its outcome, a key of RULE_COLUMNS.
    """
    called: dict[tuple[str, str], list[str]] = {}
    winners: Counter[str] = Counter()
    for row in rows:
        key, fired = row.get("configuration", ""), row.get(RULE_COLUMNS[rule])
        winners[key] += row["outcome"] == Outcome.GROKKED
        if fired is not None and row["outcome"] in COUNTED:
            called.setdefault((key, fired if rule == Outcome.SCREENED else rule), []).append(row["outcome"])
    total = 0.0
    for (key, name), outcomes in called.items():
        ended = outcomes.count(rule)
        if rule == Outcome.GIVEN_UP and key in MEASURED:
            total += ended * FALSE_KILLS_UPPER
        elif ended:
            grokked, n = MEASURED_SCREENS.get((key, name), (0, 0))
            wrong, ran_on = grokked + outcomes.count(Outcome.GROKKED), n + len(outcomes) - ended
            by_own = ended * exact_high(wrong, ran_on, LEVEL)
            of_study = evidence[name].missed(ended, winners[key]) if evidence and name in evidence else by_own
            total += min(by_own, of_study)
    return total


def tries_until(rows: Iterable[Row], k: int, seeds: Iterable[Seed]) -> tuple[int, int, int] | None:
    """Return k, and the latest and the earliest try at which the k-th seed grokked; None if fewer did.

    Seeds train side by side, and their outcomes decide which end first. In the order of the study's file,
    which was fixed before, they are tries until the k-th success. The two places differ where the outcomes of
    earlier seeds, ended from outside or not begun, are unknown.
    """
    by_seed = {seed_of(row): row["outcome"] for row in rows}
    outcomes = [by_seed.get(seed) for seed in seeds]
    latest = _place([o == Outcome.GROKKED for o in outcomes], k)
    earliest = _place([o == Outcome.GROKKED or o not in COUNTED for o in outcomes], k)
    return (k, latest, earliest) if latest and earliest else None


def _place(successes: Sequence[bool], k: int) -> int | None:
    """Return the place of the k-th success, from 1 on."""
    places = [place for place, success in enumerate(successes, 1) if success]
    return places[k - 1] if len(places) >= k else None


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
    """None under FEWEST_SEEDS seeds."""

    @classmethod
    def of(cls, rows: Iterable[Row], missed: float = 0.0) -> Self:
        """Count rows of seeds. missed: upper bound on the seeds that rules ended and that would have grokked."""
        rows = [r for r in rows if r["outcome"] in COUNTED]
        n, ended = (
            Counter(map(seed_of, rows)),
            Counter(seed_of(r) for r in rows if r["outcome"] in RULE_COLUMNS),
        )
        grokked = Counter(seed_of(r) for r in rows if r["outcome"] == Outcome.GROKKED)
        interval, share = None, min(missed / max(ended.total(), 1), 1.0)
        if len(n) >= FEWEST_SEEDS:
            tries = list(n.values())
            low, _ = clustered([grokked[s] for s in n], tries)
            interval = low, clustered([grokked[s] + share * ended[s] for s in n], tries)[1]
        configurations = len({r["configuration"] for r in rows})
        return cls(grokked.total(), n.total(), configurations, len(n), len(grokked), interval)

    @property
    def rate(self) -> float:
        return self.grokked / self.n if self.n else 0.0

    def __str__(self) -> str:
        if not self.n:
            return NONE_ENDED
        exact = self.n == self.seeds * self.configurations
        of = f"{self.seeds} seeds × {self.configurations} configurations"
        runs = f"{self.grokked:,} of {self.n:,} runs grokked, {'of' if exact else 'of up to'} {of}"
        pooled = TOO_FEW
        if self.interval:
            pooled = "{:.1%}, 95 % interval clustered by seed {:.1%} to {:.1%}".format(self.rate, *self.interval)
        return f"{runs} ({pooled}); {self.seeds_grokked} of {self.seeds} seeds grokked in some configuration"


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
    def of(cls, rows: Iterable[Row], rule: Outcome = Outcome.GIVEN_UP) -> Self:
        """Count ledger rows. rule: the outcome of the seeds that the rule ends."""
        rows = [r for r in rows if r["outcome"] in COUNTED]
        fired = [r["outcome"] for r in rows if r.get(RULE_COLUMNS[rule]) is not None]
        spared = [o for o in fired if o != rule]
        return cls(len(rows), len(fired) - len(spared), len(spared), spared.count(Outcome.GROKKED))

    def summary(self, rule: Outcome = Outcome.GIVEN_UP) -> str:
        """Return the counts in a line; empty if the rule never fired."""
        grokked = f"{self.spared_grokked or 'none'} grokked"
        spared = f"; {self.spared} more spared, to check the rule: {grokked}" if self.spared else ""
        return f"{WORDS[rule]}: {self.ended} of {self.seeds}{spared}" if self.ended or self.spared else ""

    @property
    def spared_share(self) -> float:
        """Share of the seeds that the rule called that it spared."""
        return self.spared / (self.ended + self.spared) if self.spared else 0.0


def describe_screen(rungs: Sequence[Rung], configurations: Iterable[str]) -> str:
    """Describe a study's screen, and what was measured of it before with these configurations (keys)."""
    rule = f"ends seeds without {', then '.join(map(str, rungs))}; a random tenth spared. "
    lookups = [MEASURED_SCREENS.get((key, str(rung))) for key in configurations for rung in rungs]
    measured = [counts for counts in lookups if counts is not None]
    if len(measured) < len(lookups) or not lookups:
        alone = len(lookups) == 1
        missing = "it was not measured for this spec and recipe" if alone else "not all was measured"
        return f"{rule}What it kills, its spared ones say alone: {missing}"
    grokked, n = map(sum, zip(*measured, strict=True))
    return f"{rule}Measured before: of {n:,} seeds that it called and that ran on {grokked:,} grokked"


@dataclass(frozen=True)
class Cost:
    """Training that grokked seeds cost, that of all counted seeds included. Units: seed-steps, core-seconds."""

    grokked: int
    seed_steps: int
    core_s: float | None
    """None unless the C++ engine trained every seed."""

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        """Add up ledger rows."""
        rows = [r for r in rows if r["outcome"] in COUNTED]
        seconds = [r.get("core_s") for r in rows]
        return cls(
            grokked=sum(r["outcome"] == Outcome.GROKKED for r in rows),
            seed_steps=sum(r["steps"] for r in rows),
            core_s=None if None in seconds or not seconds else sum(s for s in seconds if s is not None),
        )

    @property
    def per_million(self) -> float:
        """Grokked seeds per million seed-steps."""
        return 1e6 * self.grokked / self.seed_steps if self.seed_steps else 0.0

    @property
    def each(self) -> float | None:
        """Core-seconds per grokked seed; None if unknown or none grokked."""
        return self.core_s / self.grokked if self.core_s is not None and self.grokked else None

    def __str__(self) -> str:
        if not self.grokked:
            return f"none grokked in {self.seed_steps:,} seed-steps (steps of all seeds together)"
        text = f"{self.per_million:.3g} grokked per million seed-steps"
        return text if self.each is None else f"{text}; each cost {self.each:,.0f} core-seconds here"


# Summaries


def unended_warning(rows: Iterable[Row]) -> str:
    """Return how unended seeds bias a rate; empty if all seeds have ended, or none has."""
    outcomes = [r["outcome"] for r in rows if r["reason"] != ENOUGH]
    unended = sum(o not in COUNTED for o in outcomes)
    if unended in (0, len(outcomes)):
        return ""
    return (
        f"{unended:,} of {len(outcomes):,} seeds have not ended. The first to end are given up or grok early: "
        "until the rest has ended, rates and intervals are biased"
    )


def rank(row: Row) -> tuple[Any, ...]:
    """Return a sorting key of rows, best first: grokked and not refuted, proved, held, grokked early, then the highest
    exact match.
    """
    grokked = row["outcome"] == Outcome.GROKKED
    exact, token = (row[name] or 0.0 for name in ("best_exact", "best_token"))
    proved = {True: 0, None: 1, False: 2}[is_right(row.get("proof"))]
    return (not grokked, proved, not row["held"], row["grok_step"] or 0, -exact, -token)


def proof_counts(rows: Iterable[Row]) -> dict[str, int]:
    """Return how many grokked rows are right on all pairs, on how many there is a verdict, and on how many a claim."""
    recorded = [row["proof"] for row in rows if row["outcome"] == Outcome.GROKKED and row.get("proof")]
    verdicts = [v for v in recorded if "claimed" not in v]
    proved = sum(is_right(v) is True for v in verdicts)
    return {"proved": proved, "prove_tried": len(verdicts), "proofs_claimed": len(recorded) - len(verdicts)}


def final_metrics(
    rows: Sequence[Row], until: Until | None = None, evidence: StudyEvidence | None = None
) -> dict[str, float]:
    """Return the counts and rates of a configuration's rows, by the names that follow `final.` in MLflow."""
    rate, cost = GrokRate.of(rows, until, evidence=evidence), Cost.of(rows)
    fresh = [r for r in rows if r["confirmation"]]
    confirmation = GrokRate.of(fresh, evidence=evidence)
    low, high = confirmation.interval
    apart = {"confirmation_rate": confirmation.rate, "confirmation_low": low, "confirmation_high": high}
    counts = Counter(r["outcome"] for r in rows)
    grok_steps = [r["grok_step"] for r in rows if r["outcome"] == Outcome.GROKKED]
    metrics = {
        **_common(rows, cost),
        "grok_rate": rate.rate, "grok_rate_low": rate.interval[0], "grok_rate_high": rate.interval[1],
        "seeds": rate.n, "stopped": float(rate.stopped), "wrongly": rate.missed,
        "screened_wrongly": missed_by(Outcome.SCREENED, rows, evidence), **(apart if confirmation.n else {}),
        "ranked_by": 1 + low if confirmation.n else rate.interval[0],  # the confirmed ones go first
        "confirmation_grokked": confirmation.grokked, "confirmation_seeds": confirmation.n,
        "confirmation_given_up": confirmation.given_up, "confirmation_wrongly": confirmation.missed,
        **{o.value: counts[o] for o in (*COUNTED, Outcome.CENSORED)},
    }  # fmt: skip
    if grok_steps:
        metrics["median_grok_step"] = float(median(grok_steps))
    return metrics | ({"core_s_per_grokked": cost.each} if cost.each is not None else {})


def _common(rows: Sequence[Row], cost: Cost) -> Row:
    """Return what the metrics of a configuration and the summary of a study both have."""
    given_up, screened = (StoppingCounts.of(rows, rule) for rule in RULE_COLUMNS)
    return {
        "held": sum(bool(r["held"]) for r in rows),
        "best_exact": max((r["best_exact"] or 0.0 for r in rows), default=0.0),
        "spared": given_up.spared,
        "spared_grokked": given_up.spared_grokked,
        "screen_spared": screened.spared,
        "screen_spared_grokked": screened.spared_grokked,
        "seed_steps": cost.seed_steps,
        "grokked_per_million": cost.per_million,
    }


def overview(rows: Iterable[Row], until: Mapping[str, Until | None] | None = None) -> list[Row]:
    """Return a summary of each study (`summarise`). until: by study, where its configurations stop."""
    targets = until or {}
    by_study = group_by(rows, "study")
    return [{"study": name, **summarise(group, targets.get(name))} for name, group in by_study.items()]


def summarise(rows: Sequence[Row], until: Until | None = None) -> Row:
    """Return counts of some rows, and the grok rate where they are of one configuration.

    The rates of several configurations, chosen by earlier results, are not pooled. With `until` the rate is
    the search's alone, as the confirmation does not stop.
    """
    configurations = len({r["configuration"] for r in rows})
    single = configurations == 1
    searched = [r for r in rows if not (until and r["confirmation"])]
    rate, cost = GrokRate.of(searched, until if single else None, bounded=single), Cost.of(rows)
    counts = Counter(r["outcome"] for r in rows)
    over = f"{rate.grokked} of {rate.n} grokked over {configurations} configurations"
    return {
        "configurations": configurations,
        "trials": len({r["trial"] for r in rows}),
        "seeds": len(rows),
        "states": {o.value: counts[o] for o in Outcome if counts[o]},
        "grokked": rate.grokked,
        "counted": rate.n,
        "grok_rate": rate.rate if single else None,
        "interval": list(rate.interval) if single else None,
        "stopped": rate.stopped,
        "said": over if rate.n and not single else str(rate),
        "given_up": counts[Outcome.GIVEN_UP],
        "screened": counts[Outcome.SCREENED],
        **_common(rows, cost),
        "best_exact": max((r["best_exact"] for r in rows if r["best_exact"] is not None), default=None),
        "core_s_per_grokked": cost.each,
        "verify_calls": sum(r["verify_calls"] for r in rows),
        "unended": unended_warning(rows),
    }


def step_metrics(step: int, rows: Sequence[Row]) -> dict[str, float]:
    """Return a configuration's metrics at a training step, as MLflow has them.

    rows: exact, token, loss, grok_step and probes of its first seeds. A probe's metric is its mean over seeds.
    """
    finite = [r for r in rows if isfinite(r["loss"])] or rows  # a diverged seed has no median
    grokked = [r["grok_step"] is not None and r["grok_step"] <= step for r in rows]
    probes = [name for name in rows[0] if name.startswith(PROBE)]
    readings = {name: [r[name] for r in rows if isfinite(r.get(name, nan))] for name in probes}
    values = {
        "grok_rate": sum(grokked) / len(rows),
        "best_exact": max(r["exact"] for r in finite),
        "median_exact": median(r["exact"] for r in finite),
        "median_token": median(r["token"] for r in finite),
        "loss": median(r["loss"] for r in finite),
        **{name: fmean(values) for name, values in readings.items() if values},
    }
    return {f"{FIRST_SEEDS}.{name}": value for name, value in values.items()}


def pareto(sizes: Sequence[int], scores: Sequence[float]) -> list[bool]:
    """Return which points are on the Pareto front, small sizes and high scores being better.

    A point is on it if no other is as small and scores as high, one of them strictly better. Equal points are
    on it together.
    """
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i], -scores[i]))
    on_front = [False] * len(sizes)
    best: tuple[float, float] = (float("-inf"), float("inf"))  # highest score so far, and its size
    for i in order:
        if scores[i] > best[0]:
            best = (scores[i], sizes[i])
        on_front[i] = (scores[i], sizes[i]) == best
    return on_front
