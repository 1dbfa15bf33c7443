"""Problems: the batch at step t is a pure function of (data_seed, t).

Random words come from a counter (model/counter.py). Nothing is saved, nothing restored, and a seed sees the same
problems wherever and with whomever it runs.

Numbers are float64: every one is an integer below 2^53, so sums and products are exact, and floors are
taken half a unit away from the next integer; the same bits come out of every compiler and device.

Axes: R rows (steps × seeds), B problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from model.counter import fraction, mix, words
from model.tasks import ADDITION, Columns, Task, in_columns

if TYPE_CHECKING:
    from model.spec import Spec


SELECTION_SEED = -0x5E1EC7  # the selection problems' data seed; a study's seeds are never negative


def _power(base: int, exponent: Tensor) -> Tensor:
    """Return base^exponent as float64 for int64 exponents 0 to 31, by the exponent's bits.

    Every partial product is exact, which pow() promises nowhere.
    """
    # A factor for each bit of the exponent, never in a tensor of its own: that would be of single precision.
    out = torch.ones_like(exponent, dtype=torch.float64)
    for bit in (1, 2, 4, 8, 16):
        out = torch.where((exponent & bit) != 0, out * float(base**bit), out)
    return out


def _low_digits(fraction: Tensor, halves: Tensor, task: Columns) -> Tensor:
    """Return a number whose n digits are uniform below half the base; `halves` is (base // 2)^n.

    In base ten the base-5 digits of t, read in base 10: t + sum of floor(t / 5^i) · 5 · 10^(i-1).
    """
    low = task.base // 2
    t = torch.floor(fraction * halves)
    number = t
    for i in range(1, task.digits):
        above = torch.floor((t + 0.5) * (1 / low**i))  # t without its last i digits
        number = number + above * (float(task.base - low) * task.base ** (i - 1))
    return number


class Kinds(NamedTuple):
    """Numbers of a carry schedule beside the share of carry problems, each [R].

    by_kind: above 0 if kinds have shares of their own; else they are equally likely. single, chain, place: the
    share of carry problems of that kind and those before it.
    """

    by_kind: Tensor
    single: Tensor
    chain: Tensor
    place: Tensor


def sample(
    data_seed_R: Tensor,
    step_R: Tensor,
    digits_R: Tensor,
    carry_mix_R: Tensor,
    batch: int,
    mixed_lengths_R: Tensor | None = None,
    kinds_R: Kinds | None = None,
    task: Columns = ADDITION,
) -> tuple[Tensor, Tensor]:
    """Return the operands of training problems: two tensors [R, B] of float64 integers.

    data_seed_R, step_R: name each row's problems (int64). digits_R: largest operand length (int64). carry_mix_R:
    probability of a carry problem. batch: problems per row. mixed_lengths_R: see below; None is 0. task: in whose base
    they are drawn, and by which they are asked (`Task.asked`).

    An ordinary problem has both numbers uniform below 10^digits; with probability mixed_lengths, below 10^n,
    n uniform in 1..digits (456p report, training code). A carry problem uses n columns, and is one of four
    kinds, equally likely, unless `kinds_R` says otherwise (57p paper, section 3.2, and its training code):

    - single: one column with both digits in 5..9, the others in 0..4
    - chain: n nines, plus 1..10^min(n, 3)
    - place: exactly n digits, plus one digit 1..9 at one column
    - boundary: 10^n less 1..10, plus 1..20

    That is base ten; another one has its half in place of 5, and no number more columns than the task.
    """
    word_a, word_b, word_kind, word_extra = words(data_seed_R, step_R, batch, 4)
    # Uniform numbers out of four words, each from bits of its own; the kind is the two lowest bits of its word.
    u = fraction(word_a, 11, 53)
    v = fraction(word_b, 11, 53)
    which = fraction(word_kind, 32, 32)
    kind = word_kind & 3
    e, f, g = (fraction(word_extra, low, 21) for low in (0, 21, 42))
    n = 1 + torch.floor(e * digits_R[:, None]).to(torch.int64)
    if kinds_R is not None:
        upto = (kinds_R.single, kinds_R.chain, kinds_R.place)
        later = torch.zeros_like(kind)  # the kinds whose shares end before the fraction
        for share_R in upto:
            later += which >= share_R.double()[:, None]
        kind = torch.where(kinds_R.by_kind[:, None] > 0, later, kind)
    kind = torch.where(which < carry_mix_R.double()[:, None], kind, -1)
    column = torch.floor(f * n).to(torch.int64)

    base, low, last = task.base, task.base // 2, task.limit - 1
    limit = _power(base, digits_R)[:, None]
    tens = _power(base, n)
    halves = _power(low, n)
    place = _power(base, column)
    lowest = _power(base, n - 1)  # of n digits
    if mixed_lengths_R is not None:
        mixed = fraction(word_kind, 2, 30) < mixed_lengths_R.double()[:, None]
        limit = torch.where(mixed, tens, limit)
    # All kinds of all problems, then a choice: the same operations for each, as in the engine (problems.h).
    of_kind = {
        "ordinary": (torch.floor(u * limit), torch.floor(v * limit)),
        "single": (
            _low_digits(u, halves, task) + (base - low) * place,
            _low_digits(v, halves, task) + (base - low) * place,
        ),
        "chain": (tens - 1, 1 + torch.floor(v * tens.clamp(max=min(base**3, last)))),
        "place": (
            lowest + torch.floor(u * (tens - lowest)),
            (1 + torch.floor(g * (base - 1))) * place,
        ),
        "boundary": (tens - 1 - torch.floor(g * base), 1 + torch.floor(v * min(2 * base, last))),
    }
    (a, b), *carries = of_kind.values()
    for number, (carry_a, carry_b) in enumerate(carries):
        is_kind = kind == number
        a = torch.where(is_kind, carry_a, a)
        b = torch.where(is_kind, carry_b, b)
    if task.numbers == 3:
        # As long as the two, of no kind, and from a word that neither of them has used.
        longest = torch.where(kind < 0, limit, tens)
        third = torch.floor(fraction(mix(word_a - word_b), 11, 53) * longest)
        # A problem is two numbers: the third one's halves lie above them.
        above = torch.floor((third + 0.5) * (1 / task.half))
        below = third - task.half * above
        return a + task.limit * below, b + task.limit * above
    return a, b


MARK = 1_000  # above every token


def marked(spec: Spec) -> list[int]:
    """Return a spec's sequence with marks in place of digits. Other tokens stay as they are.

    Columns count from 0, units first: those of the numbers, at least two, then the answer's. A mark is MARK plus the
    column's count.
    """
    task = in_columns(spec.task)
    # Three numbers and an answer of a digit more need so many marks.
    digits = task.digits
    marks = [torch.tensor(MARK + n) for n in range(4 * digits + 1)]
    numbers = [marks[n * digits :][:digits] for n in range(task.numbers)]
    answer = marks[max(2, task.numbers) * digits :][: task.answers]
    return [int(token) for token in spec.sequence(*numbers, answer)]


def selection(task: Task = ADDITION, count: int = 5_000) -> tuple[Tensor, Tensor]:
    """Return a task's selection problems [1, count]: of columns uniform pairs of full length, the same for every study.

    They decide which θ is kept and what has grokked; what verifies it (AdderBoard's official additions) never does.
    """
    if not isinstance(task, Columns):
        return task.selection(count)
    # One row: problems of step 0, of all digits, without carry problems.
    zero = torch.zeros(1, dtype=torch.int64)
    return sample(zero + SELECTION_SEED, zero, zero + task.digits, zero.double(), count, task=task)
