"""What a round tries: the sets of ties that the loss's curvature says would cost least.

Three ways lead from a set to a smaller one: one constraint more; several at once, also such as belong
together; and one tie loosened, its entry tied to another number, and then one constraint more. Without the
last constraint such a set is as large as its parent, but may lie better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from torch import Tensor

from model.spec import Spec
from model.structures import STRUCTURES
from model.tied import Tied, Ties, constrained, equated, project, retied, tie, ties_of, zeroed
from search.compress.journal import digest
from trainer.curvature.hessian import LossExpansion, cheapest_together, constraints, expand_loss
from trainer.curvature.quadratic import Quadratic, quadratic

SINGLE = ("zero", "equal", "opposite")
KINDS, REACHES = (*SINGLE, *STRUCTURES, "other"), ("tensor", "values")
POOL = 60  # cheapest constraints from which sets of several are made; of large sets four for each
WIDE, PART = (
    128,
    8,
)  # entries up to which a base's whole Hessian is made; beyond, of an eighth of the problems
RETIED, EACH = 80, 4  # ways to loosen a tie that are gone on from, and constraints after each


@dataclass(frozen=True)
class Proposer:
    """What can be proposed around a θ [P] of a spec's base that keeps the spec's ties."""

    spec: Spec
    at: LossExpansion
    model: Quadratic | None
    """None where the base is too wide for it: then ties are only added."""
    kinds: Sequence[str]
    reach: str
    ways: int | None = RETIED
    """How many ways to loosen a tie are looked at; None: all."""

    @property
    def wide(self) -> Proposer:
        """The same for when what it proposes has all been tried."""
        return replace(self, ways=None)

    @classmethod
    def around(
        cls, base: Spec, ties: Ties, theta_P: Tensor, kinds: Sequence[str], reach: str, problems: int
    ) -> Proposer:
        spec = tie(base, ties)
        if base.params > WIDE:
            own_P = project(ties, theta_P[None])[0] if isinstance(spec, Tied) else theta_P
            return cls(spec, expand_loss(spec, own_P, -(-problems // PART)), None, kinds, reach)
        model = quadratic(base, theta_P, problems)
        return cls(spec, model.inside(ties), model, kinds, reach)

    def sets(self, count: int, several: int, tried: dict[str, float]) -> list[Ties]:
        """So many sets that were not tried: up to half of them several constraints at once."""
        made: dict[str, Ties] = {}
        sources = ((count // 2, self._groups(several)), (count, self._one_by_one()))
        for most, source in sources:
            for ties in source:
                if len(made) >= most:
                    break
                if digest(ties) not in tried:
                    made.setdefault(digest(ties), ties)
        return list(made.values())

    def _groups(self, several: int) -> Iterator[Ties]:
        """Several constraints at once, up to twice so many, many first; and the cheapest structures."""
        size = min(2 * several, self.spec.params // 2)
        structured = iter(self._structures())
        while size > 1:
            for ties in (self._several(size, skip=0), self._several(size, skip=1), next(structured, None)):
                if ties is not None:
                    yield ties
            size = min(size - 1, max(size * 2 // 3, 2))

    def _one_by_one(self) -> Iterator[Ties]:
        """By turns a constraint more, a tie loosened and a constraint more, and a tie loosened for one that
        lowers the loss; each cheapest first. Of `wide` also those that raise it: another place to go on from.
        """
        singles = (c.ties for c in constraints(self.at, self.kinds, self.reach))
        others = self._others() if "other" in self.kinds else []
        same = (t for cost, t in others if cost < 0 or self.ways is None)
        turns = zip_longest(singles, self._loosened(others), same)
        return (ties for ties in chain.from_iterable(turns) if ties is not None)

    def _several(self, size: int, skip: int) -> Ties | None:
        """The ties of so many constraints that cost least together, chosen one after another.

        skip: leave out so many of the cheapest, for another set of the same size.
        """
        at = self.at
        pool = constraints(at, self.kinds, self.reach)[skip : max(POOL, 4 * size)]
        chosen = cheapest_together(at, pool, size)
        if chosen is None:
            return None
        ties = at.ties
        for constraint in chosen:
            ties = _imposed(at.ties, ties, constraint.a_R)
        return _possible(at.spec, ties)

    def _structures(self) -> list[Ties]:
        """What rows, columns and blocks of matrices can have in common, cheapest first."""
        if self.model is None:
            return []
        base, found = self.model.base, set[Ties]()
        for kind, listed in base.structures().items():
            for words in listed if kind in self.kinds else ():
                try:
                    ties = _possible(base, constrained(base, words, self.at.ties))
                except ValueError:  # contradicts a tie that is there
                    continue
                if ties is not None and ties != self.at.ties:
                    found.add(ties)
        return self._cheapest(found)

    def _others(self) -> list[tuple[float, Ties]]:
        """One entry tied to another number than its own, cheapest first, with what it costs."""
        if self.model is None:
            return []
        found = self._cheapest(self._retied())[: self.ways]
        costs = self.model.costs([*found, self.at.ties]).tolist()
        return [(cost - costs[-1], ties) for cost, ties in zip(costs, found, strict=False)]

    def _loosened(self, others: list[tuple[float, Ties]]) -> list[Ties]:
        """And then one constraint more, cheapest first."""
        found: list[tuple[float, Ties]] = []
        for _, ties in others:
            assert self.model is not None
            at = self.model.inside(ties)
            found += [(at.loss + c.cost, c.ties) for c in constraints(at, SINGLE, self.reach, EACH)]
        return [ties for _, ties in sorted(found)]

    def _retied(self) -> set[Ties]:
        """Every way to have one entry read 0, or plus or minus another number, of the same count."""
        base, ties = ties_of(self.spec)
        homes = list(chain.from_iterable([n] * size for n, size in base.layout.budget().items()))
        where: dict[int, set[str]] = {}
        for p, k in enumerate(ties):
            where.setdefault(abs(k), set()).add(homes[p])
        found = set()
        for p, own in enumerate(ties):
            for k in (0, *(s * k for k in range(1, max(ties) + 1) for s in (1, -1))):
                near = self.reach == "values" or k == 0 or where[abs(k)] == {homes[p]}
                made = _possible(base, retied(ties, p, k)) if k != own and near else None
                if made is not None and made != ties:
                    found.add(made)
        return {made for made in found if max(made, default=0) == self.spec.params}

    def _cheapest(self, sets: set[Ties]) -> list[Ties]:
        if not sets or self.model is None:
            return []
        listed = sorted(sets)
        return [listed[n] for n in self.model.costs(listed).argsort().tolist()]


def _possible(spec: Spec, ties: Ties) -> Ties | None:
    """The ties, or None where they leave a tensor empty that must not be."""
    try:
        tie(spec, ties)
    except ValueError:
        return None
    return ties


def _imposed(known: Ties, ties: Ties, a_R: Tensor) -> Ties:
    """Ties with a constraint more, which is written in the numbers of `known`."""
    read = a_R.nonzero().flatten().tolist()
    first = [next(p for p, k in enumerate(known) if abs(k) == n + 1) for n in read]
    if len(read) == 1:
        return zeroed(ties, first[0])
    sign = -1 if a_R[read[0]] * a_R[read[1]] > 0 else 1
    try:
        return equated(ties, first[1], first[0], sign)
    except ValueError:  # equal and opposite: both are zero
        return zeroed(ties, first[0])
