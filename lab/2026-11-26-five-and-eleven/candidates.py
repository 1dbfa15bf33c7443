"""Sets of ties with one number fewer than a parent's, those first that its worst margins would bear best.

A set is a row of labels [P]: an entry of the base's θ reads 0, or ± a number of the parent by its label; a group that
is split off reads a label of its own.

Axes: P entries of the base, N pair, K label, C candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.spec import Spec

Array = NDArray[np.float64]
Labels = tuple[int, ...]
REGROUPED, BEAM = 3, 6
FAR = 1e-5
"""Cost of a number's relative change by 1, so that what no margin sees does not move for nothing."""


@dataclass(frozen=True)
class Model:
    """Squared changes of a parent's worst margins, linear in the logarithms of numbers."""

    theta_P: Array
    gram_PP: Array

    @classmethod
    def around(cls, theta_P: Array, slopes_NP: Array) -> Model:
        relative_NP = slopes_NP * np.where(theta_P == 0, 1.0, theta_P)
        return cls(theta_P, relative_NP.T @ relative_NP / len(slopes_NP) + FAR * np.eye(len(theta_P)))

    def costs(self, sets: list[Labels], values: dict[int, float]) -> tuple[Array, list[dict[int, float]]]:
        """Return each set's cost [C] and the numbers at which it is reached. values: of labels in the parent."""
        parts = [self._part(np.array(sets[i : i + 2_000]), values) for i in range(0, len(sets), 2_000)]
        return np.concatenate([cost for cost, _ in parts]), [v for _, optima in parts for v in optima]

    def _part(self, sets_CP: NDArray[np.int64], values: dict[int, float]) -> tuple[Array, list[dict[int, float]]]:
        labels, size = sorted(values), len(sets_CP)
        value_K = np.array([values[k] for k in labels])
        which_CPK = np.abs(sets_CP)[..., None] == np.array(labels)
        start_CP = np.sign(sets_CP) * (which_CPK @ value_K)
        safe_P = np.where(self.theta_P == 0, 1.0, self.theta_P)
        is_kept_CP = start_CP * self.theta_P > 0
        ratio_CP = np.where(is_kept_CP, start_CP / safe_P, 1.0)
        fixed_CP = np.where(self.theta_P == 0, start_CP, start_CP / safe_P - 1)
        offset_CP = np.where(is_kept_CP, np.log(ratio_CP), fixed_CP)
        moves_CPK = which_CPK * is_kept_CP[..., None]
        pulled_CPK = np.einsum("pq,cqk->cpk", self.gram_PP, moves_CPK, optimize=True)
        normal_CKK = np.einsum("cpk,cpl->ckl", moves_CPK, pulled_CPK, optimize=True)
        normal_CKK += 1e-9 * np.eye(len(labels))
        right_CK = np.einsum("cpk,cp->ck", pulled_CPK, offset_CP, optimize=True)
        logs_CK = np.clip(-np.linalg.solve(normal_CKK, right_CK[..., None])[..., 0], -3, 3)
        moved_CP = offset_CP + (moves_CPK @ logs_CK[..., None])[..., 0]
        cost_C = np.einsum("cp,pq,cq->c", moved_CP, self.gram_PP, moved_CP, optimize=True)
        optima = [dict(zip(labels, value_K * np.exp(logs_CK[c]), strict=True)) for c in range(size)]
        return cost_C, optima


@dataclass(frozen=True)
class Candidate:
    kind: str
    labels: Labels
    cost: float
    values: dict[int, float]
    """Of labels, where the model has the least cost."""


