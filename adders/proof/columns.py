"""The columns' programme: exact extremes of a sum over columns, and exact counts, whatever the two numbers are.

A column is in one of 2 base² states (x, y, carry into it), 200 in base ten; z and the carry out of it follow. What a
column adds to a sum depends on its state alone, so the least sum over all pairs of numbers is a shortest path through
the columns with the carry as its only memory. A case allows some states of each column.

A case is left out only if it has no pair, which is counted in whole numbers. No bound says so.

Axes: N case, J column, S state, T position, R channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adders.proof.attention import Query
from adders.proof.net import Asked, Net
from adders.proof.rounding import Array, Lost, require_finite, require_weight

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.object_]
"""Whole numbers of any size."""

CARRIES = [(carry_in, carry_out) for carry_in in (0, 1) for carry_out in (0, 1)]
TEN = Asked()
"""Ten-digit addition."""
AT_ONCE = 500
"""Cases that are bounded together."""
GROUPS = 4
"""Parts of a case that is split, at most."""
MOST_STEPS = 60
"""Of Dinkelbach's method. It converges faster than linearly, so more would be of no use."""
ROUNDING = 1e-13
"""Relative error of a sum of some 200 float64 numbers."""


@dataclass(frozen=True, eq=False)
class States:
    """The states of a column in a base, in four blocks by the carry in and the carry out."""

    rows: Ints
    """x, y and the carry in [S, 3]."""
    x: Ints
    y: Ints
    z: Ints
    carry: Ints
    """Into the column."""
    out: Ints
    """The carry out of it."""
    blocks: tuple[slice, ...]
    """Where the blocks lie, in the order of CARRIES."""

    def __len__(self) -> int:
        return len(self.rows)

    def roles(self, is_difference: bool) -> tuple[Ints, Ints, Ints]:
        """Return the digits of the first number, the second and the answer: y and x - y add up to x."""
        return (self.z, self.y, self.x) if is_difference else (self.x, self.y, self.z)


@cache
def states_in(base: int) -> States:
    """Return the states of a column in a base.

    >>> len(states_in(10)), states_in(10).blocks[0]  # of 100 pairs of digits 55 do not carry
    (200, slice(0, 55, None))
    """
    rows = np.array(
        [
            (x, y, carry_in)
            for carry_in, carry_out in CARRIES
            for x in range(base)
            for y in range(base)
            if (x + y + carry_in) // base == carry_out
        ]
    )
    x, y, carry = rows.T
    out, z = np.divmod(x + y + carry, base)
    block = 2 * carry + out
    ends = np.searchsorted(block, range(len(CARRIES) + 1))
    blocks = tuple(slice(int(first), int(end)) for first, end in pairwise(ends))
    return States(rows, x, y, z, carry, out, blocks)


@dataclass(frozen=True)
class Cases:
    """Sets of pairs, none of them empty: the states that each column may be in, and the token that is right."""

    of: States
    masks: Flags
    """[M, S], shared by cases."""
    columns: Ints
    """The mask of each column [N, J]."""
    right: Ints
    """The right token [N]."""
    label: Ints
    """The column's sum with the carry into it, or the last carry [N]."""
    pairs: Counts
    """The number of pairs [N]."""

    @classmethod
    def that_have_pairs(cls, of: States, masks: Flags, columns: Ints, right: Ints, label: Ints) -> Cases:
        every = cls(of, masks, columns, right, label, _count(of, masks, columns))
        return every[every.pairs > 0]

    def __len__(self) -> int:
        return len(self.right)

    # masks are shared, as most cases differ from others in one column
    def __getitem__(self, i: Ints | Flags | slice) -> Cases:
        return Cases(self.of, self.masks, self.columns[i], self.right[i], self.label[i], self.pairs[i])

    def states(self) -> Flags:
        """Return the states that each column of each case may be in [N, J, S]."""
        return self.masks[self.columns]


