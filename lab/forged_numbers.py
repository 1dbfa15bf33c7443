"""The numbers of the hand-built adder, by the derivation in lab/forged_adder.py. Everything is float64.

Axes: Q reading position (the columns 0 to 9, from which z_1 to z_10 are predicted, then EQUALS, from which
z_0 is), K position that is read (the columns 0 to 9, then EQUALS, then PLUS).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lab.forged_adder import (
    AMPLIFY,
    DIGITS,
    EQUALS,
    HALF,
    LOUD,
    MIDDLE,
    PLUS,
    POS,
    PREVIOUS,
    SHARP,
    SHIFT,
    SKEW,
    SPEC,
    STEP,
    STRIDE,
    TOTAL,
    TURN,
    WIDTH,
)
from model.spec import Spec


def forged_adder() -> tuple[Spec, Tensor]:
    """Return the spec and θ [34], float32."""
    return SPEC, SPEC.layout.join(tensors()).float()


def tensors() -> dict[str, Tensor]:
    """Return every slice of θ by name."""
    norm = math.sqrt(WIDTH) / LOUD
    arc = torch.tensor([LOUD, -MIDDLE * STRIDE, STRIDE], dtype=torch.float64)
    form = attention_form() / norm**2
    return {"arc": arc, "form": form, "out_A": _output(norm), **_ffn_and_head(norm)}


def points() -> tuple[Tensor, Tensor]:
    """Return reading [Q, 3] and read [K, 3] positions on the fixed spiral; PLUS is the origin."""
    index = torch.tensor([*range(DIGITS), SPEC.equals_index], dtype=torch.float64)
    turn = 2 * math.pi * index / DIGITS
    ring = [SPEC.spiral_amp * torch.cos(turn), SPEC.spiral_amp * torch.sin(turn), SPEC.spiral_slope * index]
    spiral = torch.stack(ring, dim=1)
    return spiral, torch.cat([spiral, torch.zeros(1, POS, dtype=torch.float64)])


def token_counts() -> Tensor:
    """Count the tokens at each position for each reader [Q, K]: x, y, and z up to the reader's column."""
    count = torch.full((EQUALS + 1, PLUS + 1), 2.0, dtype=torch.float64)
    count[:, EQUALS:] = 1
    for column in range(DIGITS):
        count[column, : column + 1] = 3
    return count


def target_weights() -> Tensor:
    """Return the target weight of one token in each digit column [Q, 10], in units of 1 / TOTAL.

    The readers at column 9 and at EQUALS have less to read. What they leave has to fall on EQUALS and PLUS,
    no matter which: both are token 0 and add nothing to T.
    """
    weight = torch.zeros(EQUALS + 1, DIGITS, dtype=torch.float64)
    weight.diagonal().fill_(PREVIOUS)
    weight.diagonal(1).fill_(1)
    weight[EQUALS, 0] = 1
    return weight


def attention(form: Tensor) -> Tensor:
    """Return the softmax weight of one token at each position [Q, K], for scores q · form · k."""
    readers, read = points()
    scores = readers @ form @ read.T
    odds = torch.exp(scores - scores.amax(1, keepdim=True))
    return odds / (token_counts() * odds).sum(1, keepdim=True)


def errors(form: Tensor) -> tuple[Tensor, Tensor]:
    """Return the error of T where a column is all nines, in digits [Q · 10], and its derivative [Q · 10, 9].

    The logarithm of a softmax weight grows with its score less the mean score, and scores are linear in the
    form's nine entries.
    """
    readers, read = points()
    weight, nines = attention(form), 9 * token_counts()[:, :DIGITS]
    off = nines * (TOTAL * weight[:, :DIGITS] - target_weights())
    score = torch.einsum("qa,kb->qkab", readers, read).flatten(2)
    mean = torch.einsum("qk,qkm->qm", token_counts() * weight, score)
    slope = (nines * TOTAL * weight[:, :DIGITS])[..., None] * (score[:, :DIGITS] - mean[:, None])
    return off.flatten(), slope.flatten(0, 1)


