"""Is a net right on all 10^20 pairs? By induction over the answer's digits.

All earlier digits being right, digit k is asked for at a token that the two numbers decide. For each such token
and each sum of column k with its carry, attention's channels lie in a box: their exact extremes over all pairs,
float32's roundings included (columns.py). On the box the right token must win by more than the roundings
that follow (gaps.py). A box that does not decide is halved; a case that halving leaves open is split by what one more
column holds.

The decided cases of each digit must have all pairs, counted in whole numbers (`Prover.left`), or the verdict is
UNDECIDED. A number that is lost ends the proof (Lost).

Axes: N case, R channel, V vocabulary, J column, S state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adders.proof.attention import Attention, Query
from adders.proof.columns import (
    Cases,
    Flags,
    Ints,
    Sums,
    first_cases,
    in_portions,
    longest,
    numbers,
)
from adders.proof.columns import split as split_cases
from adders.proof.gaps import Gaps
from adders.proof.here import Captured, capture
from adders.proof.net import Asked, Net, view
from adders.proof.program import Program
from adders.proof.rounding import (
    ANY,
    HERE,
    Array,
    Lost,
    Machine,
    no_lost_numbers,
    require_finite,
)
from model.adderboard import failures
from model.tied import ties_of
from model.verdict import COUNTEREXAMPLE, PROVED, UNDECIDED

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

Predicate = Callable[[Array, Array, Ints], Flags]
"""Of boxes from low to high [N, R] whose right tokens are known [N]."""
Watch = Callable[[int, int], None]
TIME = "time"
HALVINGS = 16
"""Of a box of one channel."""
HALVINGS_OF_SEVERAL = 2
"""Of a box of several channels: its cases are split instead, which narrows all of them."""
MOST_BOXES = 2_000
"""Boxes that are halved together at most: where two tokens tie, halving leaves ever more."""
RUN = 40
"""Candidates that are run through the program at most."""
PROBES = 7
"""Seed of the pairs that are decoded where nothing is decided."""


@dataclass(frozen=True)
class Wrong:
    """A pair that the exported program adds wrongly."""

    a: int
    b: int
    answer: int


@dataclass(frozen=True)
class Open:
    """Cases of one digit and token that were not decided, and why."""

    digit: int
    token: int
    cases: int
    reason: str


@dataclass
class Proof:
    """A verdict on all pairs whose columns from `digits` on are 0 + 0."""

    level: str
    digits: int = Asked.columns
    verdict: str = UNDECIDED
    wrong: list[Wrong] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    margin: float = float("inf")
    """Smallest difference of the right token's logit and the next one at the ends of cases: of `pair`, at `digit`."""
    pair: tuple[int, int] = (0, 0)
    digit: int = 0
    room: float = float("inf")
    """Smallest quotient of a gap and the bound of float32's error in it, over all boxes."""
    cases: int = 0
    boxes: int = 0
    seconds: float = 0.0
    """Of one core."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; no margin where no case was looked at, no room where no box was won."""
        smallest = {"margin": self.margin, "room": self.room}
        return asdict(self) | {name: value if np.isfinite(value) else None for name, value in smallest.items()}


def prove(
    spec: Spec,
    theta_P: Tensor,
    machine: Machine | None = None,
    *,
    digits: int | None = None,
    limit_s: float = 600,
    watch: Watch = lambda done, total: None,
) -> Proof:
    """Decide all pairs of numbers of so many digits; None: of as many as the task has.

    machine: None: on any machine, and on this one where that leaves something to rounding. What is not decided after
    `limit_s` seconds stays open. `watch` gets how many steps are done, and of how many. Raises ValueError where the
    family is not known.
    """

    asked = Asked.of(spec.task)
    digits = asked.columns if digits is None else digits

    def at(level: Machine) -> Proof:
        # a number that is lost proves nothing, and refutes nothing: the verdict stays UNDECIDED
        try:
            with no_lost_numbers():
                return Prover(spec, theta_P, level, digits, limit_s).run(watch)
        except Lost as lost:
            return Proof(level.name, digits, open=[Open(0, 0, 0, str(lost))])

    proof = at(machine or ANY)
    has_time = all(left.reason != TIME for left in proof.open)
    family = ties_of(spec)[0].family
    # what the rope family's program computes on the way cannot be taken from its run (here.py)
    if machine is None and proof.verdict == UNDECIDED and has_time and family != "rope":
        proof = at(HERE)
    if proof.verdict == UNDECIDED:
        wrong = _some_wrong(spec, theta_P, digits)
        if wrong:
            proof.verdict = COUNTEREXAMPLE
            proof.wrong = [wrong]
    return proof


