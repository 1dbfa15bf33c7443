"""What a descent tries next: sets of ties that start from one accepted candidate and were not tried.

By saliency: the sets that would cost least by the loss's curvature. A proposer of another name is a part that
another package adds (lab/proposers.py).

Three ways lead from a set to a smaller one: one constraint more; several at once, among them structures that
hold together; and one tie loosened, its entry tied to another number, and then one constraint more. Without the
last constraint such a set is as large as its parent, but may lie better.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import chain, zip_longest

from torch import Tensor

from adders.acceptance import own_theta
from compress.candidates import digest
from compress.hessian import (
    Constraint,
    LossExpansion,
    cheapest_together,
    constraints,
    expand_loss,
    possible,
)
from compress.quadratic import Quadratic, quadratic
from compress.section import KINDS
from compress.ties import retied
from model.spec import Spec
from model.tied import (
    Ties,
    canonical,
    constrained,
    equated,
    tie,
    ties_of,
    zeroed,
)
from search.plugins import part
from trainer.outcomes import as_measured

SINGLE = ("zero", "equal", "opposite")
POOL = 60  # cheapest constraints from which sets of several are made; of large sets four for each
WHOLE = 128  # entries up to which a base's whole Hessian is made
FEWER = 8  # of larger bases an eighth of the problems
LOOSENED = 80  # ways to loosen a tie that get a constraint more
EACH = 4  # constraints after each of them


@dataclass(frozen=True)
class SaliencyProposer:
    """Proposals around a θ [P] of a spec's base that keeps the spec's ties.

    model: None where the base is too wide for it; then ties are only added. ways: ways to loosen a tie that are
    looked at; None: all.
    """

    spec: Spec
    at: LossExpansion
    model: Quadratic | None
    kinds: Sequence[str]
    scope: str
    ways: int | None = LOOSENED

    @classmethod
    def around(
        cls,
        base: Spec,
        ties: Ties,
        theta_P: Tensor,
        kinds: Sequence[str],
        scope: str,
        problems: int,
    ) -> SaliencyProposer:
        """Measure the loss's curvature at θ [P of the base] on so many selection problems."""
        spec = tie(base, ties)
        if base.params > WHOLE:
            at = expand_loss(spec, own_theta(spec, theta_P), -(-problems // FEWER))
            return cls(spec, at, None, kinds, scope)
        model = quadratic(base, theta_P, problems)
        return cls(spec, model.inside(ties), model, kinds, scope)

    def sets(self, count: int, batch_size: int, excluded: Container[str]) -> list[Ties]:
        """Return up to `count` sets, up to half of them of several constraints at once.

        excluded: digests of sets to leave out.
        """
        sets: dict[str, Ties] = {}
        for limit, source in (
            (count // 2, self._batches(batch_size)),
            (count, self._one_by_one()),
        ):
            for ties in source:
                if len(sets) >= limit:
                    break
                if (name := digest(ties)) not in excluded:
                    sets.setdefault(name, ties)
        return list(sets.values())

    @cached_property
    def _singles(self) -> list[Constraint]:
        """The cheapest constraints, cheapest first."""
        return constraints(self.at, self.kinds, self.scope)

    def _batches(self, batch_size: int) -> Iterator[Ties]:
        """Yield sets of several constraints, up to twice `batch_size`, many first; and the cheapest structures."""
        size = min(2 * batch_size, self.spec.params // 2)
        structures = iter(self._structures())
        while size > 1:
            for ties in (
                self._batch(size, skip=0),
                self._batch(size, skip=1),
                next(structures, None),
            ):
                if ties is not None:
                    yield ties
            size = min(size - 1, max(size * 2 // 3, 2))

    def _one_by_one(self) -> Iterator[Ties]:
        """Yield three kinds of sets by turns, each cheapest first.

        They have a constraint more; a tie loosened and a constraint more; or a tie loosened alone, where that lowers
        the loss. With `ways` None the last kind also has those that raise it: another place to start from.
        """
        singles = (c.ties for c in self._singles)
        loosened = self._loosened() if "other" in self.kinds else []
        same_size = (ties for cost, ties in loosened if cost < 0 or self.ways is None)
        turns = zip_longest(singles, self._constrained(loosened), same_size)
        return (ties for ties in chain.from_iterable(turns) if ties is not None)

    def _batch(self, size: int, skip: int) -> Ties | None:
        """Return the ties of `size` constraints that cost least together, chosen one after another.

        skip: leave out so many of the cheapest, for another set of the same size.
        """
        at = self.at
        pool = self._singles[skip : max(POOL, 4 * size)]
        chosen = cheapest_together(at, pool, size)
        if chosen is None:
            return None
        return possible(at.spec, reduce(joined, (constraint.ties for constraint in chosen), at.ties))

    def _structures(self) -> list[Ties]:
        """Return sets in which rows, columns or blocks of matrices have something in common, cheapest first."""
        if self.model is None:
            return []
        base = self.model.base
        sets = set[Ties]()
        listed = base.structures().items()
        for texts in chain.from_iterable(structures for kind, structures in listed if kind in self.kinds):
            try:
                ties = possible(base, constrained(base, texts, self.at.ties))
            except ValueError:  # contradicts a tie that is there
                continue
            if ties is not None and ties != self.at.ties:
                sets.add(ties)
        return self._cheapest(sets)

    def _loosened(self) -> list[tuple[float, Ties]]:
        """Return sets in which one entry reads another number than before, cheapest first, with their cost."""
        if self.model is None:
            return []
        sets = self._cheapest(self._retied())[: self.ways]
        costs = self.model.costs([*sets, self.at.ties]).tolist()
        *costs, here = costs
        return [(cost - here, ties) for cost, ties in zip(costs, sets, strict=True)]

    def _constrained(self, loosened: list[tuple[float, Ties]]) -> list[Ties]:
        """Return each loosened set with one constraint more, cheapest first."""
        sets: list[tuple[float, Ties]] = []
        for _, ties in loosened:
            assert self.model is not None
            at = self.model.inside(ties)
            for constraint in constraints(at, SINGLE, self.scope, EACH):
                sets.append((at.loss + constraint.cost, constraint.ties))
        return [ties for _, ties in sorted(sets)]

    def _retied(self) -> set[Ties]:
        """Return every way to have one entry read 0, or plus or minus another number, of the same size."""
        base, ties = ties_of(self.spec)
        tensors = list[str]()  # of each entry
        for name, size in base.layout.budget().items():
            tensors += [name] * size
        readers: dict[int, set[str]] = {}
        for p, k in enumerate(ties):
            readers.setdefault(abs(k), set()).add(tensors[p])
        positive = range(1, max(ties) + 1)
        numbers = [0, *positive, *(-k for k in positive)]
        sets = set()
        for p, before in enumerate(ties):
            for k in numbers:
                is_global = self.scope == "global" or k == 0
                is_in_scope = is_global or readers[abs(k)] == {tensors[p]}
                if k != before and is_in_scope:
                    sets.add(possible(base, retied(ties, p, k)))
        return {new for new in sets if new and new != ties and max(new) == self.spec.params}

    def _cheapest(self, sets: set[Ties]) -> list[Ties]:
        if not sets or self.model is None:
            return []
        ordered = sorted(sets)
        return [ordered[n] for n in self.model.costs(ordered).argsort().tolist()]


def joined(ties: Ties, constraint: Ties) -> Ties:
    """Return the ties of two sets together. What they make equal and opposite both is zero."""
    first: dict[int, int] = {}
    for p, k in enumerate(constraint):
        q = first.setdefault(abs(k), p)
        sign = 1 if (constraint[q] > 0) == (k > 0) else -1
        if k == 0:
            ties = zeroed(ties, p) if ties[p] else ties
        elif ties[p] != sign * ties[q]:
            try:
                ties = equated(ties, p, q, sign)
            except ValueError:
                ties = zeroed(ties, p)
    return canonical(ties)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of a descent.

    kinds: kinds of constraints to try.
    scope: `tensor` ties numbers of one tensor only, `global` any two.
    proposer, seed: name of the proposer, and the seed of its own generator.
    proposals: candidates per round.
    beam: accepted candidates from which a round starts.
    rounds: most rounds.
    patience: rounds that may pass without a smaller candidate.
    accept: share of the problems that a candidate must get right.
    proved: level at which it must be right on all pairs too, if any.
    problems: selection problems on which curvature is measured.
    """

    kinds: tuple[str, ...] = KINDS
    scope: str = "global"
    proposer: str = "saliency"
    seed: int = 0
    proposals: int = 12
    beam: int = 1
    rounds: int = sys.maxsize
    patience: int = 40
    accept: float = 1.0
    proved: str | None = None
    problems: int = 1_024

    def is_enough(self, exact: float, part: float = 1.0) -> bool:
        """True if an exact match is `accept`, or a part of it; after training it is float32, after finishing not."""
        return as_measured(exact) >= as_measured(part * self.accept)


@dataclass(frozen=True)
class Parent:
    """An accepted candidate: its base, ties and θ [P of the base].

    children: sets that were tried from it: ties, round, exact match.
    """

    base: Spec
    ties: Ties
    theta_P: Tensor
    children: Sequence[tuple[Ties, int, float]] = ()

    @property
    def numbers(self) -> int:
        """Number of different numbers that are left."""
        return max(map(abs, self.ties), default=0)


def propose(
    rules: Rules,
    parent: Parent,
    count: int,
    batch_size: int,
    excluded: Collection[str],
    draw: int,
) -> list[Ties]:
    """Return up to `count` sets that start from a parent.

    batch_size: constraints at once, about. excluded: digests of sets to leave out. draw: number that, with the
    seed, starts the proposer's generator.
    """
    if parent.numbers < 2 or count < 1:
        return []
    if rules.proposer != "saliency":
        proposer = part("proposers", f"compress.proposer {rules.proposer}")
        return proposer(rules, parent, count, batch_size, excluded, draw)
    saliency = SaliencyProposer.around(
        parent.base,
        parent.ties,
        parent.theta_P,
        rules.kinds,
        rules.scope,
        rules.problems,
    )
    sets = saliency.sets(count, batch_size, excluded)
    if len(sets) == count:
        return sets
    return replace(saliency, ways=None).sets(count, batch_size, excluded)  # every way to loosen a tie
