"""What to train next: the plan of a study as a source of trials that is told what became of them.

A sweep has configurations that the file lists, a search asks Optuna for its own. Either way a configuration
gets a first round of seeds; further rounds go to those that the study's `until` or `allocation` says, and at
the end its `confirm` has the best trained once more on fresh seeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from search.run.allocation import Standing, deserving, leaders, objective
from search.run.packing import Fits, pack
from search.store.home import Home
from search.store.ledger import Row, is_final
from search.store.stats import GrokRate, seed_of
from search.study.schema import Study, numbered
from search.study.trial import Configuration, Trial
from trainer import Outcome, Seed

if TYPE_CHECKING:  # a list of configurations needs no Optuna
    from search.run.proposals import Proposals

DONE = "DONE"
Done = str
Round = tuple[Configuration, list[Seed], bool]
"""A configuration, seeds of it that are to be trained, and whether to confirm it."""


class Planner:
    """Trials of one study, in order. `rows` is what the ledger has: final pairs are not trained again.

    `proposals`: a search's. `unfinished`: trials of an earlier run, which go on from their saved states.
    """

    def __init__(
        self,
        study: Study,
        rows: Sequence[Row],
        proposals: Proposals | None = None,
        unfinished: Sequence[Trial] = (),
    ):
        assert bool(study.space) == (proposals is not None)
        self.study, self.proposals = study, proposals
        self.fits = Fits()  # the driver sets it before it asks for the first trial
        self.rows: dict[str, dict[Seed, Row]] = {}
        self._take(rows)
        self.unpacked: list[Round] = []  # which `fits` says how to cut
        self.queue: deque[Trial] = deque(unfinished)
        self.running: dict[str, Trial] = {}
        self.known: dict[str, Configuration] = {}
        self.rounds: dict[str, Iterator[list[Seed]]] = {}
        self.confirming: set[str] = set()  # once a run: a trial that fails is not tried for ever
        self.ended_before: list[Configuration] = []  # had nothing left to train when they were begun
        interrupted = [c for t in unfinished for c in t.configurations]
        for configuration in dict.fromkeys([*self._given(), *interrupted]):
            self._begin(configuration)

    def next(self) -> Trial | Done | None:
        """The next trial to start, None while the running ones decide, or DONE."""
        while not self.queue:
            if not self._plan():
                return None if self.running else DONE
            self._pack()
        trial = self.queue.popleft()
        self.running[trial.key] = trial
        return trial

    def tell(self, trial: Trial, rows: Sequence[Row]) -> list[Configuration]:
        """Take a trial's outcomes. Returns the configurations that have ended with it, for now."""
        self.running.pop(trial.key, None)
        self._take(rows)
        return [c for c in trial.configurations if self._has_ended(c)]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to train."""
        if self.unpacked or self.queue or self.running:
            return False
        return not (self._is_asking or self._deserving() or self._unconfirmed())

    @property
    def queued_steps(self) -> int:
        """The budgets of all seeds that are planned and in no trial yet that runs; unit: seed-steps."""
        trials = sum(c.recipe.steps for t in self.queue for c, _ in t.work)
        return trials + sum(c.recipe.steps * len(seeds) for c, seeds, _ in self.unpacked)

    @property
    def grokked(self) -> int:
        return sum(self._grokked(key) for key in self.rows)

    @property
    def enough(self) -> bool:
        """Whether a search has as many grokked seeds as it asked for; it ends as a whole."""
        wanted = self.study.until.grokked
        return wanted is not None and self.grokked >= wanted

    @property
    def in_flight(self) -> list[Configuration]:
        """The configurations of which seeds are planned or in training."""
        return [c for c in self.known.values() if self._is_in_flight(c)]

    def rows_of(self, key: str) -> list[Row]:
        return list(self.rows.get(key, {}).values())

    def standings(self) -> dict[str, Standing]:
        """What the search has shown of each configuration; the confirmation's seeds are not looked at."""
        found = {}
        for key, configuration in self.known.items():
            rows = [r for r in self.rows_of(key) if is_final(r) and not r["confirmation"]]
            rate = GrokRate.of(r["outcome"] for r in rows)
            ranked = objective(rows, configuration.recipe)
            found[key] = Standing(rate, configuration.spec.params, ranked)
        return found

    def _given(self) -> list[Configuration]:
        """What there is to begin with: the file's list, or what was proposed; told, if there is enough."""
        if self.proposals is None:
            return [Configuration(*c) for c in self.study.listed()]
        return self.proposals.told() if self.enough else self.proposals.known()

    def _take(self, rows: Sequence[Row]) -> None:
        for r in rows:
            self.rows.setdefault(r["configuration"], {})[seed_of(r)] = r

    def _grokked(self, key: str) -> int:
        """What `until` counts: the seeds of the search, and not those of the confirmation."""
        return sum(r["outcome"] == Outcome.GROKKED and not r["confirmation"] for r in self.rows_of(key))

    def _begin(self, configuration: Configuration) -> None:
        key = configuration.key
        self.known[key], self.rounds[key] = configuration, self.study.rounds()
        if not self._put(configuration, next(self.rounds[key])) and self._has_ended(configuration):
            self.ended_before.append(configuration)

    def _has_ended(self, configuration: Configuration) -> bool:
        """Whether nothing more is planned for a configuration. Its proposal, if it was one, is then told."""
        if self._is_in_flight(configuration) or self._goes_on(configuration):
            return False
        if self.proposals:
            searched = [r for r in self.rows_of(configuration.key) if not r["confirmation"]]
            self.proposals.tell(configuration, searched)
        return True

    def _goes_on(self, configuration: Configuration) -> bool:
        """Put down the next round that has something left to train, while `until` asks for more."""
        wanted, key = self.study.until.grokked, configuration.key
        while wanted is not None and not (self.enough if self.proposals else self._grokked(key) >= wanted):
            if (seeds := next(self.rounds[key], None)) is None:
                return False
            if self._put(configuration, seeds):
                return True
        return False

    def _put(self, configuration: Configuration, seeds: Sequence[Seed], confirmation: bool = False) -> bool:
        """Put down what of a round is neither trained nor in a trial already. False if that is nothing."""
        rows = self.rows.get(configuration.key, {})
        taken = {s for t in self._trials() for c, s in t.work if c == configuration}
        left = [s for s in seeds if s not in taken and not (s in rows and is_final(rows[s]))]
        if left:
            self.unpacked.append((configuration, left, confirmation))
        return bool(left)

    def _plan(self) -> bool:
        """Put down more rounds, enough to fill the trials that fit. False if there is nothing to do now."""
        for source in (self._ask, self._allocate, self._confirm):
            while not self._is_full() and source():
                pass
            if self.unpacked:
                return True
        return False

    def _ask(self) -> bool:
        """Begin a proposal, if one is to be had.

        Never more than a quarter of them at one time, beyond one a trial: the sampler is to learn from what
        came before.
        """
        open_ = {c for t in self._trials() for c in t.configurations} | {c for c, _, _ in self.unpacked}
        if not self._is_asking or len(open_) >= max(self.fits.concurrent, self.study.planned // 4):
            return False
        assert self.proposals is not None
        configuration = self.proposals.ask()
        if configuration is None:
            return False
        if configuration.key not in self.known:
            self._begin(configuration)
        else:  # a repeated proposal shares the result
            self._has_ended(configuration)
        return True

    @property
    def _is_asking(self) -> bool:
        return self.proposals is not None and not (self.proposals.exhausted or self.enough)

    def _allocate(self) -> bool:
        """Another round for the most promising of those that deserve one."""
        keys = [] if self._is_asking else self._deserving()
        return any(self._put(self.known[key], seeds) for key in keys for seeds in self.rounds[key])

    def _deserving(self) -> list[str]:
        rule = self.study.allocation
        if rule is None:
            return []
        spent = sum(len(seeds) for _, seeds, _ in self.unpacked) + sum(len(t.work) for t in self._trials())
        spent += sum(s.rate.n for s in self.standings().values())
        if rule.budget is not None and spent + len(self.study.first_seeds()) > rule.budget:
            return []
        ended = {k for k in self.known if all(map(is_final, self.rows_of(k)))}  # no trial of it has failed
        idle = {k for k in ended if not self._is_in_flight(self.known[k])}
        return [k for k in deserving(self.standings(), rule) if k in idle]

    def _confirm(self) -> bool:
        """Begin the confirmation of a leader, once the search has ended."""
        if self._is_asking or any(not t.confirmation for t in self._trials()):
            return False
        for configuration, seeds in self._unconfirmed():
            self.confirming.add(configuration.key)
            if self._put(configuration, seeds, confirmation=True):
                return True
        return False

    def _unconfirmed(self) -> list[tuple[Configuration, list[Seed]]]:
        """The leaders and their fresh seeds, as far as those are not trained. Chosen by the search alone."""
        if self.study.confirm is None:
            return []
        standings, seeds = self.standings(), numbered(self.study.confirm.seeds)
        front = len({s.params for s in standings.values()}) > 1  # of equals, the front would be one alone
        keys = set(leaders(standings, self.study.confirm.configurations, front)) - self.confirming
        trained = {k: {s for s, r in self.rows.get(k, {}).items() if is_final(r)} for k in keys}
        return [(self.known[k], seeds) for k in sorted(keys) if not trained[k].issuperset(seeds)]

    def _pack(self) -> None:
        """Cut the rounds that wait into trials."""
        for confirmation in (False, True):
            work = [(c, seed) for c, seeds, kind in self.unpacked if kind == confirmation for seed in seeds]
            self.queue.extend(pack(self.study, work, self.fits, confirmation))
        self.unpacked.clear()

    def _trials(self) -> list[Trial]:
        return [*self.queue, *self.running.values()]

    def _is_in_flight(self, configuration: Configuration) -> bool:
        """Whether seeds of a configuration are planned or in training."""
        planned = {c for c, _, _ in self.unpacked}
        return configuration in planned or any(configuration in t.configurations for t in self._trials())

    def _is_full(self) -> bool:
        """Whether two seeds are planned for each slot that the machine has."""
        slots, _ = self.study.resources.room(self.fits.on_gpu)
        pairs = sum(len(t.work) for t in self._trials()) + sum(len(seeds) for _, seeds, _ in self.unpacked)
        return pairs >= 2 * slots * self.fits.concurrent


def _described(folder: Path) -> Trial | None:
    """The trial of a folder; None if its description is not there or is none that can be read."""
    try:
        return Trial.read(folder)
    except (OSError, ValueError, TypeError, LookupError):
        return None


def interrupted(study: Study, rows: Sequence[Row], home: Home) -> list[Trial]:
    """Trials that an earlier run left open, with pairs, resources and rules that the study still has."""
    open_ = sorted({r["trial"] for r in rows if not is_final(r)})
    folders = [home.trial(study.name, key) for key in open_]
    trials = [t for t in map(_described, folders) if t is not None]
    holders = {(r["configuration"], seed_of(r)): r["trial"] for r in rows
               if not is_final(r)}  # fmt: skip
    wanted = {Configuration(*c) for c in study.listed()}
    seeds = {s for seeds in study.rounds() for s in seeds}
    seeds |= set(numbered(study.confirm.seeds)) if study.confirm else set()
    going_on = [
        t
        for t in trials
        if (t.resources, t.stop) == (study.resources, study.stop)
        and all(holders.get((c.key, s)) == t.key for c, s in t.work)
        and (study.space or wanted.issuperset(t.configurations))
        and seeds.issuperset(s for _, s in t.work)
    ]
    return sorted(going_on, key=lambda t: [s for _, s in t.work])
