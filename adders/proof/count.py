"""The number of pairs that a net adds wrongly, by counting in the programme over columns.

For each digit and asking token the wrong pairs are written as products of sets of states, one set per column. Where
one head writes one channel, a pair is wrong if its channel lies between two ends, so if sums over columns lie above 0:
a search sets the columns one by one, from the one that is asked for down, until the signs are sure. Else cases are
split until each is right or wrong throughout. Products of different digits overlap, so pairs are counted from the
highest column down, with the carry and the products that are still possible as state.

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
    ROUNDING,
    Flags,
    Ints,
    Sums,
    in_portions,
    split,
    states_in,
)
from adders.proof.net import Asked
from adders.proof.prover import MOST_BOXES, Prover, QueryProver
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


def count_wrong(spec: Spec, theta_P: Tensor, *, digits: int | None = None, limit_s: float = 600) -> Count:
    """Count the pairs of numbers of so many digits that a net adds wrongly. Raises Lost where numbers are."""
    wrong = list[Product]()
    remaining = list[Product]()
    asked = Asked.of(spec.task)
    digits = asked.columns if digits is None else digits
    with no_lost_numbers():
        prover = Prover(spec, theta_P, ANY, digits, limit_s)
        # then a pair is wrong by where one number lies, and no case need be split
        is_one_number = prover.net.channels.shape[1] * prover.net.heads == 1
        search = _by_channel if is_one_number else _by_cases
        for query in prover.queries():
            for product, is_sure in search(query):
                (wrong if is_sure else remaining).append(product)
    certain = pairs_in(wrong, digits, asked)
    # of all together: a pair may be in products of both kinds, of different digits
    possible = pairs_in(wrong + remaining, digits, asked) if remaining else certain
    seconds = time.process_time() - prover.start
    return Count(certain, possible, len(wrong) + len(remaining), seconds)


def _by_cases(query: QueryProver) -> Iterator[tuple[Product, bool]]:
    """Split a query's cases; yield those that are wrong, and those that stay open."""
    todo = [query.first_cases()]
    while todo:
        cases = todo.pop()
        low, high, _ = query.extremes(cases)
        # right throughout: nothing to count
        is_open = ~query.halved(query.wins, low, high, cases.right)
        cases = cases[is_open]

        is_wrong = query.halved(query.loses, low[is_open], high[is_open], cases.right)
        for product in cases[is_wrong].states():
            yield product, True

        undecided = cases[~is_wrong]
        if time.process_time() > query.prover.end:
            stuck = undecided
        else:
            children, stuck = split(query.sums, undecided)
            todo += in_portions(children)
        for product in stuck.states():
            yield product, False


def _by_channel(query: QueryProver) -> Iterator[tuple[Product, bool]]:
    """Yield a query's wrong pairs, and those that stay open, of a net whose attention writes one number."""
    cases = query.first_cases()
    low, high, _ = query.extremes(cases)
    states = cases.states()
    for n, ranges in enumerate(wrong_ranges(query, low, high, cases.right)):
        whole = float(low[n, 0]), float(high[n, 0])
        for outer, inner in ranges:
            yield from _Search(query, states[n], outer, inner, whole).products()


Range = tuple[float, float]
Segment = tuple[float, float, bool]
"""A piece of a channel's range, and True where another token wins for certain throughout."""


def wrong_ranges(query: QueryProver, low: Array, high: Array, right: Ints) -> list[list[tuple[Range, Range | None]]]:
    """Return for each case the ranges of its channel where a token other than the right one may win.

    Each comes with the part of it where one does for certain. low, high [N, 1], right [N].
    """
    owner = np.arange(len(low))
    segments: list[list[Segment]] = [[] for _ in owner]
    for depth in range(NARROW + 1):
        is_open = ~query.wins(low, high, right[owner])
        owner = owner[is_open]
        low = low[is_open]
        high = high[is_open]
        if not len(owner):
            break

        # what is too narrow to be told apart may be wrong: it counts as possible
        is_last = depth == NARROW or len(owner) > MOST_BOXES
        loses = query.loses(low, high, right[owner])
        for n, a, b, lost in zip(owner, low[:, 0], high[:, 0], loses, strict=True):
            if lost or is_last:
                segments[n].append((float(a), float(b), bool(lost)))
        if is_last:
            break

        owner = np.tile(owner[~loses], 2)
        low = low[~loses]
        high = high[~loses]
        middle = 0.5 * (low + high)
        low = np.concatenate([low, middle])
        high = np.concatenate([middle, high])
    return [list(_joined(sorted(parts))) for parts in segments]


