"""The state of a running study: what is recorded of each configuration, and which of its seeds are planned."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from search.run.allocation import ConfigurationScore, objective
from search.stats.counting import COUNTED, GrokRate
from search.stats.record import SeedKey, SeedRecord
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import Outcome, Seed


class Round(NamedTuple):
    """Seeds of a configuration to train next, for the search or to confirm it."""

    configuration: Configuration
    seeds: Sequence[Seed]
    confirmation: bool = False


@dataclass(eq=False)
class PlannedPair:
    """A configuration and a seed that is to be trained, or is in training."""

    configuration: Configuration
    seed: Seed
    confirmation: bool = False
    failures: int = 0
    """How often a worker has failed that had it."""
    step: int = 0
    """As it was reported last."""
    has_grokked: bool = False
    """True once it was perfect: it trains on, to see if it holds."""

    @property
    def key(self) -> SeedKey:
        return self.configuration.key, self.seed.init_seed, self.seed.data_seed


@dataclass
class ConfigurationState:
    """One configuration of a running study."""

    configuration: Configuration
    rows: dict[Seed, SeedRecord]
    number: int
    """Its place among all, in the order in which they were planned."""
    pending: dict[Seed, bool] = field(default_factory=dict)
    """Seeds that wait or are in training -> True if they confirm."""
    cancelled: dict[Seed, None] = field(default_factory=dict)
    """Seeds that are not trained because there is enough, in order."""
    rounds_enqueued: int = 0
    is_confirming: bool = False
    """True once its confirmation was enqueued in this run: one that fails is not tried for ever."""
    is_reported: bool = True
    """False from a cancellation until the configuration is returned as complete."""

    @property
    def key(self) -> str:
        return self.configuration.key

    @property
    def is_complete(self) -> bool:
        """True if no seed is planned or in training."""
        return not self.pending

    @property
    def search_rows(self) -> list[SeedRecord]:
        return [r for r in self.rows.values() if not r.confirmation]

    def untrained(self, seeds: Iterable[Seed]) -> list[Seed]:
        """Return the seeds that are neither recorded as final nor pending."""
        return [s for s in seeds if s not in self.pending and not self.is_final(s)]

    def is_final(self, seed: Seed) -> bool:
        return seed in self.rows and self.rows[seed].is_final

    def cancel(self, seed: Seed) -> None:
        """Note that a seed is not trained because there is enough."""
        self.pending.pop(seed, None)
        self.cancelled[seed] = None
        self.is_reported = False

    def score(self, objective_name: str) -> ConfigurationScore:
        """Return what the search has shown of it. The confirmation's seeds are not looked at."""
        rows = [r for r in self.search_rows if r.is_final]
        outcomes = Counter(r.outcome for r in rows)  # seeds that a rule ended count as failures here
        rate = GrokRate(outcomes[Outcome.GROKKED], len(rows))
        ranked = objective(rows, self.configuration.recipe, objective_name)
        return ConfigurationScore(rate, self.configuration.spec.params, ranked)