def _count(of: States, masks: Flags, columns: Ints) -> Counts:
    """Return the number of paths [N] through the states that the masks [M, S] of each column [N, J] allow."""
    # Python's integers: 10^20 pairs are more than 64 bits hold.
    by_block = np.stack([masks[:, block].sum(1) for block in of.blocks], -1).astype(object)
    without_carry = np.full(len(columns), 1, dtype=object)
    with_carry = np.full(len(columns), 0, dtype=object)
    for column in columns.T:
        stays, rises, falls, carries = by_block[column].T
        without_carry, with_carry = (
            without_carry * stays + with_carry * falls,
            without_carry * rises + with_carry * carries,
        )
    total: Counts = without_carry + with_carry
    return total


def in_portions(cases: Cases) -> list[Cases]:
    """Cut cases into portions that are bounded together."""
    return [cases[i : i + AT_ONCE] for i in range(0, len(cases), AT_ONCE)]


def first_cases(k: int, token: int, digits: int, asked: Asked = TEN) -> Cases:
    """Return the coarsest cases of digit k, asked for at `token`: one per answer and carry, without empty ones.

    digits: number of columns that may be other than 0 and 0. Each pair is in one case of one token of each digit.
    """
    base, columns = asked.base, asked.columns
    of = states_in(base)
    first, second, answer = of.roles(asked.is_difference)
    allowed = np.ones((columns, len(of)), dtype=bool)
    # no carry comes into the units, and shorter numbers have zeros above their digits
    allowed[0] = of.carry == 0
    allowed[digits:] &= (first == 0) & (second == 0)
    if asked.is_difference:
        # a borrow out of the highest column means that the second number is the larger one, which is not asked
        allowed[-1] &= of.out == 0
    if 1 <= k <= columns:
        # the digit before was right, and is the token that asks
        allowed[k - 1] &= token == answer
    if k < columns:
        column = k
        of_state = answer + base * of.out
        labels = np.arange(2 * base)
        right = labels % base
    else:
        # behind the columns the answer is the last carry
        column = columns - 1
        of_state = of.out
        labels = np.arange(2)
        right = labels
    if k > columns:
        # the last carry is written already, so that the end is right whatever it is: the third token after the digits
        labels = labels[[token]]
        right = np.array([base + 2])

    # one mask per label, for the column that it is about; the other columns share theirs
    of_label = allowed[column] & (of_state[None] == labels[:, None])
    masks = np.concatenate([allowed, of_label])
    mask_of = np.tile(np.arange(columns), (len(labels), 1))
    mask_of[:, column] = columns + np.arange(len(labels))
    return Cases.that_have_pairs(of, masks, mask_of, right, labels)


