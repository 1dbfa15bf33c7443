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
of a float32. It is proved right on all pairs (lab/certificates/34p-by-hand).

Of the 34 numbers ten are 0: the positions that the FFN and the head do not read. Not counted, as in any model
of the family, are the fixed spiral's radius and rise and the place of EQUALS on it; they are the defaults.
The numbers themselves are worked out in lab/forged_numbers.py.
"""

from __future__ import annotations

from model.families.split_subspace import SplitSubspace

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
