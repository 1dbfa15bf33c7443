"""The columns' programme: exact extremes of a sum over columns, and exact counts, whatever the two numbers are.

A column is in one of 200 states (x, y, carry into it); z and the carry out of it follow. What a column adds to
a sum depends on its state alone, so the least sum over all pairs of numbers is a shortest path through ten
columns with the carry as its only memory. A case allows some states of each column.

A case is left out only if it has no pair, which is counted in whole numbers. No bound says so.

Axes: N case, J column, S state, T position, R channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adders.proof.attention import Query
from adders.proof.net import COLUMNS, Net
from adders.proof.rounding import Array, Lost, require_finite, require_weight

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.object_]
"""Whole numbers of any size."""

STATES: Ints = np.array(
    [(x, y, i) for i in (0, 1) for o in (0, 1) for x in range(10) for y in range(10) if (x + y + i) // 10 == o]
)
"""x, y and the carry in [S, 3], in four blocks by the carry in and the carry out."""
X, Y, IN = STATES.T
Z, OUT = (X + Y + IN) % 10, (X + Y + IN) // 10
ROLES = {False: (X, Y, Z), True: (Z, Y, X)}
"""Digits of the first number, the second and the answer, of a sum and of a difference: y and x - y add up to x."""
BLOCKS = [slice(*np.flatnonzero((i == IN) & (o == OUT))[[0, -1]] + np.array([0, 1])) for i in (0, 1) for o in (0, 1)]
GROUPS = 4
"""Parts of a case that is split, at most."""
ROUNDING = 1e-13
"""Relative error of a sum of some 200 float64 numbers."""


@dataclass(frozen=True)
class Cases:
    """Sets of pairs, none of them empty: the states that each column may be in, and the token that is right."""

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
    def that_have_pairs(cls, masks: Flags, columns: Ints, right: Ints, label: Ints) -> Cases:
        every = cls(masks, columns, right, label, _count(masks, columns))
        return every[every.pairs > 0]

    def __len__(self) -> int:
        return len(self.right)

    def __getitem__(self, i: Ints | Flags | slice) -> Cases:
        return Cases(self.masks, self.columns[i], self.right[i], self.label[i], self.pairs[i])

    def states(self) -> Flags:
        """Return the states that each column of each case may be in [N, J, S]."""
        return self.masks[self.columns]


def _count(masks: Flags, columns: Ints) -> Counts:
    """Return the number of paths [N] through the states that the masks [M, S] of each column [N, J] allow."""
    by_block = np.stack([masks[:, block].sum(1) for block in BLOCKS], -1).astype(object)
    zero, one = np.full((2, len(columns)), 0, dtype=object)
    zero += 1
    for column in columns.T:
        stays, rises, falls, carries = by_block[column].T
        zero, one = zero * stays + one * falls, zero * rises + one * carries
    total: Counts = zero + one
    return total


def pairs_of(digits: int, is_difference: bool) -> int:
    """Return how many pairs of numbers of so many digits are asked: of differences, those that are not below 0."""
    numbers: int = 10**digits
    return numbers * (numbers + 1) // 2 if is_difference else numbers**2


def first_cases(k: int, token: int, digits: int = COLUMNS, is_difference: bool = False) -> Cases:
    """Return the coarsest cases of digit k asked for at a token that have pairs: by its answer, and if it carries.

    digits: columns that are not always 0 and 0. Each pair is in one case of one token of each digit.
    """
    first, second, answer = ROLES[is_difference]
    allowed = np.ones((COLUMNS, len(STATES)), dtype=bool)
    allowed[0] = IN == 0
    allowed[digits:] &= (first == 0) & (second == 0)
    if is_difference:
        allowed[-1] &= OUT == 0
    if 1 <= k <= COLUMNS:
        allowed[k - 1] &= token == answer
    if k < COLUMNS:
        labels, column, of_state = np.arange(20), k, answer + 10 * OUT
        right = labels % 10
    else:
        labels, column, of_state = np.arange(2), COLUMNS - 1, OUT
        right = labels
    if k > COLUMNS:
        labels, right = labels[[token]], np.array([12])
    of_label = allowed[column] & (of_state[None] == labels[:, None])
    masks = np.concatenate([allowed, of_label])
    columns = np.tile(np.arange(COLUMNS), (len(labels), 1))
    columns[:, column] = COLUMNS + np.arange(len(labels))
    return Cases.that_have_pairs(masks, columns, right, labels)


class Sums:
    """Sums over columns of one head for one query."""

    def __init__(self, net: Net, query: Query, h: int):
        self.net, self.query, self.head = net, query, query.heads[h]
        length, fixed = net.prompt + query.k, list(net.fixed)
        if query.k > COLUMNS:
            fixed.append((length - 1, query.token))
        self.fixed = tuple(np.array(fixed).T)
        places = [[net.place(n, j) if n < 2 or j < query.k else length for j in range(COLUMNS)] for n in range(3)]
        self.terms_of = np.array(places)[..., None] * net.vocabulary + np.array(ROLES[net.is_difference])[:, None]
        """Where a column's x, y and z are among terms [T + 1, V], by its state [3, J, S]; the last ones are 0."""

    def by_column(self, term_TV: Array) -> tuple[Array, Array]:
        """Return what each state of each column adds [J, S, ...], and what is fixed [...], of terms [T, V, ...]."""
        rows = flat(term_TV)
        total: Array = rows.take(self.terms_of[0], axis=0)
        for places in self.terms_of[1:]:
            total += rows.take(places, axis=0)
        return total, term_TV[self.fixed].sum(0)

    def terms(self) -> tuple[Array, Array]:
        """Return what each state of each column adds to N and D [J, S, R + 1], and what is fixed [R + 1]."""
        weight = self.head.weight[..., None]
        return self.by_column(np.concatenate([weight * self.head.value, weight], -1))

    def of(self, states: Ints) -> tuple[Array, Array]:
        """Return the real N [N, R] and D [N] of inputs, given as states [N, J]."""
        columns, fixed = self.terms()
        total = columns[np.arange(COLUMNS)[None], states].sum(1) + fixed
        return total[:, :-1], total[:, -1]

    def highest(self, direction: Array, cases: Cases, rounded: bool = True) -> tuple[Array, Ints]:
        """Return upper bounds of direction · N / D over all inputs of cases, roundings of weights and values
        included [N], and the inputs where they are reached, as states [N, J]. Raises Lost unless all are numbers.

        Dinkelbach: with λ the quotient of some inputs, those with the largest N - λD are better, or λ is the
        largest. rounded: False leaves the roundings out.
        """
        head = self.head
        u, e = head.value @ direction, head.weight
        spread = head.spread * rounded
        over = e * (1 + spread) * (head.error @ np.abs(direction)) * rounded
        level = np.zeros(len(cases))
        size = np.abs(u).max() + 1e-300
        shared = head.shared[:, None, None] * rounded
        least = (1 - shared.max()) * sum(part.min(-1).sum() for part in self.by_column(e * (1 - spread)))
        require_weight(least)
        rows, columns = np.arange(len(cases))[:, None], np.arange(COLUMNS)[None]
        for _ in range(60):
            distance = u[..., None] - level  # [T, V, N]
            weight = e[..., None] * (1 + np.copysign(spread[..., None], distance))
            costs, fixed = self.by_column(weight * distance + over[..., None])
            require_finite(costs)
            common = 1 + np.copysign(shared, costs)
            best, states = longest(costs * common, cases)
            best = best + fixed
            below = flat(weight)[self.terms_of[:, columns, states], rows].sum(0)
            total = (below * common[columns, states, rows]).sum(1) + weight[self.fixed].sum(0)
            error = ROUNDING * (size + np.abs(level)) * total
            if (np.abs(best) <= error).all():
                return level + (np.maximum(best, 0) + error) / least, states
            level = level + best / total
        raise Lost("the extremes were not reached")


