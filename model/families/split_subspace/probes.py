"""Read-outs of θ for the split_subspace family with one head and a rank-1 output: what docs/luck.md names.

What attention reads of digit d is then one number, v(d): the column of the output, through the values, times
the first norm's weights, times the digit's entry of the token table.

Axes: S seed, P parameters, V vocabulary.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from model.families.split_subspace.spec import DIGITS, SplitSubspace

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Probe

ODD = 0.9
"""From which share on a code of digits counts as odd; on a trained arc it is near 1 or near 0."""


def probes(spec: SplitSubspace) -> dict[str, Probe]:
    """Those that a spec has: its tensors must be there, and v(d) must be one number."""
    found: dict[str, Probe] = {}
    if spec.rank1_out and spec.heads == 1:
        found["odd"] = odd
        if spec.tie_fc2_head:
            found["basin"] = basin
    if spec.arc:
        found["stride"] = stride
    if spec.heads == 1 and spec.spiral and not (spec.toeplitz_q or spec.circulant_q):
        found["lead"] = lead
    return found


def odd(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """How far apart attention's values of 0 and 9 are, of all digits: 1 where the code is monotone (odd), 0
    where both ends look alike (even)."""
    return _oddness(values(spec, theta_SP))


def basin(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """1 where the code is odd and FFN and attention's output have the signs that all known winners have: each
    hidden unit reads its own token axis against the other, and attention writes to both, one up, one down."""
    from model.families.split_subspace.forward import read_units

    v_SV = values(spec, theta_SP)
    reads_S22, writes_S21 = read_units(spec, theta_SP)
    rising_S = (v_SV[:, 9] - v_SV[:, 0]).sign()
    (a_S, b_S), (c_S, d_S) = (row.unbind(1) for row in reads_S22.unbind(1))
    units_S = (a_S > 0) & (b_S < 0) & (c_S < 0) & (d_S > 0)
    written_S = (rising_S * writes_S21[:, 0, 0] > 0) & (rising_S * writes_S21[:, 1, 0] < 0)
    return (units_S & written_S & (_oddness(v_SV) > ODD)).to(theta_SP.dtype)


def stride(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """The angle from one digit to the next on the arc, in radians; 0.29 at step 0."""
    return spec.layout.split(theta_SP)["arc"][:, -1]


def lead(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """How many digits ahead of its own place on the ring attention looks, -5 to 5: the digit that is asked
    for is one ahead."""
    from model.families.split_subspace.forward import read_form

    form_S33 = read_form(spec, theta_SP)
    along_S = form_S33[:, 0, 0] + form_S33[:, 1, 1]
    across_S = form_S33[:, 0, 1] - form_S33[:, 1, 0]
    return across_S.atan2(along_S) * DIGITS / (2 * math.pi)


def _oddness(v_SV: Tensor) -> Tensor:
    return (v_SV[:, 9] - v_SV[:, 0]).abs() / (v_SV.amax(1) - v_SV.amin(1))


def values(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """v(d): what attention reads of each digit [S, V]."""
    from model.families.split_subspace.forward import read_values

    return read_values(spec, theta_SP)[:, 0, :DIGITS]