class Sums:
    """Sums over columns of one head for one query."""

    def __init__(self, net: Net, query: Query, h: int):
        self.head = query.heads[h]
        length = net.prompt + query.k
        fixed = list(net.fixed)
        columns = self.columns = net.asked.columns
        if query.k > columns:
            # the last carry is no column's digit
            fixed.append((length - 1, query.token))
        self.fixed = tuple(np.array(fixed).T)
        places = np.full((3, columns), length)  # digits of the answer that are not written yet: behind all positions
        for number, written in enumerate((columns, columns, min(query.k, columns))):
            for j in range(written):
                places[number, j] = net.place(number, j)
        digits = np.array(states_in(net.asked.base).roles(net.asked.is_difference))
        self.terms_of = places[..., None] * net.vocabulary + digits[:, None]
        """Where a column's x, y and z are among terms [T + 1, V], by its state [3, J, S]; the last ones are 0."""

    def by_column(self, term_TV: Array) -> tuple[Array, Array]:
        """Return what each state of each column adds [J, S, ...] to the sum of terms [T, V, ...], and what is fixed."""
        rows = flat(term_TV)
        total: Array = rows.take(self.terms_of[0], axis=0)
        for places in self.terms_of[1:]:
            total += rows.take(places, axis=0)
        return total, term_TV[self.fixed].sum(0)

    def terms(self) -> tuple[Array, Array]:
        """Return what each state of each column adds to N and D [J, S, R + 1], and what is fixed [R + 1]."""
        weight = self.head.weight[..., None]
        both = np.concatenate([weight * self.head.value, weight], -1)
        return self.by_column(both)

    def of(self, states: Ints) -> tuple[Array, Array]:
        """Return the real N [N, R] and D [N] of inputs, given as states [N, J]."""
        by_state, fixed = self.terms()
        columns = np.arange(self.columns)[None]
        total = by_state[columns, states].sum(1) + fixed
        return total[:, :-1], total[:, -1]

    def highest(self, direction: Array, cases: Cases, rounded: bool = True) -> tuple[Array, Ints]:
        """Bound direction · N / D from above over all inputs of each case [N], with roundings of weights and values.

        Also returns inputs that reach the bounds, as states [N, J]. rounded: False leaves the roundings out. Raises
        Lost unless all are numbers.

        Dinkelbach: with λ (`level`) the quotient of some inputs, those with the largest N - λD are better, or λ is
        the largest.
        """
        head = self.head
        e = head.weight
        u = head.value @ direction
        spread = head.spread * rounded
        shared = head.shared[:, None, None] * rounded
        # float32's errors in the values themselves: as much as they can add to N
        over = e * (1 + spread) * (head.error @ np.abs(direction)) * rounded
        size = np.abs(u).max() + 1e-300  # above 0, so that a head of zeros passes the test below
        smallest, fixed = self.by_column(e * (1 - spread))
        least = (1 - shared.max()) * (smallest.min(-1).sum() + fixed.sum())
        require_weight(least)
        rows = np.arange(len(cases))[:, None]
        columns = np.arange(self.columns)[None]
        # any level will do to begin with
        level = np.zeros(len(cases))
        for _ in range(MOST_STEPS):
            distance = u[..., None] - level  # [T, V, N]
            # the largest sum takes a larger weight where a term is above 0, and a smaller one where it is below
            weight = e[..., None] * (1 + np.copysign(spread[..., None], distance))
            costs, fixed = self.by_column(weight * distance + over[..., None])
            require_finite(costs)
            common = 1 + np.copysign(shared, costs)
            best, states = longest(costs * common, cases)
            best = best + fixed
            # D of these inputs, with the same roundings
            places = self.terms_of[:, columns, states]
            weights = flat(weight)[places, rows].sum(0)
            total = (weights * common[columns, states, rows]).sum(1) + weight[self.fixed].sum(0)
            error = ROUNDING * (size + np.abs(level)) * total
            if (np.abs(best) <= error).all():
                # no D is below `least`, so what is left of N - λD moves the quotient by no more than this
                return level + (np.maximum(best, 0) + error) / least, states
            level = level + best / total
        raise Lost("the extremes were not reached")


def flat(term_TV: Array) -> Array:
    """Return terms [(T + 1) V, ...] with zeros behind the last position."""
    ended = np.concatenate([term_TV, np.zeros_like(term_TV[:1])])
    length, tokens, *rest = ended.shape
    return ended.reshape(length * tokens, *rest)