def flat(term_TV: Array) -> Array:
    """Return terms [(T + 1) V, ...] with zeros behind the last position."""
    length, tokens, *rest = term_TV.shape
    return np.concatenate([term_TV, np.zeros_like(term_TV[:1])]).reshape((length + 1) * tokens, *rest)


def longest(costs: Array, cases: Cases) -> tuple[Array, Ints]:
    """Return for each case the largest sum of costs [J, S, N] over its inputs [N], and its states [N, J]."""
    n = len(cases)
    rows = np.arange(n)
    best = np.full((n, 2), -np.inf)
    best[:, 0] = 0.0
    gain = np.where(cases.masks[cases.columns.T], costs.transpose(0, 2, 1), -np.inf)
    states = np.stack([gain[..., block].argmax(2) + block.start for block in BLOCKS], -1)
    gains = np.take_along_axis(gain, states, 2)
    picks = np.zeros((COLUMNS, n, 2), dtype=np.int64)
    for j in range(COLUMNS):
        reached = gains[j] + best.repeat(2, axis=1)
        stays = reached[:, :2] >= reached[:, 2:]
        best = np.where(stays, reached[:, :2], reached[:, 2:])
        picks[j] = np.where(stays, states[j, :, :2], states[j, :, 2:])
    carry = best.argmax(1)
    value = best[rows, carry]
    path = np.zeros((n, COLUMNS), dtype=np.int64)
    for j in reversed(range(COLUMNS)):
        path[:, j] = picks[j, rows, carry]
        carry = IN[path[:, j]]
    return value, path


