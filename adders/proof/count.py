"""The number of pairs that a net adds wrongly, by counting in the programme over columns.

For each digit and asking token the wrong pairs are written as products of sets of states, a set a column. Where one
head writes one channel, a pair is wrong if its channel lies between two ends: sums over columns lie above 0, and
a search from the column that is asked for goes down until the sign is sure. Else cases are split until each is
right or wrong throughout. Products of different digits overlap, so pairs are counted from the highest column down, with
the carry and the products that are still possible as state.

Axes: N case or box, J column, S state, C condition.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adders.proof.columns import (
    COLUMNS,
    IN,
    OUT,
    ROUNDING,
    STATES,
    Flags,
    Ints,
    Sums,
    X,
    Y,
    split,
)
from adders.proof.prover import AT_ONCE, MOST_BOXES, Prover, QueryProver
from adders.proof.rounding import ANY, Array, no_lost_numbers

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

NARROW = 22
"""Halvings of a channel's range, to where an answer turns wrong: float32 tells no more apart."""
Product = Flags
"""A set of pairs: the states that each column may be in [J, S]."""


@dataclass(frozen=True)
class Count:
    """Pairs that are wrong for certain, and those that may be: in float32, whatever the machine."""

    wrong: int
    possible: int
    """With the pairs that the time, or rounding, left open."""
    products: int
    seconds: float


def count_wrong(spec: Spec, theta_P: Tensor, *, digits: int = COLUMNS, limit_s: float = 600) -> Count:
    """Count the pairs of numbers of so many digits that a net adds wrongly. Raises Lost where numbers are."""
    wrong, remaining = list[Product](), list[Product]()
    with no_lost_numbers():
        prover = Prover(spec, theta_P, ANY, digits, limit_s)
        search = _by_channel if prover.net.channels.shape[1] * prover.net.heads == 1 else _by_cases
        for query in prover.queries():
            for product, is_sure in search(query):
                (wrong if is_sure else remaining).append(product)
    certain = pairs_in(wrong, digits)
    possible = pairs_in(wrong + remaining, digits) if remaining else certain
    return Count(
        certain,
        possible,
        len(wrong) + len(remaining),
        time.process_time() - prover.start,
    )


def _by_cases(query: QueryProver) -> Iterator[tuple[Product, bool]]:
    """Split a query's cases; yield those that are wrong, and those that stay open."""
    todo = [query.first_cases()]
    while todo:
        cases = todo.pop()
        low, high, _ = query.extremes(cases)
        is_right = query.halved(query.wins, low, high, cases.right)
        cases, low, high = cases[~is_right], low[~is_right], high[~is_right]
        is_wrong = query.halved(query.loses, low, high, cases.right)
        yield from ((product, True) for product in cases[is_wrong].states())
        children, stuck = split(query.sums, cases[~is_wrong])
        if time.process_time() > query.prover.end:
            children, stuck = children[:0], cases[~is_wrong]
        yield from ((product, False) for product in stuck.states())
        todo += [children[i : i + AT_ONCE] for i in range(0, len(children), AT_ONCE)]


def _by_channel(query: QueryProver) -> Iterator[tuple[Product, bool]]:
    """Yield a query's wrong pairs, and those that stay open, of a net whose attention writes one number."""
    cases = query.first_cases()
    low, high, _ = query.extremes(cases)
    states = cases.states()
    for n, ranges in enumerate(wrong_ranges(query, low, high, cases.right)):
        for outer, inner in ranges:
            whole = float(low[n, 0]), float(high[n, 0])
            yield from _Search(query, states[n], outer, inner, whole).products()


Range = tuple[float, float]


