"""An adder of 34 numbers, built by hand: how small the family can be, whatever training finds.

"Training a Transformer for Perfect 10-Digit Addition" (the 57p paper), section 6, sets what gradient descent
finds, 57 parameters, against what hand-built adders need, 36 to 40. This is the other end of that gap for
`split_subspace` itself. Nothing here is trained, and no number comes from a trained model: θ follows from the
derivation below, and by it every sum of two ten-digit numbers is right, not only those that were tried.

The idea
    The position before z_k reads the columns k and k - 1 at once. Let S_k = x_k + y_k, let c_k be the carry
    into column k, and let attention weigh column k - 1 by a tenth of column k. With z_{k-1}, the token that
    stands at the reading position itself, taken away twice,

        T_k = S_k + (S_{k-1} + z_{k-1}) / 10 - 2 z_{k-1} / 10        (attention sees z_{k-1} as well)
            = S_k + c_k - c_{k-1} / 10,                               as S_{k-1} + c_{k-1} = z_{k-1} + 10 c_k.

    So carries come without a threshold: T_k is n = S_k + c_k or a tenth less. Two GELUs take 10 away where
    T_k exceeds 9.5, and the digits, lying on an arc so short that it is almost a line, are read off.

What each part has to do
    residual   (t0, t1, p0, p1, p2): t0 is nearly constant (the arc lies around angle 0), t1 holds numbers,
               and positions are too small to be felt, because tokens have length `LOUD`.
    attention  One form on positions makes all weights of all steps: `attention_form`.
    output     Writes to t1 (onehot_out), over z_{k-1}: t1 = -5 LOUD STRIDE (T - TURN), see `_output`.
    head       r reads t1, rho reads t0: r·h / rho·h = STRIDE (t - MIDDLE) with t = T + SHIFT, the tangent of
               the angle at which digit t lies. fc2 is the head transposed, so the FFN writes along the same r
               and rho, and what it writes along r is read |r|² fold: p2 makes |r| large and reads nothing.
    FFN        Both units read t. The first opens at STEP - HALF and pushes down, the second opens at
               STEP + HALF and pushes up just as fast: together a ramp that ends 10 lower.

Margins, in digits. Attention leaves t within 0.26 of n for any two numbers, so t is below 9.26 where nothing
is to be taken away and above 9.74 where 10 is; the ramp of the FFN lies within 9.5 ± 0.13. All else, such as
the arc's curvature, the norm, GELU and rounding, adds a few hundredths: a digit is read at most 0.3 from its
place, and the next one begins at 0.5. The right logit is the largest by at least 3e-6 of itself, 50 roundings
of a float32. tests/test_forged_adder.py walks through every case of two columns and a carry.

Of the 34 numbers ten are 0: the positions that the FFN and the head do not read. Not counted, as in any model
of the family, are the fixed spiral's radius and rise and the place of EQUALS on it; they are the defaults.

Axes: Q reading position (the columns 0 to 9, from which z_1 to z_10 are predicted, then EQUALS, from which
z_0 is), K position that is read (the columns 0 to 9, then EQUALS, then PLUS).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model.spec import Spec
from model.split_subspace import SplitSubspace

SPEC = SplitSubspace(
    # digits on a circular arc, delimiters are token 0; fixed positions, EQUALS at 9.5 of the digits' spiral
    tok_dim=2, vocabulary=10, arc=True, circular=True,
    spiral=True, plain_spiral=True, frozen_spiral=True, equals_on_ring=True,
    frozen_plus=True, frozen_eos=True, no_eos=True,
    # one head: a form of 3 x 3, two numbers to read tokens with, none to write with
    heads=1, direct_forms=True, rank1_out=True, onehot_out=True,
    # an FFN that writes through the head, no biases, no norm weights
    no_ffn_bias=True, tie_fc2_head=True, shared_norm=True, parameterless_norm=True,
)  # fmt: skip

DIGITS, POS, WIDTH = 10, 3, 5
EQUALS, PLUS = 10, 11

# Tokens
LOUD = 1e6
"""Length of a token, so that RMSNorm multiplies by √5 / LOUD at every position: positions are at most 3.8
long. What the head reads of them, AMPLIFY · 1.425 at most, is 0.014 of LOUD · STRIDE, which is one digit."""
STRIDE = 0.004
"""Angle between digits. Short: the arc spans ± 0.018, where sin x = x = tan x within 0.02 %, and t1 stays
small beside t0 (see TURN). Not too short for float32: moving a digit by 0.2 changes the logits of two
neighbours, relative to each other, by 0.2 STRIDE² = 3e-6."""
MIDDLE = 4.5
"""The digit at angle 0."""

# Attention
PREVIOUS = 0.1
"""Weight of a token in column k - 1, that of one in column k being 1: ten of them are a carry."""
TOTAL = 2 + 3 * PREVIOUS
"""x and y of column k, and x, y, z of column k - 1: softmax divides by this."""
SHIFT = 0.03
"""T is at most 0.28 below n, of which 0.1 for c_{k-1} and at most 0.22 above: t = T + SHIFT lies around n."""

# FFN and head
STEP, HALF = 9.5, 0.1
"""The ramp in t goes from STEP - HALF to STEP + HALF."""
SHARP = 100.0
"""Input of the second unit for each digit of t. GELU departs from a corner only where its input is within
± 3, which is within 3 / SHARP = 0.03 digits; the first unit is sharper still."""
SKEW = 0.25
"""The rows of the head are rho - SKEW r and r, so the two units write -SKEW r and r (and the first rho): of
opposite sign, though fc2 is the head. A tangent x is then read as x / (1 - SKEW x), 0.02 digits off at the
ends."""
AMPLIFY = 40.0
"""Entry of r at p2, where that of rho at t0 is 1. What the first unit writes along rho makes t0 grow by
10 STRIDE / (2 HALF · SKEW · AMPLIFY²) = 0.05 % for each digit beyond STEP: 0.02 digits at the ends."""
TURN = 14.0
"""t1 is 0 at this T, midway between 9.5 and 18.5, where the FFN works. Its output is not normed, so the norm
of its input must be constant there: |t1| is at most 5 · 5 STRIDE = 0.1 of t0, and the norm 0.5 % off, 0.05 of
the 10 digits. Further down the FFN is silent and only ratios count."""


def points() -> tuple[Tensor, Tensor]:
    """Positions that read [Q, 3] and that are read [K, 3]: the fixed spiral; PLUS is the origin."""
    index = torch.tensor([*range(DIGITS), SPEC.equals_index], dtype=torch.float64)
    turn = 2 * math.pi * index / DIGITS
    ring = [SPEC.spiral_amp * torch.cos(turn), SPEC.spiral_amp * torch.sin(turn), SPEC.spiral_slope * index]
    spiral = torch.stack(ring, dim=1)
    return spiral, torch.cat([spiral, torch.zeros(1, POS, dtype=torch.float64)])


def seen() -> Tensor:
    """How many tokens share a position, for each reader [Q, K]: x, y, and z up to the reader's own column."""
    count = torch.full((EQUALS + 1, PLUS + 1), 2.0, dtype=torch.float64)
    count[:, EQUALS:] = 1
    for column in range(DIGITS):
        count[column, : column + 1] = 3
    return count


