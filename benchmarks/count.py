"""Arithmetic and memory traffic of one train step of one seed, counted by hand from the algebra.

Counted are multiplications, divisions, additions and subtractions; exponentials, logarithms and error
functions apart, since each costs a dozen of those. Not counted are comparisons; selects (a token's entry is
looked up, whatever the program does for it: low_rank multiplies by one-hot tokens); square roots, a few;
what makes the table and the positions, which is a hundred operations a seed. The causal mask hides a sixth of
the A · T scores; they are worked out all the same, and counted.

A = 12 positions predict (11 without an end token), T = 33 are read (32); B problems, N = A · B predictions.
A sum of k products takes 2k - 1 operations; an RMSNorm over D features 4D + 1: D squares, D - 1 additions, a
division, the epsilon and two products a feature; LayerNorm 3D more for mean, difference and bias.

After attention, in all families, with an FFN of F, a residual of D and V tokens:
    FFN         N · (norm + F(2D - 1) + 4F + 2DF [+ F + D for biases]); a GELU takes 4 and an error function
    loss        N · 2(V + 1): differences, sum, target, mean; V exponentials and a logarithm

split_subspace: K token and C position dimensions, H heads, Q-dimensional queries, c channels a head (the rank
of the output, or K), n channels after it (c where heads are summed, else H · c), W dimensions written. A
circle's scores are the same for all problems, Z = 1; else Z = B:
    form        H · (A·T(2Q - 1) + Q·T(2C - 1) + queries), where the queries are turned keys, 3 operations for
                each entry of a pair, or take Q·A(2C - 1); a direct form H · (A·T(2C - 1) + C·T(2C - 1))
    scores      H · 2·A·T·Z for the norm's scale of both positions, [H · A·T·Z for 1 / sqrt(Q)]
    softmax     H · A·T·Z exponentials; H · Z·A(2T - 1), and a division for each weight (Z = 1) or result
    values      H · c · (T·B for the norm's scale + N(2T - 1)), V(2K - 1) once for each seed; heads summed
    written     N · 2nW
    logits      N · (norm + K(2D - 1) + V(2K - 1)): into token space, then against the table

low_rank: R dimensions are read by queries, keys and values (the rank, or D); what is read of the 33 · V
different inputs is worked out once for each seed:
    inputs      T·V · (D + norm + j·R(2D - 1)) for j different projections, once for each seed
    queries     N · R(2R - 1), the matrix between queries and keys
    scores      N·T(2R - 1)
    softmax     N·T exponentials; N(2T - 1 + R)
    values      N·R(2T - 1)
    written     N · 2RD
    logits      N · (norm + V(2D - 1))

Backward: each product has two derivatives, so about twice the forward pass (eager torch does a tenth more);
exponentials are kept, but GELU's derivative needs one of its own. AdamW with clipping takes 17 a parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

from model import Spec
from model.families.low_rank import LowRank
from model.families.split_subspace.spec import FFN, SplitSubspace

ADAMW = 17  # norm 2, clip 1, m 3, v 4, unbiased 2, decay 1, step 4
NUMBER = 4  # bytes of a float32 and of a token (int32)


@dataclass(frozen=True)
class Work:
    """Operations of one seed."""

    flops: int
    exponentials: int

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.exponentials + other.exponentials)


def lengths(spec: Spec) -> tuple[int, int]:
    """A, the positions that predict, and T, those that are read."""
    whole = 33 if getattr(spec, "no_eos", False) else 34
    return whole - spec.prompt, whole - 1


def forward(spec: Spec, batch: int) -> Work:
    """The loss of one seed on `batch` problems. Raises ValueError for a family that has not been counted."""
    if isinstance(spec, SplitSubspace):
        return _split_attention(spec, batch) + _split_rest(spec, batch) + _loss(spec, batch)
    if isinstance(spec, LowRank):
        return _low_rank_attention(spec, batch) + _low_rank_rest(spec, batch) + _loss(spec, batch)
    raise ValueError(f"operations of the {spec.family} family have not been counted")


def train_step(spec: Spec, batch: int) -> Work:
    """Forward, backward and AdamW. Making the problems is not in it, nor are evaluations."""
    once, hidden = forward(spec, batch), spec.ffn if isinstance(spec, LowRank) else FFN
    derivatives = hidden * lengths(spec)[0] * batch
    return Work(3 * once.flops + ADAMW * spec.params, once.exponentials + derivatives)


def traffic(spec: Spec, batch: int) -> int:
    """Bytes that must be moved: tokens written once and read once; θ and both moments read and written.

    What a perfect program with large enough caches would move. Ours also keeps intermediate arrays.
    """
    tokens = (lengths(spec)[1] + 1) * batch
    return NUMBER * (2 * tokens + 6 * spec.params)


def _rms(features: int) -> int:
    return 4 * features + 1


def _loss(spec: Spec, batch: int) -> Work:
    predictions, v = lengths(spec)[0] * batch, spec.vocabulary
    return Work(predictions * 2 * (v + 1), predictions * (v + 1))


def _split_attention(spec: SplitSubspace, batch: int) -> Work:
    """From positions and tokens to what the heads read."""
    (a, t), h, q, c, k = lengths(spec), spec.heads, spec.query_dim, spec.pos_dim, spec.tok_dim
    problems = 1 if spec.circular else batch
    channels = spec.out_rank or k
    if spec.direct_forms:
        form = a * t * (2 * c - 1) + c * t * (2 * c - 1)
    else:
        queries = 6 * (q // 2) * a if spec.tie_qk else q * a * (2 * c - 1)
        form = a * t * (2 * q - 1) + q * t * (2 * c - 1) + queries
    scores = a * t * problems * (2 if spec.direct_forms else 3)
    divided = a * t if spec.circular else channels * a * batch
    softmax = problems * a * (2 * t - 1) + divided
    values = channels * (t * batch + a * batch * (2 * t - 1) + spec.vocabulary * (2 * k - 1))
    summed = (h - 1) * channels * a * batch if spec.out_rank else 0
    return Work(h * (form + scores + softmax + values) + summed, h * a * t * problems)


def _split_rest(spec: SplitSubspace, batch: int) -> Work:
    """From what the heads read to logits."""
    predictions, d, k = lengths(spec)[0] * batch, spec.width, spec.tok_dim
    channels = spec.out_rank or spec.heads * k
    written = 1 if spec.onehot_out else k if spec.token_out else d
    unwritten = d - max(k, written)  # dimensions that are the same for all problems: squared once
    each = 2 * channels * written + _rms(d) - unwritten
    each += FFN * (2 * d - 1) + 4 * FFN + 2 * d * FFN + (0 if spec.no_ffn_bias else FFN + d)
    each += _rms(d) + k * (2 * d - 1) + spec.vocabulary * (2 * k - 1)
    return Work(predictions * each, predictions * FFN)


def _low_rank_attention(spec: LowRank, batch: int) -> Work:
    """From inputs to what is read of them; where projections are full, that is x itself, for all three."""
    (a, t), d, r = lengths(spec), spec.width, spec.qkv_rank or spec.width
    one = spec.shared == "A" or not spec.qkv_rank or spec.tie_qkv == "none"
    projections = 1 if one else len(set(spec.parts))
    inputs = t * spec.vocabulary * (d + _low_rank_norm(spec) + projections * r * (2 * d - 1))
    predictions = a * batch
    each = r * (2 * r - 1) + t * (2 * r - 1) + 2 * t - 1 + r + r * (2 * t - 1)
    return Work(inputs + predictions * each, predictions * t)


def _low_rank_rest(spec: LowRank, batch: int) -> Work:
    """From what is read to logits."""
    predictions, d, f = lengths(spec)[0] * batch, spec.width, spec.ffn
    each = 2 * (spec.qkv_rank or d) * d
    each += _low_rank_norm(spec) + f * (2 * d - 1) + 4 * f + 2 * d * f
    each += _low_rank_norm(spec) + spec.vocabulary * (2 * d - 1)
    return Work(predictions * each, predictions * f)


def _low_rank_norm(spec: LowRank) -> int:
    return _rms(spec.width) + (0 if spec.rms_norm else 3 * spec.width)
