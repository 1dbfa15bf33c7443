"""The plan of a study: which pairs of configuration and seed are trained next, and by whom.

Policies say the next round of seeds (search/run/policies.py). Their pairs wait, by the kind of bank that they need,
until a worker has room for them. No round waits for the one before: what turns out not to be needed is not trained.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from math import ceil

from search.run.packing import BankShapes, Capacity
from search.run.policies import Allocation, Confirmation, Policy, Search, Sweep
from search.run.spared import Draw
from search.run.study_run import PlannedPair, Round, StudyRun
from search.stats.record import ENOUGH, SeedKey, SeedRecord
from search.store.study_records import StudyRecords
from search.study.kind import ProposalSource
from search.study.schema import Study
from search.study.start import InitialTheta
from search.study.trial import Configuration, Program
from trainer import Pair, Seed


@dataclass(frozen=True, eq=False)
class BankKind:
    """What the pairs of one bank have in common. `Planner._kind` makes one object of each kind."""

    program: Program
    is_suspect: bool
    """True of pairs whose worker has failed: they may have been the reason, and train among themselves."""


@dataclass
class WorkerBank:
    """The bank of one worker. pairs: those in it that have not ended, by number, in the bank's order."""

    kind: BankKind
    slots: int
    pairs: dict[int, PlannedPair] = field(default_factory=dict)


