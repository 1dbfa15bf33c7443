"""The plan of a study as a source of trials, which is told what becomes of them.

Policies say the next round of seeds (search/run/policies.py). Rounds that can share a bank are put together
and wait in a queue, from which trials are cut when a worker asks for one. No round waits for the one before:
what turns out not to be needed is not trained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from search.run.packing import Capacity, TrialShapes, can_follow, interrupted
from search.run.policies import Allocation, Confirmation, Policy, Search, Sweep
from search.run.proposer import ProposalSource, proposer_of
from search.run.spared import spared_of
from search.run.study_run import Round, StudyRun
from search.run.tally import TrialReport
from search.stats.counting import Row
from search.store.study_records import StudyRecords
from search.study.schema import Study
from search.study.start import InitialTheta
from search.study.trial import Configuration, Trial
from trainer import Seed

if TYPE_CHECKING:
    from search.run.proposals import Proposals


class Planner:
    """Trials of one study, in order. `rows` is what the ledger has: final pairs are not trained again.

    `proposals`: a search's. `unfinished`: trials of an earlier run, which go on from their saved states.
    `configured`: what the file lists, where seeds start from a θ (search/store/starts.py).
    """

    def __init__(
        self,
        study: Study,
        rows: Sequence[Row],
        proposals: ProposalSource | None = None,
        unfinished: Sequence[Trial] = (),
        configured: Sequence[Configuration] | None = None,
    ):
        assert study.proposes == (proposals is not None)
        self.study, self.study_run, self.shapes = study, StudyRun(study, rows), TrialShapes(study)
        self.capacity = Capacity()  # the driver sets it before it asks for the first trial
        self.search = Search(self.study_run, proposals)
        self.policies: list[Policy] = [
            self.search,
            Allocation(self.study_run, self.search),
            Sweep(self.study_run),
            Confirmation(self.study_run, self.search),
        ]
        self.unassigned: list[Round] = []
        self.queue: deque[Trial] = deque()
        """Waiting trials: those of an earlier run as they were, others are cut when they start."""
        self.unfinished = {id(t): t for t in unfinished}  # a digest as key would cost more
        self.running: dict[str, Trial] = {}
        listed = [Configuration(*c) for c in study.listed] if configured is None else configured
        self._resume(unfinished, proposals.proposed() if proposals else listed)

    def _resume(self, unfinished: Sequence[Trial], configurations: Sequence[Configuration]) -> None:
        for configuration in [*configurations, *(c for t in unfinished for c in t.configurations)]:
            self.study_run.add(configuration)
        for trial in unfinished:
            if trial.confirmation or not all(map(self.study_run.has_enough, trial.configurations)):
                self.queue.append(trial)
                self._note_pending(trial.work, trial.confirmation)
        for state in self.study_run.states.values():
            if first := self.study_run.first_round(state):
                self._enqueue(first)
            elif state.is_complete:
                self.search.report(state)

    # ---- trials for workers

    def next(self, after: Trial | None = None) -> Trial | None:
        """Return the next trial to start, or None while the running ones decide and when all is done.

        after: a trial that the new one is to follow in its bank. None, too, if those that wait need a bank of
        their own: what else could follow is not planned before them.
        """
        while (waiting := self._waiting(after)) is None:
            if self.queue or not self._plan():
                return None
            self._pack()
        trial = self._cut(waiting, after)
        self.running[trial.key] = trial
        return trial

    @property
    def is_done(self) -> bool:
        if self.unassigned or self.queue or self.running:
            return False
        return not any(policy.has_more() for policy in self.policies)

    def requeue(self, trial: Trial) -> None:
        """Put a trial that no worker has begun back in front of the queue."""
        del self.running[trial.key]
        self.queue.appendleft(trial)
        self._cancel_satisfied()

    def update_progress(self, trial: Trial, report: TrialReport) -> None:
        """Take the progress of a running trial's seeds.

        A seed has grokked as soon as it was perfect once. The rest of its training shows if it holds.
        """
        self.study_run.update_progress(trial, report)
        if report.grokked:
            self._cancel_satisfied()

    def complete_trial(self, trial: Trial, rows: Sequence[Row]) -> list[Configuration]:
        """Take a trial's outcomes and enqueue what follows. Return the configurations of which nothing more trains."""
        self.running.pop(trial.key, None)
        self.study_run.update_progress(trial, None)
        self.study_run.record(rows)
        own = {c.key: self.study_run.add(c) for c in trial.configurations}
        for configuration, seed in trial.work:
            own[configuration.key].pending.pop(seed, None)
        self._cancel_satisfied()  # these outcomes may make seeds of other configurations needless
        self._note_cut(trial)
        open_ = own | {key: s for key, s in self.study_run.states.items() if s.cancelled or not s.is_reported}
        for state in open_.values():
            if state.is_complete and (following := self.study_run.following_round(state)):
                self._enqueue(following)  # there is not enough after all
        begun = (s for key, s in open_.items() if key in own or (s.rows and not s.is_reported))
        ended = [s for s in begun if s.is_complete]
        for state in ended:
            state.is_reported = True
            self.search.report(state)
        return [s.configuration for s in ended]

    # ---- what is left

    @property
    def in_flight(self) -> list[Configuration]:
        """Configurations with seeds that are planned or in training."""
        return [s.configuration for s in self.study_run.states.values() if s.pending]

    @property
    def queued_steps(self) -> int:
        """Budgets of all seeds that are planned and in no running trial; unit: seed-steps."""
        trials = sum(c.recipe.steps for t in self.queue for c, _ in t.work)
        return trials + sum(r.configuration.recipe.steps * len(r.seeds) for r in self.unassigned)

    @property
    def queued_seeds(self) -> int:
        """Number of seeds that are planned and in no running trial."""
        return sum(len(t.work) for t in self.queue) + sum(len(r.seeds) for r in self.unassigned)

    def _open_seeds(self) -> int:
        return self.queued_seeds + self.study_run.open_seeds(self.running.values())

    # ---- rounds

    def _plan(self) -> bool:
        """Enqueue rounds, at least one and enough for the trials that fit. Returns False if there is none."""
        for policy in self.policies:
            while following := policy.next_round(self.capacity):
                self._enqueue(following)
                if self._is_full():
                    break
            if self.unassigned:
                return True
        return False

    def _is_full(self) -> bool:
        """True if two seeds are planned for each slot of the machine."""
        slots = self.shapes.most_slots(self.capacity)
        return self._open_seeds() >= 2 * slots * self.capacity.concurrent

    def _enqueue(self, following: Round) -> None:
        self.unassigned.append(following)
        self._note_pending([(following.configuration, s) for s in following.seeds], following.confirmation)

    def _note_pending(self, work: Iterable[tuple[Configuration, Seed]], confirmation: bool) -> None:
        for configuration, seed in work:
            self.study_run.states[configuration.key].pending[seed] = confirmation

    def _pack(self) -> None:
        """Put together the rounds that can share banks."""
        for confirmation in (False, True):
            rounds = [r for r in self.unassigned if r.confirmation == confirmation]
            work = [(r.configuration, seed) for r in rounds for seed in r.seeds]
            self.queue.extend(self.shapes.pack(work, self.capacity, confirmation))
        self.unassigned.clear()

    # ---- what a run would train, for a plan of it

    def planned_rounds(self) -> list[Round]:
        """Return what waits, as rounds."""
        trials = [Round(c, [seed], t.confirmation) for t in self.queue for c, seed in t.work]
        return [*trials, *self.unassigned]

    def plan_further(self) -> Iterator[Round]:
        """Enqueue and yield all rounds that follow what is recorded, once no proposal is left."""
        for policy in self.policies:
            while policy is not self.search and (following := policy.next_round(self.capacity)):
                self._enqueue(following)
                yield following

    # ---- cutting

    def _waiting(self, after: Trial | None) -> Trial | None:
        return next((t for t in self.queue if after is None or can_follow(t, after)), None)

    def _cut(self, waiting: Trial, after: Trial | None) -> Trial:
        """Take a trial off the queue: towards the end a share of what is left, so that cores end together.

        That is guided self-scheduling (Polychronopoulos and Kuck, IEEE Transactions on Computers C-36, 1987).
        A worker that begins gets its slots full, unless that leaves less for the others.
        """
        place, work, cores = self.queue.index(waiting), waiting.work, self.capacity.concurrent
        del self.queue[place]
        if id(waiting) in self.unfinished:
            return waiting
        size, slots = self.shapes.of(work[0][0].program, self.capacity)
        if cores > 1 and (waiting.confirmation or self._is_last):
            remaining = len(work) + sum(len(t.work) for t in self.queue)
            least, open_seeds = slots // 8, len(work) + self._open_seeds()
            if after is None:
                least = max(-(-open_seeds // (2 * cores)), min(slots, -(-open_seeds // cores)))
            size = min(size, max(-(-remaining // (2 * cores)), least))
        if size < len(work):
            self.queue.insert(place, replace(waiting, work=work[size:]))
        work = work[:size]
        spared = spared_of(self.study, list(self.study_run.states), work, waiting.confirmation)
        return replace(waiting, work=work, spared=spared)

    @property
    def _is_last(self) -> bool:
        """True if nothing follows the search's trials that are planned."""
        return not (self.search.has_more() or self.study.until.grokked or self.study.allocation)

    # ---- what is not needed

    def _cancel_satisfied(self) -> None:
        """Take seeds that wait out of the plan if their configuration has enough."""
        if self.study.until.grokked is None:
            return
        run = self.study_run
        satisfied = {key for key, state in run.states.items() if run.has_enough(state.configuration)}
        waiting, self.queue = self.queue, deque()
        for trial in waiting:
            needed = tuple(p for p in trial.work if trial.confirmation or p[0].key not in satisfied)
            if needed and id(trial) in self.unfinished:
                needed = trial.work
            if needed:
                self.queue.append(trial if needed == trial.work else replace(trial, work=needed))
            for configuration, seed in () if needed == trial.work else trial.work:
                if configuration.key in satisfied:
                    self.study_run.states[configuration.key].cancel(seed)
        rounds, self.unassigned = self.unassigned, []
        for planned in rounds:
            if planned.confirmation or planned.configuration.key not in satisfied:
                self.unassigned.append(planned)
                continue
            for seed in planned.seeds:
                self.study_run.states[planned.configuration.key].cancel(seed)

    def _note_cut(self, trial: Trial) -> None:
        """Note the seeds of a trial that its worker ended early because their configuration has enough."""
        for configuration, seed in () if trial.confirmation else trial.work:
            state = self.study_run.states[configuration.key]
            if self.study_run.has_enough(configuration) and not state.is_final(seed):
                state.cancel(seed)


def plan(study: Study, records: StudyRecords) -> Planner:
    """Return the plan of what is not recorded. Raises UserError.

    What a kind of study does not need is not imported.
    """
    parents: list[InitialTheta] = []
    proposals: ProposalSource | None = None
    listed = [] if study.proposes else [Configuration(*c) for c in study.listed]
    if study.start:
        from search.store.starts import configurations, parents_of

        parents = parents_of(study, records)
        listed = configurations(study, parents, records) if listed else []
    if proposer := proposer_of(study):
        proposals = proposer.propose(study, parents, records)
    elif study.space:
        proposals = _proposals(study, records, parents)
    rows = records.list_seeds()
    return Planner(study, rows, proposals, interrupted(study, rows, records, listed), listed)


def _proposals(study: Study, records: StudyRecords, parents: Sequence[InitialTheta]) -> Proposals:
    from search.run.proposals import Proposals

    if not parents:
        return Proposals(study, records)
    from search.store.starts import configuration_from_parent

    return Proposals(study, records, partial(configuration_from_parent, parent=parents[0]))