def _some_wrong(spec: Spec, theta_P: Tensor, digits: int) -> Wrong | None:
    """Draw a pair from each of the coarsest cases; return one that the exported program adds wrongly, if any."""
    draws = np.random.default_rng(PROBES)
    pairs = set[tuple[int, int]]()
    asked = Asked.of(spec.task)
    for k in range(asked.columns + 1):
        for token in range(asked.base):
            cases = first_cases(k, token, digits, asked)
            # the longest path by random costs is a random pair of the case
            _, states = longest(draws.random((asked.columns, len(cases.of), len(cases))), cases)
            pairs |= {numbers(row, asked) for row in states}
    program = Program(spec, theta_P)
    # batches decode fast, and not to the bit as the program does: its word counts
    for a, b, _ in failures(spec, theta_P, sorted(pairs))[:RUN]:
        answer = program.add(a, b)
        if answer != spec.task.value(a, b):
            return Wrong(a, b, answer)
    return None


def worst_pairs(spec: Spec, theta_P: Tensor) -> list[tuple[float, int, int, int]]:
    """Return (margin in logits, digit, a, b) of pairs at the ends of all cases, the smallest margin first.

    Raises ValueError where the family is not known, and Lost, a ValueError too, where numbers are lost.
    """
    rows = set()
    with no_lost_numbers():
        prover = Prover(spec, theta_P, ANY, Asked.of(spec.task).columns, float("inf"))
        for query in prover.queries():
            cases = query.first_cases()
            _, _, ends = query.extremes(cases)
            for states in ends:
                margins = query.margins(states, cases.right)
                for margin, row in zip(margins, states, strict=True):
                    rows.add((float(margin), query.query.k, *numbers(row, prover.net.asked)))
    return sorted(rows)


class Prover:
    """One net at one level."""

    def __init__(self, spec: Spec, theta_P: Tensor, machine: Machine, digits: int, limit_s: float):
        self.start = time.process_time()
        self.end = self.start + limit_s
        self.machine = machine
        self.program = Program(spec, theta_P)
        self.value = spec.task.value
        self.net: Net = view(spec, theta_P, machine)
        self.attention = Attention(self.net, machine)
        if machine == HERE:
            self.net = capture(self.net, self.program)
            self.attention = Captured(self.net, machine, self.program)
        self.proof = Proof(machine.name, digits)
        self.left = [self.net.asked.pairs(digits)] * self.net.steps
        """The number of pairs of which each digit is not decided."""
        self.candidates: list[tuple[float, tuple[int, int]]] = []
        """Pairs that real numbers add wrongly, each behind its margin."""

    def queries(self) -> Iterator[QueryProver]:
        """Yield what is to be proved: each digit, asked for at each token that can stand before it."""
        for k in range(self.net.steps):
            for query in self.attention.ask(k):
                yield QueryProver(self, query)

    def run(self, watch: Watch) -> Proof:
        """Return the proof. `watch` gets how many steps are done, and of how many."""
        proof = self.proof
        queries = list(self.queries())
        steps = 2 * len(queries)
        for n, query in enumerate(queries):
            query.begin()
            watch(n + 1, steps)
        # All coarse cases first, which is fast, and then the slow ones.
        # Most wrong nets show it at the ends of cases, before any box is halved
        self._run_candidates()
        if not proof.wrong:
            for n, query in enumerate(queries):
                query.decide()
                watch(len(queries) + n + 1, steps)
            self._run_candidates()
        if proof.wrong:
            proof.verdict = COUNTEREXAMPLE
        elif not (any(self.left) or self.candidates):
            proof.verdict = PROVED
        proof.seconds = time.process_time() - self.start
        return proof

    def _run_candidates(self) -> None:
        """Run the pairs that should be wrong through the program, the worst first, until one is."""
        self.candidates.sort()
        for _, (a, b) in self.candidates[:RUN]:
            answer = self.program.add(a, b)
            if answer != self.value(a, b):
                self.proof.wrong.append(Wrong(a, b, answer))
                return