def wanted() -> Tensor:
    """The weight of one token in each digit column [Q, 10], in units of 1 / TOTAL.

    The readers at column 9 and at EQUALS have less to read. What they leave has to fall on EQUALS and PLUS,
    no matter which: both are token 0 and add nothing to T.
    """
    weight = torch.zeros(EQUALS + 1, DIGITS, dtype=torch.float64)
    weight.diagonal().fill_(PREVIOUS)
    weight.diagonal(1).fill_(1)
    weight[EQUALS, 0] = 1
    return weight


def attention(form: Tensor) -> Tensor:
    """Softmax weight of one token at each position [Q, K], for scores q · form · k."""
    readers, read = points()
    scores = readers @ form @ read.T
    odds = torch.exp(scores - scores.amax(1, keepdim=True))
    return odds / (seen() * odds).sum(1, keepdim=True)


def departures(form: Tensor) -> tuple[Tensor, Tensor]:
    """By how much T is off where a column is all nines, in digits [Q · 10], and the derivative [Q · 10, 9].

    The logarithm of a softmax weight grows with its score less the mean score, and scores are linear in the
    form's nine entries.
    """
    readers, read = points()
    weight, nines = attention(form), 9 * seen()[:, :DIGITS]
    off = nines * (TOTAL * weight[:, :DIGITS] - wanted())
    score = torch.einsum("qa,kb->qkab", readers, read).flatten(2)
    mean = torch.einsum("qk,qkm->qm", seen() * weight, score)
    slope = (nines * TOTAL * weight[:, :DIGITS])[..., None] * (score[:, :DIGITS] - mean[:, None])
    return off.flatten(), slope.flatten(0, 1)