class Planner:
    """The pairs of one study: those that wait, those that workers have, and which come next.

    rows: what the ledger has; final pairs are not trained again. proposals: of a search. configured: the file's
    configurations where seeds start from a θ (search/store/starts.py). numbered: keys of what was proposed, in order.
    """

    def __init__(
        self,
        study: Study,
        rows: Sequence[SeedRecord],
        proposals: ProposalSource | None = None,
        configured: Sequence[Configuration] | None = None,
        numbered: Iterable[str] = (),
    ):
        assert study.kind.proposes == (proposals is not None)
        self.study = study
        self.study_run = StudyRun(study, rows, numbered)
        self.shapes = BankShapes(study)
        self.capacity = Capacity()  # the driver sets it before it asks for the first pairs
        self.search = Search(self.study_run, proposals)
        self.draw = Draw(study)
        self.policies: list[Policy] = [
            self.search,
            Allocation(self.study_run, self.search),
            Sweep(self.study_run),
            Confirmation(self.study_run, self.search),
        ]
        self.waiting: dict[BankKind, deque[PlannedPair]] = {}
        """Pairs that no worker has, in order. No queue is empty."""
        self.banks: dict[str, WorkerBank] = {}
        """What workers have, by their names."""
        self.kinds: dict[tuple[Program, bool], BankKind] = {}
        self.numbers = count(1)
        """Numbers of pairs, a new one each time that a pair is handed out (search/run/messages.py)."""
        listed = [Configuration(*c) for c in study.listed] if configured is None else configured
        self._resume(rows, proposals.proposed() if proposals else listed)

    def _resume(self, rows: Sequence[SeedRecord], configurations: Iterable[Configuration]) -> None:
        """Plan what an earlier run has begun, then the first round of each configuration."""
        for configuration in configurations:
            self.study_run.add(configuration)

        # These first: what is pending then is not planned again as a part of a first round.
        for planned in self._unfinished(rows):
            self._enqueue(planned)

        for state in self.study_run.states.values():
            if first := self.study_run.first_round(state):
                self._enqueue(first)
            elif state.is_complete:
                self.search.report(state)  # the sampler of this process knows nothing yet

    def _unfinished(self, rows: Sequence[SeedRecord]) -> Iterator[Round]:
        """Yield the pairs that were begun and are still wanted. What was cut comes again when more is asked for."""
        study, run = self.study, self.study_run
        confirming = set(study.confirm_seeds)
        rounds = {seed for seeds in study.rounds for seed in seeds}
        for row in rows:
            # The file may have changed since: what it lists no longer stays recorded as it is.
            if row.is_final or row.reason == ENOUGH or row.configuration not in run.states:
                continue

            configuration = run.states[row.configuration].configuration
            asked: Collection[Seed] = rounds
            if row.confirmation:
                asked = confirming
            elif run.has_enough(configuration):
                continue
            elif study.kind.has_unequal_seeds:
                asked = study.kind.seeds_of((configuration.spec, configuration.recipe))
            if row.seed in asked:
                yield Round(configuration, [row.seed], row.confirmation)

    # ---- pairs for workers

    def take(self, worker: str, may_switch: bool = True) -> dict[int, PlannedPair]:
        """Hand out as many pairs as a worker has room for, by new numbers.

        may_switch: a worker without pairs may get a bank of another kind, if no pair waits for its own.
        """
        self._plan()
        bank = self.banks.get(worker)
        if bank is None or not bank.pairs:
            kind = self._kind_for(bank, may_switch)
            if kind is None:
                return {}
            if bank is None or kind != bank.kind:
                bank = WorkerBank(kind, self.shapes.slots_of(kind.program, self.capacity))
            self.banks[worker] = bank

        taken: dict[int, PlannedPair] = {}
        if queue := self.waiting.get(bank.kind):
            room = self._room(bank)
            while queue and len(taken) < room:
                taken[next(self.numbers)] = queue.popleft()
            if not queue:
                del self.waiting[bank.kind]
        bank.pairs |= taken
        return taken

    def _kind_for(self, bank: WorkerBank | None, may_switch: bool) -> BankKind | None:
        """Return the kind of bank that an idle worker is to have; None if nothing is there for it."""
        if not self.waiting:
            return None
        if bank is not None and bank.kind in self.waiting:  # another kind would be compiled first
            return bank.kind
        if bank is not None and not may_switch:
            return None

        # The kind with the fewest workers for the pairs that wait.
        busy = self._busy()
        return min(self.waiting, key=lambda kind: busy[kind] / len(self.waiting[kind]))

    def _kind(self, program: Program, is_suspect: bool = False) -> BankKind:
        return self.kinds.setdefault((program, is_suspect), BankKind(program, is_suspect))

    def _busy(self) -> Counter[BankKind]:
        """Return the number of workers by the kind of bank that they train."""
        return Counter(bank.kind for bank in self.banks.values() if bank.pairs)

    def _room(self, bank: WorkerBank) -> int:
        """Return how many pairs a bank has room for, up to its share of what is left, so that workers end together.

        A bank has an eighth more pairs than slots: they take the slots that fall free until its worker reports.
        """
        limit = bank.slots + bank.slots // 8
        most = min(limit, self.study.resources.seeds_per_trial or limit)

        # Other kinds keep the workers that they have, and one is kept for each kind that waits and has none.
        busy = self._busy()
        without = self.waiting.keys() - busy.keys() - {bank.kind}
        elsewhere = busy.total() - busy[bank.kind] + len(without)
        workers = max(1, self.capacity.concurrent - elsewhere)

        here = sum(len(other.pairs) for other in self.banks.values() if other.kind is bank.kind)
        share = ceil((here + len(self.waiting[bank.kind])) / workers)
        return max(0, min(most, share) - len(bank.pairs))

    def pair_of(self, planned: PlannedPair) -> Pair:
        """Return a pair as a bank trains it, with its rules: in a confirmation the default ones alone."""
        rules = [rule for rule in self.study.stop.rules if rule.is_default or not planned.confirmation]
        number = self.study_run.states[planned.configuration.key].number
        return replace(
            planned.configuration.pair(planned.seed),
            rules=tuple(rules),
            spared=self.draw.is_spared(number, planned.seed, planned.confirmation),
        )

    @property
    def is_done(self) -> bool:
        if self.waiting or any(bank.pairs for bank in self.banks.values()):
            return False
        return not any(policy.has_more() for policy in self.policies)

    # ---- what becomes of them

    def update(self, worker: str, steps: Mapping[int, int], perfect: Collection[int]) -> None:
        """Take how far a worker's pairs are. steps: by number. perfect: numbers of those that were perfect once.

        These count as grokked from then on; the rest of their training shows if they hold.
        """
        pairs = self.banks[worker].pairs if worker in self.banks else {}
        for number in steps.keys() & pairs.keys():
            self.study_run.update(pairs[number], steps[number], number in perfect)
        if perfect:
            self._cancel_satisfied()

    def end(self, worker: str, numbers: Collection[int]) -> list[PlannedPair]:
        """Take pairs that have ended from their worker."""
        pairs = self.banks[worker].pairs
        return [pairs.pop(number) for number in numbers]

    def give_back(self, worker: str, has_failed: bool) -> list[PlannedPair]:
        """Take a worker's pairs back, to be trained by another. Returns those that have failed too often."""
        most = self.study.faults.max_failures
        bank = self.banks.pop(worker, None)
        pairs = list(bank.pairs.values()) if bank else []
        for pair in reversed(pairs):  # the first one is put in front last
            self.study_run.update(pair, pair.step, False)  # what only its worker knew is lost
            pair.failures += has_failed
            if pair.failures <= most:
                kind = self._kind(pair.configuration.program, pair.failures > 0)
                self.waiting.setdefault(kind, deque()).appendleft(pair)

        self._cancel_satisfied()
        return [pair for pair in pairs if pair.failures > most]

    def complete(
        self, pairs: Sequence[PlannedPair], rows: Iterable[SeedRecord], cut: Collection[PlannedPair] = ()
    ) -> list[Configuration]:
        """Take what became of pairs, and plan what follows. Returns the configurations of which nothing more trains.

        rows: of the ledger; it has none for pairs that were cut before their first step. cut: pairs that their worker
        ended because there is enough.
        """
        run = self.study_run
        for pair in pairs:
            run.update(pair, pair.step, False)
            run.states[pair.configuration.key].pending.pop(pair.seed, None)
        run.record(rows)
        self._cancel_satisfied()  # these outcomes may make seeds of other configurations needless

        own = {}
        for pair in pairs:
            state = own[pair.configuration.key] = run.states[pair.configuration.key]
            needless = run.has_enough(pair.configuration) and not pair.confirmation
            if pair in cut or (needless and not state.is_final(pair.seed)):
                state.cancel(pair.seed)

        # There may not be enough after all: a seed that was perfect may be lost with its worker.
        open_ = own | {key: s for key, s in run.states.items() if s.cancelled or not s.is_reported}
        for state in open_.values():
            if state.is_complete and (following := run.following_round(state)):
                self._enqueue(following)

        # What just ended is told again, with its new rows; of others only what nobody was told of.
        ended = []
        for key, state in open_.items():
            is_news = key in own or (state.rows and not state.is_reported)
            if state.is_complete and is_news:
                ended.append(state)
        for state in ended:
            state.is_reported = True
            self.search.report(state)
        return [s.configuration for s in ended]

    def needless(self, worker: str) -> list[int]:
        """Return the numbers of a worker's pairs whose configurations need no more seeds."""
        if worker not in self.banks:
            return []
        pairs, has_enough = self.banks[worker].pairs, self.study_run.has_enough
        return [n for n, pair in pairs.items() if not pair.confirmation and has_enough(pair.configuration)]

    def needless_rows(self, rows: Iterable[SeedRecord]) -> dict[SeedKey, int]:
        """Return the steps of seeds that were begun, have not ended and do not go on, as there is enough.

        rows: the ledger's.
        """
        states = self.study_run.states
        rounds = {seed for seeds in self.study.rounds for seed in seeds}
        steps = {}
        for row in rows:
            has_ended = row.is_final or row.reason == ENOUGH
            if has_ended or row.confirmation or row.seed not in rounds:
                continue
            if row.configuration in states and self.study_run.has_enough(states[row.configuration].configuration):
                steps[row.key] = row.steps
        return steps

    # ---- what is left

    @property
    def in_flight(self) -> list[Configuration]:
        """Configurations with seeds that are planned or in training."""
        return [s.configuration for s in self.study_run.states.values() if s.pending]

    @property
    def training(self) -> list[PlannedPair]:
        """The pairs that workers have."""
        return [pair for bank in self.banks.values() for pair in bank.pairs.values()]

    @property
    def queued_steps(self) -> int:
        """What is left of the budgets of all pairs that no worker has; unit: seed-steps."""
        return sum(max(0, pair.configuration.recipe.steps - pair.step) for pair in self._queued())

    @property
    def queued_seeds(self) -> int:
        """Number of pairs that no worker has."""
        return sum(map(len, self.waiting.values()))

    def _queued(self) -> Iterator[PlannedPair]:
        return chain.from_iterable(self.waiting.values())

    def lacks_workers(self, idle: int) -> bool:
        """True if more pairs wait than there are workers without pairs. idle: the number of these workers."""
        if not idle:
            self._plan()
        return self.queued_seeds > idle

    # ---- rounds

    def _plan(self) -> None:
        """Enqueue rounds if no pair waits: at least one, if there is any, and enough for the banks that fit."""
        for policy in self.policies:
            if self.waiting:
                return
            while following := policy.next_round(self.capacity):
                self._enqueue(following)
                if self._is_full():
                    break

    def _is_full(self) -> bool:
        """True if two seeds are planned for each slot of the machine."""
        planned = self.queued_seeds + sum(len(bank.pairs) for bank in self.banks.values())
        return planned >= 2 * self.shapes.most_slots(self.capacity) * self.capacity.concurrent

    def _enqueue(self, planned: Round) -> None:
        configuration, seeds, confirmation = planned
        pending = self.study_run.states[configuration.key].pending
        pending.update(dict.fromkeys(seeds, confirmation))

        queue = self.waiting.setdefault(self._kind(configuration.program), deque())
        queue.extend(PlannedPair(configuration, seed, confirmation) for seed in seeds)

    def _cancel_satisfied(self) -> None:
        """Take pairs that wait out of the plan if their configuration has enough."""
        run = self.study_run
        if self.study.until.grokked is None:
            return
        satisfied = {key for key, state in run.states.items() if run.has_enough(state.configuration)}
        if not satisfied:
            return

        for kind, queue in list(self.waiting.items()):
            needed = deque[PlannedPair]()
            for pair in queue:
                if pair.confirmation or pair.configuration.key not in satisfied:
                    needed.append(pair)
                else:
                    run.states[pair.configuration.key].cancel(pair.seed)

            if needed:
                self.waiting[kind] = needed
            else:
                del self.waiting[kind]

    # ---- what a run would train, for a plan of it

    def planned_rounds(self) -> list[Round]:
        """Return what waits, as rounds."""
        return [Round(pair.configuration, [pair.seed], pair.confirmation) for pair in self._queued()]

    def plan_further(self) -> Iterator[Round]:
        """Enqueue and yield all rounds that follow what is recorded, once no proposal is left."""
        for policy in self.policies:
            while policy is not self.search and (following := policy.next_round(self.capacity)):
                self._enqueue(following)
                yield following


def plan(study: Study, records: StudyRecords) -> Planner:
    """Return the plan of what is not recorded. Raises UserError."""
    parents: list[InitialTheta] = []
    listed = None
    if study.start:
        from search.store import starts  # which a study without a start does not need, nor torch

        parents = starts.parents_of(study, records)
        listed = [] if study.kind.proposes else starts.configurations(study, parents, records)
    # A study that is resumed may not list what was judged: the ledger says how many come before.
    numbered = records.list_configurations() if study.kind.proposes else ()
    proposals = study.kind.propose(parents, records)
    return Planner(study, records.list_seeds(), proposals, listed, numbered)