def longest(costs: Array, cases: Cases) -> tuple[Array, Ints]:
    """Return for each case the largest sum of costs [J, S, N] over its inputs [N], and its states [N, J]."""
    n, columns = cases.columns.shape
    rows = np.arange(n)
    of = cases.of
    gain = np.where(cases.masks[cases.columns.T], costs.transpose(0, 2, 1), -np.inf)
    # of all states with the same carries only the best can be on a longest path: four are left
    states = np.stack([gain[..., block].argmax(2) + block.start for block in of.blocks], -1)
    gains = np.take_along_axis(gain, states, 2)
    best = np.full((n, 2), -np.inf)  # by the carry into the next column; there is none into the first
    best[:, 0] = 0.0
    picks = np.zeros((columns, n, 2), dtype=np.int64)
    for j in range(columns):
        reached = gains[j] + best.repeat(2, axis=1)
        from_none, from_one = reached[:, :2], reached[:, 2:]
        is_none_better = from_none >= from_one
        best = np.where(is_none_better, from_none, from_one)
        picks[j] = np.where(is_none_better, states[j, :, :2], states[j, :, 2:])
    # back from the carry at which the longest path ends
    carry = best.argmax(1)
    value = best[rows, carry]
    path = np.zeros((n, columns), dtype=np.int64)
    for j in reversed(range(columns)):
        path[:, j] = picks[j, rows, carry]
        carry = of.carry[path[:, j]]
    return value, path


def numbers(states: Ints, asked: Asked = TEN) -> tuple[int, int]:
    """Return the two numbers of one input [J]."""
    first, second, _ = states_in(asked.base).roles(asked.is_difference)
    return _number(first[states], asked.base), _number(second[states], asked.base)


def _number(digits: Ints, base: int) -> int:
    """Return the number whose digits are these, units first."""
    return sum(int(digit) * base**j for j, digit in enumerate(digits))


def split(sums: list[Sums], cases: Cases) -> tuple[Cases, Cases]:
    """Split each case by the column that moves a channel most, into groups of states that move it alike.

    Returns the new cases, and those whose columns move nothing. Their pairs together are those of the given cases.
    """
    allowed = cases.states()
    effect = _effect(sums, allowed)
    # by column and channel, how far apart the states of a case move it
    high = np.where(allowed[..., None], effect, -np.inf).max(2)
    low = np.where(allowed[..., None], effect, np.inf).min(2)
    count, places, channels = high.shape
    spread = (high - low).reshape(count, places * channels)
    # states that all move channels alike cannot be told apart by what follows attention
    moves = spread.max(1) > 0
    rows = np.flatnonzero(moves)
    column, channel = np.divmod(spread[rows].argmax(1), channels)
    least = low[rows, column, channel, None]
    most = high[rows, column, channel, None]
    # states that are not allowed may lie outside, where a share would be no group's
    inside = np.clip(effect[rows, column, :, channel], least, most)
    share = (inside - least) / (most - least)
    groups = np.minimum((share * GROUPS).astype(int), GROUPS - 1)
    masks = allowed[rows, column][:, None] & (groups[:, None] == np.arange(GROUPS)[:, None])
    owner, group = np.nonzero(masks.any(2))
    parents = rows[owner]
    added = np.arange(len(owner))
    columns = cases.columns[parents]
    columns[added, column[owner]] = len(cases.masks) + added
    # masks that no child has are dropped, or they would pile up from split to split
    used, inverse = np.unique(columns, return_inverse=True)
    every_mask = np.concatenate([cases.masks, masks[owner, group]])
    children = Cases.that_have_pairs(
        cases.of,
        every_mask[used],
        inverse.reshape(columns.shape),
        cases.right[parents],
        cases.label[parents],
    )
    return children, cases[~moves]


def _effect(sums: list[Sums], allowed: Flags) -> Array:
    """Return how each allowed state [N, J, S] moves the channels, near some input of its case [N, J, S, R].

    To first order: a wrong guess makes a worse split, never a wrong proof.
    """
    effect: Array = np.zeros(1)
    for head_sums in sums:
        terms, fixed = head_sums.terms()
        # the input is that of each column's first state: its carries need not fit
        total = terms[np.arange(allowed.shape[1]), allowed.argmax(2)].sum(1) + fixed
        numerators = total[:, None, None, :-1]
        denominators = total[:, None, None, -1:]
        moved = terms[..., :-1] - numerators / denominators * terms[..., -1:]
        effect = effect + moved / denominators
    return effect
