"""Problems: the batch at step t is a pure function of (data_seed, t).

Random words come from a counter: SplitMix64's finaliser over data seed, step, problem and word
number (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). Nothing
is saved, nothing restored, and a seed sees the same problems wherever and with whomever it runs.
The constants below were fixed before any result was known.

Numbers are float64: every one is an integer below 2^53, so sums and products are exact, and floors are
taken half a unit away from the next integer; the same bits come out of every compiler and device.

Axes: R rows (steps × seeds), B problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from model.tasks import ADDITION, Task

if TYPE_CHECKING:
    from model.spec import Spec


def _signed(word: int) -> int:
    """Return the int64 with the low 64 bits of an integer."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


GOLDEN = _signed(0x9E3779B97F4A7C15)
MIX_1 = _signed(0xBF58476D1CE4E5B9)
MIX_2 = _signed(0x94D049BB133111EB)
STREAM = _signed(0xD1B54A32D192ED03)  # separates steps from problems
APART = _signed(0xA24BAED4963EE407)  # separates other random numbers from both
SELECTION_SEED = -0x5E1EC7  # the selection problems' data seed; a study's seeds are never negative


def _shift(word: Tensor, bits: int) -> Tensor:
    """Shift int64 words right, filling up with 0: torch's shift fills up with the sign."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def mix(word: Tensor) -> Tensor:
    """Mix int64 words by SplitMix64's finaliser, a bijection."""
    word = (word ^ _shift(word, 30)) * MIX_1
    word = (word ^ _shift(word, 27)) * MIX_2
    return word ^ _shift(word, 31)


def words(data_seed_R: Tensor, step_R: Tensor, batch: int, count: int) -> list[Tensor]:
    """Return `count` random int64 words [R, B] for each problem of each row."""
    # Two rounds: neighbouring seeds and steps must have unrelated streams.
    key_R = mix(mix(data_seed_R * GOLDEN + STREAM) + step_R * GOLDEN)
    problem_B = torch.arange(batch, dtype=torch.int64, device=step_R.device)
    counter_RB = key_R[:, None] + problem_B * _signed(count * GOLDEN)
    return [mix(counter_RB + _signed((w + 1) * GOLDEN)) for w in range(count)]


def fraction(word: Tensor, low: int, bits: int) -> Tensor:
    """Return `bits` bits of a word from bit `low` up, as a float64 in [0, 1)."""
    mask = (1 << bits) - 1
    return (_shift(word, low) & mask).double() * 2.0**-bits


def _power(base: int, exponent: Tensor) -> Tensor:
    """Return base^exponent as float64 for int64 exponents 0 to 31, by the exponent's bits.

    Every partial product is exact, which pow() promises nowhere.
    """
    # A factor for each bit of the exponent.
    out = torch.ones_like(exponent, dtype=torch.float64)
    for bit in (1, 2, 4, 8, 16):
        out = out * torch.where((exponent & bit) != 0, float(base**bit), 1.0)
    return out


def _low_digits(fraction: Tensor, halves: Tensor, task: Task) -> Tensor:
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
    task: Task = ADDITION,
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
    return a, b


def columns(number: Tensor, task: Task) -> list[Tensor]:
    """Return the digits of float64 integers, units first: tensors of the same shape."""
    cut = [number]
    for n in range(1, task.digits + 1):
        above = torch.floor((number + 0.5) * (1 / task.base**n))
        cut.append(above)
    return [here - task.base * above for here, above in pairwise(cut)]


def sequence_columns(a: Tensor, b: Tensor, task: Task = ADDITION) -> Sequence[list[Tensor]]:
    """Return the digit columns of both numbers and of the answer, units first, for two numbers that were drawn."""
    x, y = (columns(number, task) for number in task.asked(a, b))
    return x, y, task.answer(x, y)


MARK = 1_000  # above every token


def marked(spec: Spec) -> list[int]:
    """Return a spec's sequence with marks for digits, other tokens as they are.

    A mark is MARK plus the place of its column among those of both operands and their answer, units first.
    """
    digits = spec.task.digits
    marks = [torch.tensor(MARK + n) for n in range(3 * digits + 1)]
    x = marks[:digits]
    y = marks[digits : 2 * digits]
    z = marks[2 * digits :]
    return [int(token) for token in spec.sequence(x, y, z)]


def selection(task: Task = ADDITION, count: int = 5_000) -> tuple[Tensor, Tensor]:
    """Return a task's selection problems: uniform pairs [1, count] of full length, the same for every study.

    They decide which θ is kept and what has grokked; what verifies it (AdderBoard's official additions) never does.
    """
    # One row: problems of step 0, of all digits, without carry problems.
    zero = torch.zeros(1, dtype=torch.int64)
    return sample(zero + SELECTION_SEED, zero, zero + task.digits, zero.double(), count, task=task)
