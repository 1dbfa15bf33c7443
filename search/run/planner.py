"""What to train next: the plan of a study as a source of trials that is told what became of them.

A sweep has configurations that the file lists, a search asks Optuna for its own. Either way a configuration
gets a first round of seeds; further rounds go to those that the study's `until` or `allocation` says, and at
the end its `confirm` has the best trained once more on fresh seeds. Nobody waits for a round to end: who asks
for work gets of the next one, and what turns out not to be needed is not trained.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from search.run.allocation import Standing, deserving, leaders, objective, successes
from search.run.packing import Capacity, can_follow, pack, trial_size
from search.run.tally import TrialReport
from search.stats.counting import GrokRate, seed_of
from search.store.ledger import Row, is_final
from search.study.sampler import GROK_RATE
from search.study.schema import Study
from search.study.seeds import seed_list
from search.study.trial import Configuration, Program, Trial
from trainer import Outcome, Seed

if TYPE_CHECKING:  # a list of configurations needs no Optuna
    from search.compress.beam import Beam
    from search.run.proposals import Proposals

DONE = "DONE"
Done = str
KEPT = ("outcome", "confirmation", "grok_step", "best_token", "steps", "reached")
Round = tuple[Configuration, list[Seed], bool]
"""A configuration, seeds of it that are to be trained, and whether to confirm it."""


@dataclass(frozen=True)
class Heard:
    """How far a running trial is: seeds that have not ended, and grokked ones by configuration."""

    open: int
    grokked: Counter[str]


class Planner:
    """Trials of one study, in order. `rows` is what the ledger has: final pairs are not trained again.

    `proposals`: a search's. `unfinished`: trials of an earlier run, which go on from their saved states.
    `listed`: what the file lists, where seeds start from a θ (search/tracking/starts.py).
    """

    def __init__(
        self,
        study: Study,
        rows: Sequence[Row],
        proposals: Proposals | Beam | None = None,
        unfinished: Sequence[Trial] = (),
        listed: Sequence[Configuration] | None = None,
    ):
        assert study.proposes == (proposals is not None)
        self.study, self.proposals = study, proposals
        self.listed = [Configuration(*c) for c in study.listed()] if listed is None else list(listed)
        self.fits = Capacity()  # the driver sets it before it asks for the first trial
        self.rows: dict[str, dict[Seed, Row]] = {}
        self.won: dict[str, set[Seed]] = {}
        """Seeds of the search that have grokked, by configuration."""
        self._take(rows)
        self.unpacked: list[Round] = []  # of which `fits` says how many slots they have
        self.unfinished = {id(t): t for t in unfinished}  # by its key: a digest of all that waits, each time
        self.sizes: dict[tuple[Program, Capacity], tuple[int, int]] = {}
        self.cancelled: dict[Configuration, dict[Seed, None]] = {}
        """Seeds that were not trained because their configuration has enough, in order."""
        self.to_conclude: dict[Configuration, None] = {}
        """Configurations with cancelled seeds that were not returned as complete since."""
        self.running: dict[str, Trial] = {}
        self.heard: dict[str, Heard] = {}
        self.known: dict[str, Configuration] = {}
        needed = (t for t in unfinished if t.confirmation or not all(map(self.has_enough, t.configurations)))
        self.queue: deque[Trial] = deque(needed)
        """What waits: trials of an earlier run as they were, and others that are cut when they start."""
        self.rounds: dict[str, Iterator[list[Seed]]] = {}
        self.begun: Counter[str] = Counter()
        """How many further rounds of a configuration `until` has asked for."""
        self.confirming: set[str] = set()  # once a run: a trial that fails is not tried for ever
        self.ended_before: list[Configuration] = []  # had nothing left to train when they were begun
        interrupted = [c for t in unfinished for c in t.configurations]
        for configuration in dict.fromkeys([*self._given(), *interrupted]):
            self._begin(configuration)

    def next(self, after: Trial | None = None) -> Trial | Done | None:
        """The next trial to start, None while the running ones decide, or DONE.

        after: one that is to follow this trial in its bank. None, too, if those that wait need a bank of
        their own: what else could follow is not planned before them.
        """
        while (trial := self._waiting(after)) is None:
            if self.queue or not self._plan():
                return None if self.queue or self.running else DONE
            self._pack()
        started = self._cut(trial, after)
        self.running[started.key] = started
        return started

    def _cut(self, waiting: Trial, after: Trial | None) -> Trial:
        """Take a trial off what waits: towards the end a share of what is left, so that cores end together.

        That is guided self-scheduling (Polychronopoulos and Kuck, IEEE Transactions on Computers C-36, 1987).
        A worker that begins gets its slots full, unless that leaves less for the others.
        """
        place, work, cores = self.queue.index(waiting), waiting.work, self.fits.concurrent
        del self.queue[place]
        if id(waiting) in self.unfinished:
            return waiting
        size, slots = self._size(work[0][0].program)
        if cores > 1 and (waiting.confirmation or self._is_last):
            left = len(work) + sum(len(t.work) for t in self.queue)
            least, open_ = slots // 8, len(work) + self._open_pairs()
            if after is None:
                least = max(-(-open_ // (2 * cores)), min(slots, -(-open_ // cores)))
            size = min(size, max(-(-left // (2 * cores)), least))
        if self.study.stop.ranks and not waiting.confirmation:  # whoever is ranked together trains together
            size = -(-size // self.study.stop.group) * self.study.stop.group
        if size < len(work):
            self.queue.insert(place, replace(waiting, work=work[size:]))
        return replace(waiting, work=work[:size])

    def _size(self, program: Program) -> tuple[int, int]:
        if (program, self.fits) not in self.sizes:
            self.sizes[program, self.fits] = trial_size(self.study, program, self.fits)
        return self.sizes[program, self.fits]

    def _waiting(self, after: Trial | None) -> Trial | None:
        return next((t for t in self.queue if after is None or can_follow(t, after)), None)

    def hear(self, trial: Trial, tally: TrialReport) -> None:
        """Take how far a running trial's seeds are.

        A seed has grokked as soon as it was perfect once; what is left of it is to see whether it holds.
        """
        grokked = Counter(tally.grokked)
        self.heard[trial.key] = Heard(tally.open, Counter() if trial.confirmation else grokked)
        if grokked:
            self._cancel_satisfied()

    def requeue(self, trial: Trial) -> None:
        """Put a trial that no worker has begun back in front of the queue."""
        del self.running[trial.key]
        self.queue.appendleft(trial)
        self._cancel_satisfied()

    def complete_trial(self, trial: Trial, rows: Sequence[Row]) -> list[Configuration]:
        """Take a trial's outcomes and enqueue what follows. Returns the configurations that are complete."""
        self.running.pop(trial.key, None)
        self.heard.pop(trial.key, None)
        self._take(rows)
        self._cancel_satisfied()
        self._note_cut(trial)
        for configuration in dict.fromkeys([*trial.configurations, *self.cancelled]):
            if not self._is_in_flight(configuration):
                self.enqueue_next_round(configuration)
        touched = dict.fromkeys([*trial.configurations, *(c for c in self.to_conclude if c.key in self.rows)])
        complete = [c for c in touched if self.is_complete(c)]
        for configuration in complete:
            self.to_conclude.pop(configuration, None)
            self.report_to_sampler(configuration)
        return complete

    def is_complete(self, configuration: Configuration) -> bool:
        """True if no seed of a configuration is planned or in training."""
        return not self._is_in_flight(configuration)

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
    def planned(self) -> int:
        """Pairs that are in no trial yet that runs."""
        return sum(len(t.work) for t in self.queue) + sum(len(seeds) for _, seeds, _ in self.unpacked)

    @property
    def grokked(self) -> int:
        """Seeds of the search that have grokked, in running trials too; the confirmation's do not count."""
        return sum(map(self._grokked, {*self.rows, *self.known}))

    @property
    def enough(self) -> bool:
        """Whether a search has as many grokked seeds as it asked for; it ends as a whole."""
        wanted = self.study.until.grokked
        return wanted is not None and self.grokked >= wanted

    def has_enough(self, configuration: Configuration) -> bool:
        """Whether `until` asks for no more seeds of a configuration: of a search, none of any."""
        wanted = self.study.until.grokked
        if wanted is None or self.proposals:
            return self.enough
        return self._grokked(configuration.key) >= wanted

    @property
    def in_flight(self) -> list[Configuration]:
        """The configurations of which seeds are planned or in training."""
        return [c for c in self.known.values() if self._is_in_flight(c)]

    def rows_of(self, key: str) -> list[Row]:
        return list(self.rows.get(key, {}).values())

    def standings(self) -> dict[str, Standing]:
        """What the search has shown of each configuration; the confirmation's seeds are not looked at."""
        found, wanted = {}, self.study.sampler.sought if self.study.space else GROK_RATE
        for key, configuration in self.known.items():
            rows = [r for r in self.rows_of(key) if is_final(r) and not r["confirmation"]]
            ranked = objective(rows, configuration.recipe, wanted)
            outcomes = Counter(r["outcome"] for r in rows)  # seeds that a rule ended count as failures here
            rate = GrokRate(outcomes[Outcome.GROKKED], len(rows), outcomes[Outcome.GIVEN_UP])
            found[key] = Standing(rate, configuration.spec.params, ranked, successes(rows, wanted))
        return found

    def _given(self) -> list[Configuration]:
        """Return what there is to begin with: the file's list, or all that was proposed."""
        return self.listed if self.proposals is None else self.proposals.known()

    def _take(self, rows: Sequence[Row]) -> None:
        """Keep of the ledger's rows what a plan needs: whole ones would fill memory."""
        for r in rows:
            kept = {name: r[name] for name in KEPT if name in r}
            self.rows.setdefault(r["configuration"], {})[seed := seed_of(r)] = kept
            if r["outcome"] == Outcome.GROKKED and not r["confirmation"]:
                self.won.setdefault(r["configuration"], set()).add(seed)

    def _grokked(self, key: str) -> int:
        """What `until` counts: seeds of the search, of running trials too, and not the confirmation's."""
        return len(self.won.get(key, ())) + sum(heard.grokked[key] for heard in self.heard.values())

    def _cancel_satisfied(self) -> None:
        """Take seeds that wait out of the plan if their configuration has enough."""
        if self.study.until.grokked is None:
            return
        satisfied = {c for c in self.known.values() if self.has_enough(c)}
        waiting, self.queue = self.queue, deque()
        for trial in waiting:
            needed = tuple(pair for pair in trial.work if trial.confirmation or pair[0] not in satisfied)
            if needed and id(trial) in self.unfinished:
                needed = trial.work
            if needed:
                self.queue.append(trial if needed == trial.work else replace(trial, work=needed))
            if needed != trial.work:
                self._note_cancelled(pair for pair in trial.work if pair[0] in satisfied)
        for configuration, seeds, is_confirmation in self.unpacked:
            if configuration in satisfied and not is_confirmation:
                self._note_cancelled((configuration, seed) for seed in seeds)
        self.unpacked = [r for r in self.unpacked if r[2] or r[0] not in satisfied]

    def _note_cancelled(self, work: Iterable[tuple[Configuration, Seed]]) -> None:
        for configuration, seed in work:
            self.cancelled.setdefault(configuration, {})[seed] = None
            self.to_conclude[configuration] = None

    def _note_cut(self, trial: Trial) -> None:
        """Note the seeds of a trial that its worker ended early because their configuration has enough."""
        for configuration, seed in () if trial.confirmation else trial.work:
            row = self.rows.get(configuration.key, {}).get(seed)
            if self.has_enough(configuration) and not (row and is_final(row)):
                self._note_cancelled([(configuration, seed)])

    def _begin(self, configuration: Configuration) -> None:
        key = configuration.key
        self.known[key], self.rounds[key] = configuration, self.study.rounds()
        first = next(self.rounds[key])
        if not self.has_enough(configuration) and self._put(configuration, first):
            return
        if not self._is_in_flight(configuration):
            self.enqueue_next_round(configuration)
        if self.is_complete(configuration):
            self.report_to_sampler(configuration)
            self.ended_before.append(configuration)

    def report_to_sampler(self, configuration: Configuration) -> None:
        """Report the seeds of a proposal whose first round was trained; one that was cut short stays open."""
        rows = self.rows.get(configuration.key, {})
        if self.proposals and set(self.study.first_seeds()) <= rows.keys():
            searched = [r for r in self.rows_of(configuration.key) if not r["confirmation"]]
            self.proposals.tell(configuration, searched)

    def enqueue_next_round(self, configuration: Configuration) -> bool:
        """Enqueue the next round that has something left to train, while `until` asks for more.

        Seeds that were cancelled come first. The seeds that gave enough may be lost with a worker that only
        reported them.
        """
        key = configuration.key
        while self.study.until.grokked is not None and not self.has_enough(configuration):
            if cancelled := self.cancelled.pop(configuration, None):
                if self._put(configuration, list(cancelled)):
                    return True
                continue
            if (seeds := next(self.rounds[key], None)) is None:
                return False
            self.begun[key] += 1
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
        """Put down more rounds, at least one and enough for the trials that fit. False if there is none."""
        for source in (self._ask, self._allocate, self._ahead, self._confirm):
            while source() and not self._is_full():
                pass
            if self.unpacked:
                return True
        return False

    def _ahead(self) -> bool:
        """Put down the next round of a sweep's configuration, the one before being in training."""
        if self.proposals:  # whose slots other proposals fill
            return False
        return any(map(self.enqueue_next_round, sorted(self.known.values(), key=lambda c: self.begun[c.key])))

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
        elif self.is_complete(configuration):  # a repeated proposal shares the result
            self.report_to_sampler(configuration)
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
        standings, seeds = self.standings(), seed_list(self.study.confirm.seeds)
        front = len({s.params for s in standings.values()}) > 1  # of equals, the front would be one alone
        keys = set(leaders(standings, self.study.confirm.configurations, front)) - self.confirming
        trained = {k: {s for s, r in self.rows.get(k, {}).items() if is_final(r)} for k in keys}
        return [(self.known[k], seeds) for k in sorted(keys) if not trained[k].issuperset(seeds)]

    def _pack(self) -> None:
        """Put together what of the rounds that wait can share banks."""
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
        return self._open_pairs() >= 2 * slots * self.fits.concurrent

    def _open_pairs(self) -> int:
        """Pairs that are planned or in training."""
        return self.planned + self.open_in(self.running.values())

    def open_in(self, trials: Iterable[Trial]) -> int:
        """Pairs of running trials that have not ended, as far as was heard."""
        return sum(self.heard[t.key].open if t.key in self.heard else len(t.work) for t in trials)

    @property
    def _is_last(self) -> bool:
        """Whether nothing follows the search's trials that are planned."""
        return not (self._is_asking or self.study.until.grokked or self.study.allocation)