class StudyRun:
    """The states of a study's configurations. The planner changes them, policies read them.

    rows: the ledger's. numbered: keys of configurations in the order in which earlier runs planned them.
    """

    def __init__(self, study: Study, rows: Iterable[SeedRecord], numbered: Iterable[str] = ()):
        self.study = study
        self.is_search = study.kind.proposes
        self.seed_rounds = study.rounds
        self.states: dict[str, ConfigurationState] = {}
        self.numbers = {key: number for number, key in enumerate(numbered)}
        """Places of configurations among all that were planned, by key."""
        self._rows: dict[str, dict[Seed, SeedRecord]] = {}
        self._recorded: Counter[str] = Counter()
        """Grokked seeds of the search in the ledger, by configuration's key."""
        self._reported: Counter[str] = Counter()
        """Those that workers report and the ledger has not: they were perfect, and may be lost with their worker."""
        self.longest = max((recipe.steps for _, recipe in study.listed), default=study.base_recipe.steps)
        """Longest budget of a seed; unit: steps."""
        self.ended: dict[str, Counter[str]] = {}
        """Seeds of the search and of the confirmation that have ended, by configuration's key, by outcome."""
        self.searched: dict[str, Counter[str]] = {}
        """Those of the search alone."""
        self.spent: Counter[int] = Counter()
        """Seeds that have ended, by the percentage of their budgets that they trained."""
        self.record(rows)

    def add(self, configuration: Configuration) -> ConfigurationState:
        """Return the state of a configuration, made from its recorded rows if it is new."""
        key = configuration.key
        if key not in self.states:
            number = self.numbers.setdefault(key, len(self.numbers))
            self.states[key] = ConfigurationState(configuration, self._rows.setdefault(key, {}), number)
        return self.states[key]

    def record(self, rows: Iterable[SeedRecord]) -> None:
        """Take rows of the ledger, each in place of an earlier one of its seed."""
        for row in rows:
            recorded = self._rows.setdefault(row.configuration, {})
            if row.seed in recorded:
                self._count(recorded[row.seed], -1)
            recorded[row.seed] = row
            self._count(row, 1)

    def _count(self, row: SeedRecord, by: int) -> None:
        key = row.configuration
        if row.has_grokked and not row.confirmation:
            self._recorded[key] += by

        if row.outcome in COUNTED:
            self.ended.setdefault(key, Counter())[row.outcome] += by
            if not row.confirmation:
                self.searched.setdefault(key, Counter())[row.outcome] += by
            budget = self.states[key].configuration.recipe.steps if key in self.states else self.longest
            most = max(budget, row.steps, 1)  # with stages before it a seed may have trained for longer
            self.spent[100 * row.steps // most] += by

    def update(self, pair: PlannedPair, step: int, has_grokked: bool) -> None:
        """Take how far a pair is that trains; one that trains no more has not grokked until that is recorded."""
        pair.step = step
        if not pair.confirmation:
            self._reported[pair.configuration.key] += has_grokked - pair.has_grokked
        pair.has_grokked = has_grokked

    @property
    def grokked(self) -> int:
        return self._recorded.total() + self._reported.total()

    @property
    def enough(self) -> bool:
        """True if a search has as many grokked seeds as `until` asks for; it ends as a whole."""
        wanted = self.study.until.grokked
        return wanted is not None and self.grokked >= wanted

    def has_enough(self, configuration: Configuration) -> bool:
        """True if `until` asks for no more seeds of a configuration; in a search, of any."""
        wanted = self.study.until.grokked
        if wanted is None or self.is_search:
            return self.enough
        return self._recorded[configuration.key] + self._reported[configuration.key] >= wanted

    def first_round(self, state: ConfigurationState) -> Round | None:
        """Return the first round of a configuration, or a later one if that is trained."""
        state.rounds_enqueued = 1
        listed = (state.configuration.spec, state.configuration.recipe)
        seeds = state.untrained(self.study.kind.seeds_of(listed))
        if seeds and not self.has_enough(state.configuration):
            return Round(state.configuration, seeds)
        return self.following_round(state) if state.is_complete else None

    def following_round(self, state: ConfigurationState) -> Round | None:
        """Return the next round of a configuration that has something left to train, if `until` asks for it.

        Cancelled seeds come first: the seeds that gave enough may be lost with a worker that only reported them.
        """
        if self.study.until.grokked is None or self.has_enough(state.configuration):
            return None

        cancelled, state.cancelled = list(state.cancelled), {}
        if seeds := state.untrained(cancelled):
            return Round(state.configuration, seeds)
        return self.further_round(state)

    def further_round(self, state: ConfigurationState) -> Round | None:
        """Return the next of the file's rounds in which a configuration has something left to train."""
        while state.rounds_enqueued < len(self.seed_rounds):
            state.rounds_enqueued += 1
            if seeds := state.untrained(self.seed_rounds[state.rounds_enqueued - 1]):
                return Round(state.configuration, seeds)
        return None

    def scores(self) -> dict[str, ConfigurationScore]:
        """Return what the search has shown of each configuration, by key."""
        sought = self.study.kind.sought
        return {key: state.score(sought) for key, state in self.states.items()}