class QueryProver:
    """One query of a net: where digit k is asked for, at one token."""

    def __init__(self, prover: Prover, query: Query):
        self.prover = prover
        self.query = query
        self.proof = prover.proof
        net = self.net = prover.net
        self.sums = [Sums(net, query, h) for h in range(net.heads)]
        self.gaps = Gaps(net, query, prover.machine)
        self.channels = net.channels.shape[1]

    def first_cases(self) -> Cases:
        """Return the coarsest cases of this query."""
        return first_cases(self.query.k, self.query.token, self.proof.digits, self.net.asked)

    def begin(self) -> None:
        """Bound the coarsest cases and look at their ends."""
        self.boxed = self._boxes(self.first_cases())

    def decide(self) -> None:
        """Halve boxes and split cases until all is decided or the time is up."""
        todo = list[Cases]()
        boxed = self.boxed
        while True:
            cases, low, high, right = boxed
            decided = right.copy()
            decided[right] = self.halved(self.wins, low[right], high[right], cases.right[right])
            self.prover.left[self.query.k] -= cases.pairs[decided].sum()

            children, stuck = split_cases(self.sums, cases[np.flatnonzero(right & ~decided)])
            self._leave(len(stuck), "no case is left to split")
            todo += in_portions(children)
            if time.process_time() > self.prover.end:
                self._leave(sum(map(len, todo)), TIME)
                return
            if not todo:
                return
            boxed = self._boxes(todo.pop())

    def _leave(self, cases: int, reason: str) -> None:
        """Note how many cases stay open, and why."""
        if cases:
            self.proof.open.append(Open(self.query.k, self.query.token, cases, reason))

    def _boxes(self, cases: Cases) -> tuple[Cases, Array, Array, Flags]:
        """Return cases, their boxes [N, R], and True where their ends are right [N]."""
        low, high, ends = self.extremes(cases)
        self.proof.cases += len(cases)
        return cases, low, high, self._right_at(ends, low, high, cases)

    def extremes(self, cases: Cases) -> tuple[Array, Array, list[Ints]]:
        """Return the boxes of cases, from low to high [N, R], and the inputs at their ends [N, J].

        The ends are those of each channel, the high one first, and of each head.
        """
        low, high = np.zeros((2, len(cases), self.channels))
        ends = []
        for r in range(self.channels):
            for sign, side in ((1.0, high), (-1.0, low)):
                direction = np.zeros(self.channels)
                direction[r] = sign
                # Heads are bounded one by one, so with several a box may be larger than what all of them reach
                total = np.full(len(cases), self.query.loss[r])
                for sums in self.sums:
                    value, states = sums.highest(direction, cases)
                    total = total + value
                    ends.append(states)
                side[:, r] = sign * total
        require_finite(low, high)
        return low, high, ends

    def _rivals(self, right: Ints) -> Flags:
        """Return True for the tokens that may not win [N, V]."""
        rivals: Flags = np.arange(self.net.vocabulary)[None] != right[:, None]
        base, columns = self.net.asked.base, self.net.asked.columns
        # a token that is no digit from 1 on leaves the number as it is
        if self.query.k > columns:
            rivals[:, 0] = rivals[:, base:] = False
        elif self.query.k == columns:
            rivals[right == 0, base:] = False
        return rivals

    def _right_at(self, ends: list[Ints], low: Array, high: Array, cases: Cases) -> Flags:
        """Return True for cases whose ends are right by more than roundings [N]; note the margin, and the other cases.

        No splitting helps a case with an end that is not: some case has that input. With one head, float32 may reach
        the very end of a box there, so the box's own end is looked at.
        """
        rivals = self._rivals(cases.right)
        sure: Flags = np.ones(len(cases), dtype=bool)
        # an end is a box of one point, which no halving makes smaller
        for n, states in enumerate(ends):
            channels = self._channels(states)
            self._note(self.margins(states, cases.right), states)
            if len(self.sums) == 1:
                r, is_low = divmod(n, 2)
                channels[:, r] = (low if is_low else high)[:, r]
            bounds = self.gaps.over(channels, channels, cases.right)
            sure &= (~rivals | (bounds.low > bounds.loss)).all(1)
        self._leave(int((~sure).sum()), "rounding")
        return sure

    def margins(self, states: Ints, right: Ints) -> Array:
        """Return how far the right tokens' logits exceed the next ones [N], of inputs given as states [N, J]."""
        gaps, scale = self.gaps.at(self._channels(states), right)
        logits = gaps / scale[:, None]
        margins: Array = np.where(self._rivals(right), logits, np.inf).min(1)
        return margins

    def _channels(self, states: Ints) -> Array:
        """Return the real channels [N, R] of inputs, given as states [N, J]."""
        total = np.zeros((len(states), self.channels))
        for sums in self.sums:
            numerators, denominators = sums.of(states)
            total += numerators / denominators[:, None]
        return total

    def _note(self, margins: Array, states: Ints) -> None:
        """Keep the smallest margin and the candidates for wrong answers."""
        proof = self.proof
        # three of each end are enough: only RUN of all queries' candidates are run
        for i in np.argsort(margins)[:3]:
            margin = float(margins[i])
            pair = numbers(states[i], self.net.asked)
            if margin < proof.margin:
                proof.margin = margin
                proof.pair = pair
                proof.digit = self.query.k
            if margin < 0:
                self.prover.candidates.append((margin, pair))

    def halved(self, holds: Predicate, low: Array, high: Array, right: Ints) -> Flags:
        """Return True for boxes from low to high, on all of which `holds` is true [N].

        Where it is not true of a box, its halves along the widest side are asked, and so on.
        """
        whole: Flags = np.ones(len(low), dtype=bool)
        owner = np.arange(len(low))
        halvings = HALVINGS if self.channels == 1 else HALVINGS_OF_SEVERAL
        for depth in range(halvings + 1):
            is_open = ~holds(low, high, right[owner])
            owner = owner[is_open]
            low = low[is_open]
            high = high[is_open]
            if not len(owner) or depth == halvings or len(owner) > MOST_BOXES:
                break
            rows = np.arange(len(owner))
            side = (high - low).argmax(1)
            middle = 0.5 * (low + high)[rows, side]
            from_middle = low.copy()
            to_middle = high.copy()
            from_middle[rows, side] = to_middle[rows, side] = middle
            owner = np.tile(owner, 2)
            low = np.concatenate([low, from_middle])
            high = np.concatenate([to_middle, high])
        whole[owner] = False
        return whole

    def wins(self, low: Array, high: Array, right: Ints) -> Flags:
        """Return True for boxes on which the right token wins [N]."""
        bounds = self.gaps.over(low, high, right)
        rivals = self._rivals(right)
        # a bound that is no number is larger than nothing, so it decides nothing
        good: Flags = np.all(~rivals | (bounds.low > bounds.loss), axis=1)
        self.proof.boxes += len(low)
        if good.any():
            room = np.where(rivals, bounds.low / bounds.loss, np.inf)[good].min()
            self.proof.room = min(self.proof.room, float(room))
        return good

    def loses(self, low: Array, high: Array, right: Ints) -> Flags:
        """Return True for boxes on which one other token, the likeliest in the middle, wins [N]."""
        rivals = self._rivals(right)
        gaps, _ = self.gaps.at(0.5 * (low + high), right)
        # one rival is asked, as a box with two of them is halved until one wins
        rival = np.where(rivals, gaps, np.inf).argmin(1)
        # it need only beat the tokens that would be right: which of the wrong ones wins is no matter
        bounds = self.gaps.over(low, high, rival)
        lost: Flags = np.all(rivals | (bounds.low > bounds.loss), axis=1)
        return lost