def attention_form(rounds: int = 40) -> Tensor:
    """Fit the form [3, 3] whose weights are nearest to the target weights.

    On a bare ring the answer is a rotation, `_rotation`. But there the reader of column 9 would see column 0
    where it has to see EQUALS. The ramp of the spiral parts the two, and other entries make up for what this
    does elsewhere. The nine entries solve the 110 equations `errors` = 0 in the least-squares sense, by
    damped Gauss-Newton from the rotation: first as they are, then squared, which lowers the greatest ones.
    """
    form = _rotation()
    for power in (1, 2):
        damping = 1.0
        for _ in range(rounds):
            off, slope = errors(form)
            grown = off.abs() ** (power - 1)  # the equations are off · |off| ^ (power - 1) = 0
            scaled = slope * (power * grown)[:, None]
            normal = scaled.T @ scaled
            normal += damping * normal.diagonal().diag()
            trial = form - torch.linalg.solve(normal, scaled.T @ (off * grown)).view(POS, POS)
            better = (errors(trial)[0] ** (2 * power)).sum() < (off ** (2 * power)).sum()
            form, damping = (trial, damping / 5) if better else (form, damping * 4)
    return form


def _rotation() -> Tensor:
    """Return the form for a ring: scores strong · cos(36° (k - q) - ahead), highest between the columns q and q + 1.

    They are parted by strong · (cos(36° - ahead) - cos(ahead)), which has to be ln 10 to make a tenth. At
    0.62 of a column ahead, strong is 50, and columns to either side get weights below 1e-6.
    """
    step = 2 * math.pi / DIGITS
    ahead = 0.62 * step
    strong = -math.log(PREVIOUS) / (math.cos(step - ahead) - math.cos(ahead))
    cos, sin = math.cos(ahead), math.sin(ahead)
    form = torch.tensor([[cos, sin, 0], [-sin, cos, 0], [0, 0, 0]], dtype=torch.float64)
    return form * strong / SPEC.spiral_amp**2


def _output(norm: float) -> Tensor:
    """Return out_A [2, 1], which reads a normed token (cos, sin)(angle) · LOUD · norm.

    In units of LOUD · STRIDE the residual has z - MIDDLE at t1, and attention brings the mean digit less
    MIDDLE, times a gain. The mean digit is (T + 2 PREVIOUS z) / TOTAL, so z cancels at the gain
    -TOTAL / (2 PREVIOUS). What remains is -T / (2 PREVIOUS) and MIDDLE (-gain - 1); the cosine, which is 1,
    adds the constant that makes it 0 at TURN.
    """
    gain = -TOTAL / (2 * PREVIOUS)
    constant = TURN / (2 * PREVIOUS) - MIDDLE * (-gain - 1)
    return torch.tensor([[constant * STRIDE], [gain]], dtype=torch.float64) / norm


def _ffn_and_head(norm: float) -> dict[str, Tensor]:
    """Return fc1 [2, 5] and head [2, 5], whose r and rho are `scale` times those here."""
    tangent = STRIDE * (TURN + SHIFT - MIDDLE)  # of t = TURN + SHIFT, where t1 = 0
    t_over_t0 = torch.tensor([tangent, -2 * PREVIOUS, 0, 0, 0], dtype=torch.float64)
    rho = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.float64)
    r = t_over_t0 + torch.tensor([0, 0, 0, 0, AMPLIFY], dtype=torch.float64)

    digit = LOUD * STRIDE  # what a digit of t adds to r · h
    first, second = (t_over_t0 - STRIDE * (opens - MIDDLE) * rho for opens in (STEP - HALF, STEP + HALF))
    fc1 = torch.stack([first / SKEW, second]) * SHARP / (digit * norm)
    # The second unit less SKEW times the first is -2 HALF SHARP beyond the ramp. |scale · r|² times this has
    # to be -10 digits of scale · r · h.
    scale = 10 * digit / (2 * HALF * SHARP * r.dot(r))
    return {"fc1": fc1, "head": scale * torch.stack([rho - SKEW * r, r])}