@dataclass
class Sets:
    """The sets around one parent: its base, labels, the values of labels, and the model."""

    base: Spec
    labels: Labels
    values: dict[int, float]
    model: Model
    across: bool
    """Whether any two numbers may be equal, or only those that one tensor reads."""

    def __post_init__(self) -> None:
        self.tensor = [name for name, n in self.base.layout.budget().items() for _ in range(n)]

    def targets(self, labels: Labels, tensors: set[str]) -> set[int]:
        """Return the labels that entries of these tensors may read."""
        read = {abs(k) for k, name in zip(labels, self.tensor, strict=True) if self.across or {name} == tensors}
        return read - {0}

    def dropped(self, labels: Labels) -> Iterator[Labels]:
        """Yield the sets in which one number is 0, or plus or minus another."""
        for i in sorted({abs(k) for k in labels} - {0}):
            tensors = {name for k, name in zip(labels, self.tensor, strict=True) if abs(k) == i}
            for j in (0, *(s * j for j in sorted(self.targets(labels, tensors)) if j < i for s in (1, -1))):
                yield tuple(j * (1 if k > 0 else -1) if abs(k) == i else k for k in labels)

    def groups(self, labels: Labels) -> list[frozenset[int]]:
        """Return entries, and those of one tensor, row or column that read one number."""
        shapes = dict(zip(self.base.layout.names, self.base.layout.shapes, strict=True))
        at, groups = 0, dict[frozenset[int], None]()
        for name, size in self.base.layout.budget().items():
            width = shapes[name][-1]
            of: dict[tuple[str, int, int], list[int]] = {}
            for p in range(at, at + size):
                groups[frozenset([p])] = None
                row, column = divmod(p - at, width)
                for part, n in (("all", 0), ("row", row), ("column", column)):
                    if labels[p]:
                        of.setdefault((part, n, abs(labels[p])), []).append(p)
            groups |= {frozenset(entries): None for entries in of.values()}
            at += size
        return list(groups)

    def regrouped(self, labels: Labels) -> Iterator[Labels]:
        """Yield the sets in which one group reads 0, or another number."""
        for group in self.groups(labels):
            tensors, first = {self.tensor[p] for p in group}, min(group)
            for k in (0, *(s * k for k in sorted(self.targets(labels, tensors)) for s in (1, -1))):
                yield tuple(
                    k * (1 if (labels[p] < 0) == (labels[first] < 0) else -1) if p in group else old
                    for p, old in enumerate(labels)
                )

    def split(self, labels: Labels) -> Iterator[tuple[Labels, float]]:
        """Yield the sets in which one group has a number of its own, and that number's value."""
        new = max(map(abs, labels)) + 1
        for group in self.groups(labels):
            first = min(group)
            if labels[first] and len({abs(labels[p]) for p in group}) == 1:
                value = self.model.theta_P[first]
                rest = {abs(k) for p, k in enumerate(labels) if p not in group}
                if abs(labels[first]) in rest:
                    split = tuple(
                        (new if (k < 0) == (labels[first] < 0) else -new) if p in group else k
                        for p, k in enumerate(labels)
                    )
                    yield split, float(value)

    def singles(self) -> list[Candidate]:
        return self._ranked("single", list(self.dropped(self.labels)))

    def others(self, count: int) -> list[Candidate]:
        """Return so many of each of the other two kinds, the cheapest first."""
        seen = set(self.dropped(self.labels))
        chosen = []
        for start in sorted(seen):
            beam = [start]
            for _ in range(REGROUPED):
                sets = list({new for labels in beam for new in self.regrouped(labels)} - seen)
                ranked = self._ranked("regrouped", [s for s in sets if self._is_smaller(s)])[: 4 * BEAM]
                seen |= {c.labels for c in ranked}
                beam = [c.labels for c in ranked[:BEAM]]
                chosen += ranked
        chosen = sorted(chosen, key=lambda c: c.cost)[:count]
        split = []
        for labels, value in self.split(self.labels):
            once = set(self.dropped(labels))
            twice = {new for middle in once for new in self.dropped(middle)}
            values = self.values | {max(map(abs, labels)): value}
            split += self._ranked("split", [s for s in twice - seen if self._is_smaller(s)], values)[:count]
        return chosen + sorted(split, key=lambda c: c.cost)[:count]

    def _is_smaller(self, labels: Labels) -> bool:
        """Return True if a set has one number fewer, each in one tensor where ties are inside tensors."""
        return len({abs(k) for k in labels} - {0}) == len(self.values) - 1

    def _ranked(self, kind: str, sets: list[Labels], values: dict[int, float] | None = None) -> list[Candidate]:
        if not sets:
            return []
        costs, optima = self.model.costs(sets, values or self.values)
        listed = [Candidate(kind, *c) for c in zip(sets, costs.tolist(), optima, strict=True)]
        return sorted(listed, key=lambda c: c.cost)