def _joined(segments: list[Segment]) -> Iterator[tuple[Range, Range | None]]:
    """Join neighbouring segments: yield each range, with the part from its first sure segment to its last one.

    No part comes with it where a segment between these is not sure.
    """
    groups: list[list[Segment]] = []
    end: float | None = None
    for segment in segments:
        # halves of one box share their end to the bit
        if segment[0] != end:
            groups.append([])
        groups[-1].append(segment)
        end = segment[1]
    for group in groups:
        outer = group[0][0], group[-1][1]
        sure = [(low, high) for low, high, is_sure in group if is_sure]
        inner = None
        if sure:
            first, last = sure[0][0], sure[-1][1]
            within = [is_sure for low, high, is_sure in group if first <= low and high <= last]
            # a hole would cost a third condition; a pair beside it is counted as possible instead
            inner = (first, last) if all(within) else None
        yield outer, inner


class _Search:
    """Inputs of a case whose channel lies in a range: columns are set from the one that is asked for down, then up.

    Of columns above that one the answer is not yet written, so what they add does not depend on the carry. An input is
    wrong if it meets each condition: a sum over columns is above 0, one per end of the range.
    """

    def __init__(
        self,
        query: QueryProver,
        allowed: Flags,
        outer: Range,
        inner: Range | None,
        ends: Range,
    ):
        self.query = query
        self.allowed = allowed
        self.is_sure = inner is not None
        self.of = states_in(query.net.asked.base)
        columns = self.columns = query.net.asked.columns
        self.start = min(query.query.k, columns - 1)
        self.order = [*reversed(range(self.start + 1)), *range(self.start + 1, columns)]
        # an end of the channel's whole range is no condition: no input lies beyond it
        self.sides = [side for side in (0, 1) if outer[side] != ends[side]]
        # sure by the inner range and the least sums, possible by the outer range and the largest
        self.least = self._bounds(inner or outer, -1)
        self.most = self._bounds(outer, 1)

    def _bounds(self, ends: Range, bound: int) -> tuple[Array, Array, Array]:
        """Return what each state of each column adds to each condition [J, S, C], what is fixed [C], and `_rest`."""
        sums = self.query.sums[0]
        loss = float(self.query.query.loss[0])
        cost = np.zeros((self.columns, len(self.of), len(self.sides)))
        fixed = np.zeros(len(self.sides))
        for c, side in enumerate(self.sides):
            sign = 1 - 2 * side  # above the lower end, below the upper one
            cost[..., c], fixed[c] = costs(sums, sign, ends[side], loss, bound)
        return cost, fixed, self._rest(cost, bound)

    def _rest(self, cost: Array, bound: int) -> Array:
        """Return the largest sum (bound 1), or the least (-1), of the columns that are set after each one [J, 2, C].

        By the carry into that column.
        """
        # the least of numbers is the largest of their opposites, with the sign changed back
        limited = bound * np.where(self.allowed[..., None], bound * cost, -np.inf)
        # the largest of no sums, or the least, where nothing below gives a column this carry
        rest = np.full((self.columns, 2, cost.shape[2]), -bound * np.inf)
        after = np.zeros(cost.shape[2])
        for j in reversed(range(self.start + 1, self.columns)):
            rest[j] = after
            after = after + bound * (bound * limited[j]).max(0)
        rest[0, 0] = after
        for j in range(1, self.start + 1):
            total = limited[j - 1] + rest[j - 1][self.of.carry]
            for carry in (0, 1):
                rest[j, carry] = bound * (bound * total[carry == self.of.out]).max(0)
        return rest

    def products(self) -> Iterator[tuple[Product, bool]]:
        """Yield products of wrong inputs, and of those that stay open."""
        least, low, least_rest = self.least
        most, high, most_rest = self.most
        nodes = [(0, -1, low, high, self.allowed)]
        while nodes:
            depth, carry, low, high, product = nodes.pop()
            j = self.order[depth]
            allowed = self.allowed[j]
            if 0 < depth <= self.start:
                allowed = allowed & (carry == self.of.out)
            # the column above was set to a carry into it, which must come out of this one
            states = np.flatnonzero(allowed)
            carries = self.of.carry[states]
            lows = low + least[j, states]
            highs = high + most[j, states]
            least_left = least_rest[j][carries]
            most_left = most_rest[j][carries]

            sure = (lows + least_left > 0).all(1) & self.is_sure
            if sure.any():
                yield _with(product, j, states[sure]), True

            # what columns still add is less than roundings: setting them would decide nothing
            is_settled = (most_left - least_left <= highs - lows).all(1)
            is_last = depth == self.columns - 1 or time.process_time() > self.query.prover.end
            remaining = (highs + most_left > 0).all(1) & ~sure
            final = remaining & (is_settled | is_last)
            if final.any():
                yield _with(product, j, states[final]), False

            # states that add the same and have one carry stay together, or there would be 200 nodes per column
            remaining &= ~final
            alike = np.concatenate([lows, highs, carries[:, None]], 1)[remaining]
            _, first, groups = np.unique(alike, axis=0, return_index=True, return_inverse=True)
            for g, i in enumerate(np.flatnonzero(remaining)[first]):
                members = states[remaining][groups.ravel() == g]
                child = _with(product, j, members)
                nodes.append((depth + 1, int(carries[i]), lows[i], highs[i], child))


