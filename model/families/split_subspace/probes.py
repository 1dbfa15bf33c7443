"""Probes of the split_subspace family with one head and a rank-1 output, as docs/luck.md defines them.

Attention's value of digit d is then one number, v(d): the column of the output, through the values, times the
first norm's weights, times the digit's entry of the token table.

Axes: S seed, P parameters, V vocabulary.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from model.families.split_subspace.spec import SplitSubspace
from model.tasks import ADDITION

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Probe

DIGITS = ADDITION.digits
ODD = 0.9
"""Share from which a code of digits counts as odd; on a trained arc it is near 1 or near 0."""
SWITCHED = 1 - 1e-9
"""Value of `turns` from which a unit switches: its input has one sign at a total of 8, the other at 11."""
PLACE, EACH = 5, 16
"""The answer's digit at which `turns` looks, and the number of problems of either total."""


def probes(spec: SplitSubspace) -> dict[str, Probe]:
    """Return the probes of a spec: those whose tensors it has, and where v(d) is one number. They are about sums."""
    names: dict[str, Probe] = {}
    if spec.task != ADDITION:
        return names
    # In this order curves and saved states have them.
    if spec.rank1_out and spec.heads == 1:
        names["odd"] = odd
        if spec.tie_fc2_head:
            names["basin"] = basin
        names["switches"] = switches
    if spec.arc:
        names["stride"] = stride
    if spec.heads == 1 and spec.spiral and not (spec.toeplitz_q or spec.circulant_q or spec.rank1_q):
        names["lead"] = lead
    return names


def odd(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return the distance of v(0) and v(9) relative to the range of v [S].

    It is 1 where the code is monotone (odd), 0 where both ends look alike (even).
    """
    return _oddness(values(spec, theta_SP))


def basin(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return 1 where the code is odd and FFN and attention output have the signs of all recorded winners [S].

    Each hidden unit reads its own token axis against the other, and attention writes to both, one up, one down.
    """
    from model.families.split_subspace.forward import ffn_weights

    v_SV = values(spec, theta_SP)
    reads_S22, writes_S21 = ffn_weights(spec, theta_SP)
    (a_S, b_S), (c_S, d_S) = (row.unbind(1) for row in reads_S22.unbind(1))
    units_S = (a_S > 0) & (b_S < 0) & (c_S < 0) & (d_S > 0)

    # attention writes up where values rise with the digit
    rising_S = (v_SV[:, 9] - v_SV[:, 0]).sign()
    up_S = rising_S * writes_S21[:, 0, 0] > 0
    down_S = rising_S * writes_S21[:, 1, 0] < 0
    is_odd_S = _oddness(v_SV) > ODD
    return (units_S & up_S & down_S & is_odd_S).to(theta_SP.dtype)


def switches(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return 1 where one hidden unit turns on and another off as a column's total passes ten [S].

    It is about a half where only one unit switches, 0 where all do the same.
    """
    turn_SF = turns(spec, theta_SP)
    return (turn_SF.amax(1) - turn_SF.amin(1)) / 2


def turns(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return the relative change of each hidden unit's input from a total of 8 to 11 [S, FFN].

    It is 1 where a unit turns on, -1 where it turns off, and less where its input keeps its sign.
    """
    from model.families.split_subspace.forward import ffn_inputs

    tokens_TB, below_B = _columns(spec)
    inputs_SFB = ffn_inputs(spec, theta_SP, tokens_TB)
    low_SF = inputs_SFB[..., below_B].mean(2)
    high_SF = inputs_SFB[..., ~below_B].mean(2)
    return (high_SF - low_SF) / (high_SF.abs() + low_SF.abs())


def opposed(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return θ [S, P] with a hidden unit that does not switch made the opposite of the first that does.

    It is the first of those that do not; the last unit, where all switch the same way. θ is unchanged where
    none switches, or where some switch either way.
    """
    import torch

    tensors = spec.layout.split(theta_SP)
    # In float64: float32 takes SWITCHED for 1.
    turn_SF = turns(spec, theta_SP.double())
    switches_SF = turn_SF.abs() > SWITCHED
    is_up_S = (switches_SF & (turn_SF > 0)).any(1)
    is_down_S = (switches_SF & (turn_SF < 0)).any(1)
    seeds = torch.nonzero(is_up_S != is_down_S)[:, 0]

    # argmax and argmin are the first unit that switches, and the first that does not
    switching = switches_SF.int().argmax(1)[seeds]
    idle = switches_SF.int().argmin(1)[seeds]
    do_all_switch = switches_SF[seeds].all(1)
    replaced = torch.where(do_all_switch, spec.units - 1, idle)
    for name in {"fc1", "fc1_bias"} & tensors.keys():
        tensors[name] = tensors[name].clone()
        tensors[name][seeds, replaced] = -tensors[name][seeds, switching]
    return torch.cat([t.flatten(1) for t in tensors.values()], dim=1)


def stride(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return the angle from one digit to the next on the arc, in radians; 0.29 at step 0."""
    return spec.layout.split(theta_SP)["arc"][:, -1]


def lead(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return how far ahead of its own place on the ring attention looks, in digits from -5 to 5 [S].

    The predicted digit is one ahead.
    """
    from model.families.split_subspace.forward import position_form

    form_S33 = position_form(spec, theta_SP)
    along_S = form_S33[:, 0, 0] + form_S33[:, 1, 1]
    across_S = form_S33[:, 0, 1] - form_S33[:, 1, 0]
    return across_S.atan2(along_S) * DIGITS / (2 * math.pi)


@cache
def _columns(spec: SplitSubspace) -> tuple[Tensor, Tensor]:
    """Return tokens of fixed problems up to digit PLACE of the answer [T, B], int32, and True where its total is 8 [B].

    The total is that of the column, carry included: 8 or 11.
    """
    import torch

    # Python's generator, whose draws are the same everywhere: a probe is a number of a record.
    draw = Random(PLACE).randrange
    pairs: list[tuple[int, int]] = []
    for total in (8, 11):
        drawn = ((draw(10**DIGITS), draw(10**DIGITS)) for _ in iter(int, 1))  # without an end
        pairs += islice((pair for pair in drawn if _total(*pair) == total), EACH)

    first, second = zip(*pairs, strict=True)
    sums = [a + b for a, b in pairs]
    columns = []
    for numbers in (first, second, sums):
        columns.append([torch.tensor([_digit(n, i) for n in numbers]) for i in range(DIGITS)])
    x, y, z = columns
    tokens = spec.sequence(x, y, z[:PLACE])
    below = [_total(*pair) == 8 for pair in pairs]
    return torch.stack([t.to(torch.int32) for t in tokens]), torch.tensor(below)


def _digit(number: int, place: int) -> int:
    """Return the digit of a number at a place, 0 for units."""
    return number // 10**place % 10


def _total(a: int, b: int) -> int:
    """Return the sum of the digits at PLACE and of the carry into it."""
    below = 10**PLACE
    return _digit(a, PLACE) + _digit(b, PLACE) + (a % below + b % below >= below)


def _oddness(v_SV: Tensor) -> Tensor:
    """Return the distance of v's ends relative to its range [S]."""
    ends_S = (v_SV[:, 9] - v_SV[:, 0]).abs()
    return ends_S / (v_SV.amax(1) - v_SV.amin(1))


def values(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return v(d), attention's value of each digit [S, V]."""
    from model.families.split_subspace.forward import token_values

    return token_values(spec, theta_SP)[:, 0, :DIGITS]