def wrong_ranges(query: QueryProver, low: Array, high: Array, right: Ints) -> list[list[tuple[Range, Range | None]]]:
    """Return for each case the ranges of its channel where a token other than the right one may win, each with the
    part of it where one does for certain.

    low, high [N, 1], right [N].
    """
    owner = np.arange(len(low))
    segments: list[list[tuple[float, float, bool]]] = [[] for _ in owner]
    for depth in range(NARROW + 1):
        wins = query.wins(low, high, right[owner])
        owner, low, high = owner[~wins], low[~wins], high[~wins]
        if not len(owner):
            break
        is_last = depth == NARROW or len(owner) > MOST_BOXES
        loses = query.loses(low, high, right[owner])
        for n, a, b, lost in zip(owner, low[:, 0], high[:, 0], loses, strict=True):
            if lost or is_last:
                segments[n].append((float(a), float(b), bool(lost)))
        if is_last:
            break
        owner, low, high = owner[~loses], low[~loses], high[~loses]
        middle = 0.5 * (low + high)
        owner, low, high = (
            np.tile(owner, 2),
            np.concatenate([low, middle]),
            np.concatenate([middle, high]),
        )
    return [list(_joined(sorted(parts))) for parts in segments]


def _joined(
    segments: list[tuple[float, float, bool]],
) -> Iterator[tuple[Range, Range | None]]:
    """Join neighbouring segments: yield each range with the longest part of it whose segments are sure."""
    groups: list[list[tuple[float, float, bool]]] = []
    for segment in segments:
        if groups and groups[-1][-1][1] == segment[0]:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    for group in groups:
        sure = [(a, b) for a, b, is_sure in group if is_sure]
        first, last = (sure[0][0], sure[-1][1]) if sure else (0.0, 0.0)
        is_whole = all(is_sure for a, b, is_sure in group if first <= a and b <= last)
        yield (group[0][0], group[-1][1]), (first, last) if sure and is_whole else None


class _Search:
    """Inputs of a case whose channel lies in a range: columns are set from the one that is asked for down, then up.

    Of columns above that one the answer is not yet written, so what they add does not depend on the carry.
    """

    def __init__(
        self,
        query: QueryProver,
        allowed: Flags,
        outer: Range,
        inner: Range | None,
        ends: Range,
    ):
        self.query, self.allowed, self.is_sure = query, allowed, inner is not None
        sums, loss = query.sums[0], float(query.query.loss[0])
        self.start = min(query.query.k, COLUMNS - 1)
        self.order = [*reversed(range(self.start + 1)), *range(self.start + 1, COLUMNS)]
        sides = [side for side in (0, 1) if outer[side] != ends[side]]
        self.bounds = []
        for bound, of in ((-1, inner or outer), (1, outer)):
            parts = [costs(sums, 1 - 2 * side, of[side], loss, bound) for side in sides]
            cost = np.stack([part for part, _ in parts], -1) if parts else np.zeros((COLUMNS, len(STATES), 0))
            self.bounds.append((cost, np.array([fixed for _, fixed in parts]), self._rest(cost, bound)))

    def _rest(self, cost: Array, bound: int) -> Array:
        """Return the largest sum (bound 1), or the least, of all columns that are set after each one, by the carry into
        that one [J, 2, C].
        """
        limited = bound * np.where(self.allowed[..., None], bound * cost, -np.inf)
        rest = np.full((COLUMNS, 2, cost.shape[2]), -bound * np.inf)
        after = np.zeros(cost.shape[2])
        for j in reversed(range(self.start + 1, COLUMNS)):
            rest[j] = after
            after = after + bound * (bound * limited[j]).max(0)
        rest[0, 0] = after
        for j in range(1, self.start + 1):
            total = limited[j - 1] + rest[j - 1][IN]
            for carry in (0, 1):
                rest[j, carry] = bound * (bound * total[carry == OUT]).max(0)
        return rest

    def products(self) -> Iterator[tuple[Product, bool]]:
        """Yield products of wrong inputs, and of those that stay open."""
        (least, low, least_rest), (most, high, most_rest) = self.bounds
        nodes = [(0, -1, low, high, self.allowed)]
        while nodes:
            depth, carry, low, high, product = nodes.pop()
            j = self.order[depth]
            is_free = depth == 0 or j > self.start
            states = np.flatnonzero(self.allowed[j] & (is_free | (carry == OUT)))
            lows, highs = low + least[j, states], high + most[j, states]
            sure = ((lows + least_rest[j][IN[states]]) > 0).all(1) & self.is_sure
            remaining = ((highs + most_rest[j][IN[states]]) > 0).all(1) & ~sure
            yield from self._with(product, j, states[sure], True)
            rounded = highs - lows
            rest = most_rest[j][IN[states]] - least_rest[j][IN[states]]
            is_late = depth == COLUMNS - 1 or time.process_time() > self.query.prover.end
            final = remaining & ((rest <= rounded).all(1) | is_late)
            yield from self._with(product, j, states[final], False)
            remaining &= ~final
            alike = np.concatenate([lows, highs, IN[states, None]], 1)[remaining]
            _, first, groups = np.unique(alike, axis=0, return_index=True, return_inverse=True)
            for g, i in enumerate(np.flatnonzero(remaining)[first]):
                members = states[remaining][groups.ravel() == g]
                (child,) = (product for product, _ in self._with(product, j, members, True))
                nodes.append((depth + 1, int(IN[states[i]]), lows[i], highs[i], child))

    @staticmethod
    def _with(product: Product, j: int, states: Ints, is_sure: bool) -> Iterator[tuple[Product, bool]]:
        """Yield a product with other states in one column, if there are any."""
        if len(states):
            changed = product.copy()
            changed[j] = False
            changed[j, states] = True
            yield changed, is_sure