def attention_form(rounds: int = 40) -> Tensor:
    """The form [3, 3] whose weights depart least from the wanted ones.

    On a bare ring the answer is a rotation, `_rotation`. But there the reader of column 9 would see column 0
    where it has to see EQUALS. The ramp of the spiral parts the two, and other entries make up for what this
    does elsewhere. The nine entries solve the 110 equations `departures` = 0 in the least-squares sense, by
    damped Gauss-Newton from the rotation: first as they are, then squared, which lowers the greatest ones.
    """
    form = _rotation()
    for power in (1, 2):
        damping = 1.0
        for _ in range(rounds):
            off, slope = departures(form)
            grown = off.abs() ** (power - 1)  # the equations are off · |off| ^ (power - 1) = 0
            scaled = slope * (power * grown)[:, None]
            normal = scaled.T @ scaled
            normal += damping * normal.diagonal().diag()
            trial = form - torch.linalg.solve(normal, scaled.T @ (off * grown)).view(POS, POS)
            better = (departures(trial)[0] ** (2 * power)).sum() < (off ** (2 * power)).sum()
            form, damping = (trial, damping / 5) if better else (form, damping * 4)
    return form


def _rotation() -> Tensor:
    """The form for a ring: scores strong · cos(36° (k - q) - ahead), highest between the columns q and q + 1.

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
    """out_A [2, 1], which reads a normed token (cos, sin)(angle) · LOUD · norm.

    In units of LOUD · STRIDE the residual has z - MIDDLE at t1, and attention brings the mean digit less
    MIDDLE, times a gain. The mean digit is (T + 2 PREVIOUS z) / TOTAL, so z cancels at the gain
    -TOTAL / (2 PREVIOUS). What remains is -T / (2 PREVIOUS) and MIDDLE (-gain - 1); the cosine, which is 1,
    adds the constant that makes it 0 at TURN.
    """
    gain = -TOTAL / (2 * PREVIOUS)
    constant = TURN / (2 * PREVIOUS) - MIDDLE * (-gain - 1)
    return torch.tensor([[constant * STRIDE], [gain]], dtype=torch.float64) / norm


def _ffn_and_head(norm: float) -> dict[str, Tensor]:
    """fc1 [2, 5] and head [2, 5], whose r and rho are `scale` times those here."""
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


def forged_adder() -> tuple[Spec, Tensor]:
    """The spec and θ [34], float32."""
    norm = math.sqrt(WIDTH) / LOUD
    arc = torch.tensor([LOUD, -MIDDLE * STRIDE, STRIDE], dtype=torch.float64)
    tensors = {"arc": arc, "form": attention_form() / norm**2, "out_A": _output(norm), **_ffn_and_head(norm)}
    return SPEC, SPEC.layout.join(tensors).float()