def numbers(states: Ints, is_difference: bool = False) -> tuple[int, int]:
    """Return the two numbers of one input [J]."""
    a, b = (sum(int(d) * 10**j for j, d in enumerate(digit[states])) for digit in ROLES[is_difference][:2])
    return a, b


def split(sums: list[Sums], cases: Cases) -> tuple[Cases, Cases]:
    """Split each case by the column that moves a channel most, into groups of states that move it alike.

    Returns the new cases, and those whose columns move nothing. Their pairs together are those of the given cases.
    """
    allowed = cases.states()
    effect: Array = np.zeros(1)  # of each state on the channels, near some input of the case [N, J, S, R]
    for head_sums in sums:
        terms, fixed = head_sums.terms()
        total = terms[np.arange(COLUMNS), allowed.argmax(2)].sum(1) + fixed
        numerators, denominators = total[:, None, None, :-1], total[:, None, None, -1:]
        effect = effect + (terms[..., :-1] - numerators / denominators * terms[..., -1:]) / denominators
    high = np.where(allowed[..., None], effect, -np.inf).max(2)
    low = np.where(allowed[..., None], effect, np.inf).min(2)
    spread = (high - low).reshape(len(cases), high.shape[1] * high.shape[2])
    moves = spread.max(1) > 0
    rows = np.flatnonzero(moves)
    column, channel = np.divmod(spread[rows].argmax(1), high.shape[2])
    least, most = low[rows, column, channel, None], high[rows, column, channel, None]
    share = (np.clip(effect[rows, column, :, channel], least, most) - least) / (most - least)
    groups = np.minimum((share * GROUPS).astype(int), GROUPS - 1)
    masks = allowed[rows, column][:, None] & (groups[:, None] == np.arange(GROUPS)[:, None])
    owner, group = np.nonzero(masks.any(2))
    columns = cases.columns[rows[owner]]
    columns[np.arange(len(owner)), column[owner]] = len(cases.masks) + np.arange(len(owner))
    used, inverse = np.unique(columns, return_inverse=True)
    children = Cases.that_have_pairs(
        np.concatenate([cases.masks, masks[owner, group]])[used],
        inverse.reshape(columns.shape),
        cases.right[rows[owner]],
        cases.label[rows[owner]],
    )
    return children, cases[~moves]