def costs(sums: Sums, sign: int, end: float, loss: float, bound: int) -> tuple[Array, float]:
    """Return what each state of each column adds to a sum that is above 0 where the channel is beyond an end [J, S],
    and what is fixed. bound: 1 for the largest that roundings make of it, -1 for the least.
    """
    head = sums.head
    u, e = head.value[..., 0], head.weight
    distance = sign * (u - end) + bound * loss
    weight = e * (1 + bound * np.copysign(head.spread, distance))
    cost = weight * distance + bound * e * (1 + head.spread) * head.error[..., 0]
    columns, fixed = sums.by_column(cost)
    columns = columns * (1 + bound * np.copysign(head.shared[:, None], columns))
    total = 2 * e.max(1).sum() * (np.abs(u).max() + abs(end) + loss)
    return columns, float(fixed) + bound * 10 * ROUNDING * total


def pairs_in(products: list[Product], digits: int) -> int:
    """Count the pairs of numbers that are in any of some products [J, S]."""
    possible = np.ones((COLUMNS, len(STATES)), dtype=bool)
    possible[0] = IN == 0
    possible[digits:] &= (X == 0) & (Y == 0)
    below = np.zeros((COLUMNS + 1, 2), dtype=object)  # inputs of the columns below each, by the carry into it
    below[0, 0] = 1
    for j in range(COLUMNS):
        for carry in (0, 1):
            below[j + 1, carry] = sum(below[j, IN[possible[j] & (carry == OUT)]])
    bits = [[0] * len(STATES) for _ in range(COLUMNS)]
    ends = [0] * COLUMNS
    for n, product in enumerate(products):
        for j, s in zip(*np.nonzero(product), strict=True):
            bits[j][s] |= 1 << n
        bound = np.flatnonzero((possible & ~product).any(1))
        ends[bound[0] if len(bound) else COLUMNS - 1] |= 1 << n
    nodes: Counter[tuple[int, int]] = Counter({(carry, (1 << len(products)) - 1): 1 for carry in (0, 1)})
    total = 0
    for j in reversed(range(COLUMNS)):
        steps = Counter((int(OUT[s]), int(IN[s]), bits[j][s]) for s in np.flatnonzero(possible[j]))
        later: Counter[tuple[int, int]] = Counter()
        for (carry, alive), ways in nodes.items():
            for (out, into, mask), states in steps.items():
                if out != carry or not (remaining := alive & mask):
                    continue
                if remaining & ends[j]:
                    total += ways * states * int(below[j, into])
                else:
                    later[into, remaining] += ways * states
        nodes = later
    return total
