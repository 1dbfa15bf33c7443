"""A descent: a state machine that proposes sets of ties, judges them after training, and accepts some.

It trains nothing itself. A folder's descent trains in this process (local.py), a study's by the planner (study.py).
A `CandidateStore` keeps the candidates.

Axes: P parameters of a base.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from adders.acceptance import AcceptanceSet, base_theta, own_theta, worst_loss
from compress.candidates import CandidateStore, TieCandidate, smallest
from compress.proposers import Parent, Rules, propose
from model import preset_name
from model.spec import Spec
from model.tasks.rows import ROUNDING
from model.tied import Ties, tie, ties_of
from search.study.start import ANY, InitialTheta

LARGEST_BATCH = 16  # constraints at once, or an eighth of the numbers; up to twice as many are tried


@dataclass(frozen=True)
class Training:
    """A candidate after training with one data seed: θ [P of the base] from each start.

    exact: the lowest exact match among them. loss: the highest. errors: the most errors among the problems of
    acceptance, if counted already. lineage: the steps that led to θ. is_finished: curvature took it there.
    """

    thetas: tuple[Tensor, ...]
    exact: float
    loss: float
    data_seed: int | None = None
    recipe: Mapping[str, Any] | None = None
    lineage: tuple[Mapping[str, Any], ...] = ()
    errors: int | None = None
    is_finished: bool = False


Origin = tuple[Spec, Sequence[Tensor], tuple[Mapping[str, Any], ...]]
"""A spec, θ [P] of every start, and their lineage."""


class Descent:
    """Propose, judge, accept. A round is proposed, added, judged candidate by candidate, and ended."""

    def __init__(self, store: CandidateStore, rules: Rules):
        """Go on with the candidates of a store; where it has none, call `begin` first."""
        self.store = store
        self.rules = rules
        self.candidates = store.read()
        self.progress = store.progress()
        self.acceptance_sets: dict[Spec, AcceptanceSet] = {}
        # A store that writes no progress has its rounds counted again.
        last = max((c.round for c in self.candidates), default=0)
        while self.progress.rounds < last - self.is_open:
            self._count_round()

    def begin(self, origins: Iterable[Origin]) -> None:
        """Write the candidates that the descent starts from. Raises ValueError for a θ with too many errors."""
        self.candidates = [self._root(number, *origin) for number, origin in enumerate(origins)]
        self.store.propose(self.candidates)

    def _root(
        self,
        number: int,
        spec: Spec,
        thetas: Sequence[Tensor],
        lineage: tuple[Mapping[str, Any], ...],
    ) -> TieCandidate:
        """Return a candidate for a θ that the descent starts from. Raises ValueError for one with too many errors."""
        base, ties = ties_of(spec)
        acceptance = self.acceptance_of(base)
        full = [base_theta(spec, theta_P) for theta_P in thetas]
        # The worst start counts: a set must hold from each.
        errors = max(map(acceptance.errors, full))
        if errors > self._tolerated(acceptance):
            count = f"it adds {errors:,} of {acceptance.size:,} of our own problems wrongly"
            raise ValueError(f"{preset_name(spec)} has not grokked: {count}")
        loss = self._loss(base, ties, full, max(map(acceptance.loss, full)))
        if loss is None:
            raise ValueError(f"{preset_name(spec)} is not proved right on all pairs (adder-search prove)")
        return TieCandidate(
            number,
            0,
            ties,
            reached=1.0 - errors / acceptance.size,
            wrong=errors,
            loss=loss,
            start=InitialTheta(base, {ANY: tuple(full[0].tolist())}, lineage, number),
            companions=tuple(tuple(theta_P.tolist()) for theta_P in full[1:]),
        )

    # ---- candidates

    @property
    def accepted(self) -> list[TieCandidate]:
        """Candidates that later rounds may start from."""
        return [c for c in self.candidates if c.start]

    @property
    def smallest(self) -> TieCandidate:
        """The accepted candidate with the fewest numbers, and among those with the lowest loss."""
        candidate = smallest(self.candidates)
        assert candidate is not None
        return candidate

    @property
    def is_open(self) -> bool:
        """True while candidates of a round are not judged."""
        return any(c.reached is None for c in self.candidates)

    @property
    def is_over(self) -> bool:
        """True if no round follows."""
        rounds = self.progress.rounds
        rules = self.rules
        if self.is_open:
            return False
        is_out_of_patience = rounds - self.progress.last_gain >= rules.patience
        return is_out_of_patience or rounds >= rules.rounds or not self.parents()

    def base_of(self, candidate: TieCandidate) -> Spec:
        """Return the spec whose entries a candidate ties."""
        while candidate.start is None:
            candidate = self.candidates[candidate.parent or 0]
        return candidate.start.spec

    def parent_of(self, candidate: TieCandidate) -> TieCandidate:
        """Return the candidate from whose θ this one is trained."""
        return self.candidates[candidate.parent or 0]

    def acceptance_of(self, base: Spec) -> AcceptanceSet:
        """Return the problems that candidates of a base must get right."""
        return self.acceptance_sets.setdefault(base, AcceptanceSet(base))

    # ---- propose

    def parents(self) -> list[TieCandidate]:
        """Return the candidates from which the next round starts, the best first.

        The best have the fewest numbers, where each round that started from a candidate counts as one more. So
        a candidate that does not give way is left for its siblings, and taken up again later.
        """

        def rank(candidate: TieCandidate) -> tuple[int, float]:
            rounds = self.progress.expansions[candidate.number]
            return candidate.numbers + rounds, candidate.loss or 0.0

        ready = [c for c in self.accepted if c.number not in self.progress.exhausted]
        return sorted(ready, key=rank)[: self.rules.beam]

    def propose(self, count: int) -> list[TieCandidate]:
        """Return up to `count` new candidates for the next round; none at the end.

        A parent from which nothing is left to propose is exhausted.
        """
        proposals: list[TieCandidate] = []
        while not proposals and (parents := self.parents()):
            for place, parent in enumerate(parents):
                missing = count - len(proposals)
                share = -(-missing // (len(parents) - place))  # of the parents that are left
                sets = self._propose_from(parent, share, proposals, len(self.candidates) + place)
                if share and not sets:
                    self.progress.exhausted.add(parent.number)
                first = len(self.candidates) + len(proposals)
                round_ = self.progress.rounds + 1
                for number, ties in enumerate(sets, start=first):
                    proposals.append(TieCandidate(number, round_, ties, parent=parent.number))
        return proposals

    def _propose_from(
        self,
        parent: TieCandidate,
        count: int,
        proposals: Sequence[TieCandidate],
        draw: int,
    ) -> list[Ties]:
        """Return up to `count` sets from a parent that are neither tried nor among the proposals.

        draw: number that starts the proposer's generator.
        """
        base = self.base_of(parent)
        tried = set(self.progress.tried)
        tried.update(c.digest for c in (*self.candidates, *proposals) if self.base_of(c) == base)
        children = list[tuple[Ties, int, float]]()
        for c in self.candidates:
            if c.parent == parent.number and c.reached is not None:
                children.append((c.ties, c.round, c.reached))
        # The starts take turns: a set must hold from each of them.
        theta = parent.thetas[self.progress.rounds % len(parent.thetas)]
        return propose(
            self.rules,
            Parent(base, parent.ties, torch.tensor(theta), children),
            count,
            self.progress.batch_size,
            tried,
            draw,
        )

    def add(self, proposals: Sequence[TieCandidate], configurations: Sequence[Any] = ()) -> list[TieCandidate]:
        """Make proposals the next round, and write them. Returns them with their numbers."""
        first = len(self.candidates)
        candidates = [replace(c, number=first + n) for n, c in enumerate(proposals)]
        self.store.propose(candidates, configurations)
        self.candidates += candidates
        return candidates

    # ---- judge

    def judge(self, candidate: TieCandidate, exact: float, trainings: Iterable[Training]) -> TieCandidate:
        """Write the result of a candidate, and accept it if one of its trainings gets enough right.

        exact: the best exact match of any training of it, also of those that are not given.
        """
        judged = replace(candidate, reached=exact)
        for training in trainings:
            if self.rules.is_enough(training.exact):
                judged = min((judged, self._examined(candidate, exact, training)), key=_badness)
        self.store.judge(judged)
        self.candidates[judged.number] = judged
        self.progress.note(judged.digest, exact)
        return judged

    def _examined(self, candidate: TieCandidate, exact: float, training: Training) -> TieCandidate:
        """Return a candidate as a training leaves it: accepted, or with the errors for which it is not."""
        base = self.base_of(candidate)
        acceptance = self.acceptance_of(base)
        errors = training.errors
        if errors is None:
            errors = max(map(acceptance.errors, training.thetas))
        judged = replace(candidate, reached=exact, wrong=errors, loss=training.loss)
        if errors > self._tolerated(acceptance):
            return judged
        if (loss := self._loss(base, candidate.ties, training.thetas, training.loss)) is None:
            return judged
        thetas = [tuple(theta_P.tolist()) for theta_P in training.thetas]
        return replace(
            judged,
            loss=loss,
            start=InitialTheta(base, {ANY: thetas[0]}, training.lineage),
            companions=tuple(thetas[1:]),
            data_seed=training.data_seed,
            recipe=training.recipe,
            is_finished=training.is_finished,
        )

    def _loss(self, base: Spec, ties: Ties, thetas: Sequence[Tensor], loss: float) -> float | None:
        """Return the loss that ranks θ [P of the base]: `loss`, or where it must be proved that of the worst pair.

        Return None where one of the thetas is not proved.
        """
        if not self.rules.proved:
            return loss
        spec = tie(base, ties)
        losses = list[float]()
        for theta_P in thetas:
            worst = worst_loss(spec, own_theta(spec, theta_P), self.rules.proved)
            if worst is None:
                return None
            losses.append(worst)
        return max(losses)

    def _tolerated(self, acceptance: AcceptanceSet) -> float:
        return (1 - self.rules.accept) * acceptance.size + ROUNDING

    def end_round(self) -> None:
        """Count the round, whose candidates are all judged, and write the progress."""
        self._count_round()
        self.store.end_round(self.candidates, self.progress)

    def _count_round(self) -> None:
        """Count a judged round, and choose how many constraints the next one tries at once."""
        progress = self.progress
        before = min(c.numbers for c in self.accepted if c.round <= progress.rounds)
        progress.rounds += 1
        candidates = [c for c in self.candidates if c.round == progress.rounds]
        progress.expansions.update({c.parent for c in candidates if c.parent is not None})
        gains = [self.parent_of(c).numbers - c.numbers for c in candidates if c.start]
        widest = max((self.parent_of(c).numbers for c in candidates), default=0)
        gained = max(gains, default=0)
        size = progress.batch_size
        if gained >= size:  # it works: twice as many constraints at once
            most = max(LARGEST_BATCH, widest // 8)
            progress.batch_size = min(most, 2 * size)
        else:  # as many as were gained
            progress.batch_size = max(2, gained)
        if any(c.start and c.numbers < before for c in candidates):
            progress.last_gain = progress.rounds


def _badness(candidate: TieCandidate) -> tuple[bool, float, float]:
    """Rank trainings of one candidate: accepted first, then fewest errors, then the lowest loss."""
    wrong = inf if candidate.wrong is None else candidate.wrong
    loss = inf if candidate.loss is None else candidate.loss
    return candidate.start is None, wrong, loss