def _with(product: Product, j: int, states: Ints) -> Product:
    """Return a product with only these states in column j."""
    changed = product.copy()
    changed[j] = False
    changed[j, states] = True
    return changed


def costs(sums: Sums, sign: int, end: float, loss: float, bound: int) -> tuple[Array, float]:
    """Return what each state of each column adds [J, S] to N - end · D, times `sign`, and what is fixed.

    That sum is above 0 where the channel lies beyond the end. bound: 1 for the largest that roundings make of it, -1
    for the least. loss: what the channel loses besides.
    """
    head = sums.head
    e = head.weight
    u = head.value[..., 0]
    distance = sign * (u - end) + bound * loss
    weight = e * (1 + bound * np.copysign(head.spread, distance))
    cost = weight * distance + bound * e * (1 + head.spread) * head.error[..., 0]
    columns, fixed = sums.by_column(cost)
    columns = columns * (1 + bound * np.copysign(head.shared[:, None], columns))
    # float64's own roundings, of a sum that is no larger than this
    largest = 2 * e.max(1).sum() * (np.abs(u).max() + abs(end) + loss)
    return columns, float(fixed) + bound * 10 * ROUNDING * largest


def pairs_in(products: list[Product], digits: int, asked: Asked) -> int:
    """Count the pairs of numbers that are in any of some products [J, S]."""
    of, columns = states_in(asked.base), asked.columns
    # all pairs of so many digits, whatever the case
    possible = np.ones((columns, len(of)), dtype=bool)
    possible[0] = of.carry == 0
    possible[digits:] &= (of.x == 0) & (of.y == 0)
    # inputs of the columns below each one, by the carry into it: whole numbers of any size
    below = np.zeros((columns + 1, 2), dtype=object)
    below[0, 0] = 1
    for j in range(columns):
        for carry in (0, 1):
            below[j + 1, carry] = sum(below[j, of.carry[possible[j] & (carry == of.out)]])

    # sets of products are bits of a whole number: those that have a state, and those with no condition below a column
    having = [[0] * len(of) for _ in range(columns)]
    ending = [0] * columns
    for n, product in enumerate(products):
        for j, s in zip(*np.nonzero(product), strict=True):
            having[j][s] |= 1 << n
        limited = np.flatnonzero((possible & ~product).any(1))
        lowest = limited[0] if len(limited) else columns - 1
        ending[lowest] |= 1 << n

    # From the highest column down: (carry into the column above, products that are still possible) -> inputs so far.
    # A pair is one path, so it is counted once, where it first ends a product.
    every = (1 << len(products)) - 1
    nodes: Counter[tuple[int, int]] = Counter({(0, every): 1, (1, every): 1})
    total = 0
    for j in reversed(range(columns)):
        steps = Counter((int(of.out[s]), int(of.carry[s]), having[j][s]) for s in np.flatnonzero(possible[j]))
        later: Counter[tuple[int, int]] = Counter()
        for (carry, alive), ways in nodes.items():
            for (out, into, mask), states in steps.items():
                remaining = alive & mask
                if out != carry or not remaining:
                    continue
                if remaining & ending[j]:
                    # in one product whatever is below, so counted at once, whichever others it is in
                    total += ways * states * int(below[j, into])
                else:
                    later[into, remaining] += ways * states
        nodes = later
    return total
