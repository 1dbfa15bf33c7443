"""The forward pass of the low_rank family, for every combination of its constraints.

It is divided where problems come in: `expand` makes the wide tensors from θ, with all constraints in them;
what follows is the same for all specs of a shape, `apply` here and kernel_body.h beside it. There are at most
33 · 14 different inputs, a token at a position, so what the block reads of its input is worked out once for
each of them and looked up. Attention works on what is read, x · A, before any B: the B of queries and keys
meet in what makes queries, the values' B in the output. A norm's weight and bias are in the matrices that
read what was normed.

In `apply` all of it is matrix products along problems (model/matrices.py): as lists of 7 and 14 features
(model/ops.py) the same took eight times as long to compile and a third longer to train.

Axes: S seed, B problem, T position, A answer position, N answer positions × problems, M positions × tokens,
V vocabulary, D width, F width of the FFN, R channels that attention reads, P parameters.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from model.families.low_rank.spec import EOS, EQUALS, PLUS, LowRank
from model.matrices import (
    aligned,
    attention,
    centred,
    look_up,
    matrix,
    one_hot,
    product,
    unit,
)
from model.ops import Tensors
from model.spec import Kernel, sizes
from model.tasks import Sums, in_columns

LAYER_EPS, RMS_EPS = 1e-5, 1e-8


def sequence(spec: LowRank, *columns: list[Tensor]) -> list[Tensor]:
    """Return the token sequence from digit columns of numbers and answer, units first.

    Numbers of a sum begin with the most significant digit.
    """
    *numbers, answer = columns
    task = in_columns(spec.task)
    order = -1 if isinstance(task, Sums) else 1
    like = numbers[0][0]
    plus, equals, eos = (torch.full_like(like, task.base + token) for token in (PLUS, EQUALS, EOS))
    asked = []
    behind = [plus] * (len(numbers) - 1) + [equals]
    for number, mark in zip(numbers, behind, strict=True):
        asked += [*number[::order], mark]
    end = [eos] if len(answer) == task.answers and not spec.no_eos else []
    return [*asked, *answer, *end]


def expand(spec: LowRank, theta_SP: Tensor) -> Tensors:
    """Return everything that does not depend on the problem, as the kernel reads it: tensors [S, ...] by name.

    `queries` and `keys` [S, R, D] are multiplied to scores; `write` [S, D, R] takes `values` to the residual;
    without `values`, they are the keys. A matrix that reads a LayerNorm has one more column, its bias. An FFN
    whose factors spare products stays in factors.
    """
    p = spec.layout.split(theta_SP)
    (Aq, Bq), (Ak, Bk), (Av, Bv) = _qkv_factors(spec, p)
    # Scores are (x Aq) Bq · (x Ak) Bk: both B meet in one small matrix, which queries have from here on.
    form_SRR = product(Bk, Bq.mT) / math.sqrt(spec.width)
    positions = product(p["pos_A"], p["pos_B"]) if spec.pos_rank else p["positions"]
    length = spec.prompt - 1 + spec.answers
    wide = {
        "tokens": p["tokens"],
        "positions": positions[:, :length],
        "queries": _fold_in_norm(spec, p, 1, product(form_SRR, Aq.mT)),
        "keys": _fold_in_norm(spec, p, 1, Ak.mT),
    }
    if _has_separate_values(spec):
        wide["values"] = _fold_in_norm(spec, p, 1, Av.mT)
    wide["write"] = product(matrix(p, "out"), Bv.mT)

    if _ffn_inner_rank(spec):
        wide["fc1_A"] = _fold_in_norm(spec, p, 2, p["fc1_A"].mT)
        wide["fc1_B"] = p["fc1_B"].mT
        wide["fc2_A"] = p["fc2_A"].mT
        wide["fc2_B"] = p["fc2_B"].mT
    else:
        wide["fc1"] = _fold_in_norm(spec, p, 2, matrix(p, "fc1"))
        wide["fc2"] = matrix(p, "fc2")
    wide["head"] = _fold_in_norm(spec, p, 3, p["tokens"])
    return wide


def apply(spec: LowRank, wide: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
    """Return the logits after each position from `first` on, V tensors [S, A, B], as the kernel does."""
    length, batch = tokens_STB.shape[1:]
    tokens_STB = aligned(tokens_STB)  # spare problems at the end, which the last line takes off again
    hot_STVB = one_hot(tokens_STB, spec.vocabulary, wide["tokens"].dtype)

    # every input: a token at a position
    positions_SDT = wide["positions"][:, :length].mT
    x_SDTV = positions_SDT[..., None] + wide["tokens"].mT[:, :, None]
    x_SDN = look_up(x_SDTV[:, :, first:], hot_STVB[:, first:]).flatten(2)

    # one block: attention, then the FFN
    seen_SRN = _attention(spec, wide, x_SDTV, hot_STVB, first)
    x_SDN = x_SDN + wide["write"] @ seen_SRN
    fc1 = _ffn_matrix(wide, "fc1")
    hidden_SFN = F.gelu(_linear_of_norm(spec, fc1, _normalise(spec, x_SDN)))
    x_SDN = x_SDN + _ffn_matrix(wide, "fc2") @ hidden_SFN

    logits_SVN = _linear_of_norm(spec, wide["head"], _normalise(spec, x_SDN))
    logits_SVAB = logits_SVN.unflatten(2, (length - first, -1))
    return list(logits_SVAB[..., :batch].unbind(1))


def kernel(spec: LowRank) -> Kernel:
    """Return the shape for which kernel.cpp is compiled."""
    shape = {
        "WIDTH": spec.width,
        "FFN": spec.ffn,
        "INNER": _ffn_inner_rank(spec),
        "RANK": spec.width if _reads_all_features(spec) else spec.qkv_rank,
        "VALUES": int(_has_separate_values(spec)),
        "LAYER": int(not spec.rms_norm),
        "ANSWERS": spec.answers,
        **sizes(spec, vocabulary=14),
    }
    source = Path(__file__).with_name("kernel.cpp")
    return Kernel(source, shape)


def qkv_projections(spec: LowRank, p: Tensors) -> list[tuple[str, Tensor, Tensor]]:
    """Return for queries, keys and values: a name for x · A, A [..., D, R] and B [..., R, D]."""
    if spec.shared == "A":
        return [("qkv", p["qkv_A"], p[f"qkv_B{part}"]) for part in spec.projections]
    if spec.shared == "B":
        return [(part, p[f"qkv_A{part}"], p["qkv_B"]) for part in spec.projections]
    if spec.qkv_rank and spec.tie_qkv == "none":  # one matrix [D, 3 D], of which the columns are three
        return [("qkv", p["qkv_A"], B) for B in p["qkv_B"].chunk(3, dim=-1)]
    if spec.qkv_rank:
        return [(part, p[f"{part}_A"], p[f"{part}_B"]) for part in spec.projections]

    # full matrices: A is the identity, so x · A is the input itself
    if spec.tie_qkv == "none":
        full = p["qkv"].chunk(3, dim=-2)
    else:
        full = [p[part] for part in spec.projections]
    like = full[0]
    identity = torch.eye(spec.width, dtype=like.dtype, device=like.device)
    return [("x", identity.expand_as(like), weight.mT) for weight in full]


def _qkv_factors(spec: LowRank, p: Tensors) -> list[tuple[Tensor, Tensor]]:
    """Return A and B of queries, keys and values; A is the identity where it would not narrow its input."""
    factors = [(A, B) for _, A, B in qkv_projections(spec, p)]
    if not spec.qkv_rank or not _reads_all_features(spec):
        return factors
    like, _ = factors[0]
    identity = torch.eye(spec.width, dtype=like.dtype, device=like.device)
    # A rank of the full width narrows nothing: one product less for each input.
    return [(identity.expand(len(A), -1, -1), product(A, B)) for A, B in factors]


def _reads_all_features(spec: LowRank) -> bool:
    """True if attention reads its input as it is: its channels are then the input's features."""
    return not 0 < spec.qkv_rank < spec.width


def _has_separate_values(spec: LowRank) -> bool:
    """True if values read something else than keys."""
    one_factor = spec.shared == "A" or spec.tie_qkv == "none"  # one A reads for all three
    return not _reads_all_features(spec) and not one_factor and spec.projections[1] != spec.projections[2]


def _ffn_inner_rank(spec: LowRank) -> int:
    """Return the rank of the FFN's factors where two of them need fewer products than one matrix, else 0."""
    rank = spec.ffn_rank
    in_factors, in_one = rank * (spec.width + spec.ffn), spec.width * spec.ffn
    return rank if in_factors < in_one else 0


def _fold_in_norm(spec: LowRank, p: Tensors, n: int, matrix_SCD: Tensor) -> Tensor:
    """Fold the weight and bias of norm n into a matrix that reads its output: [S, C, D (+ 1)]."""
    weighted = matrix_SCD * p[f"norm{n}"][:, None]
    if spec.rms_norm:
        return weighted
    bias_SD1 = p[f"norm{n}_bias"][..., None]
    return torch.cat([weighted, product(matrix_SCD, bias_SD1)], dim=2)


def _ffn_matrix(wide: Tensors, name: str) -> Tensor:
    """Return a matrix of the FFN, its factors multiplied out."""
    if name in wide:
        return wide[name]
    return product(wide[f"{name}_B"], wide[f"{name}_A"])


def _normalise(spec: LowRank, x_SDN: Tensor) -> Tensor:
    """Apply RMSNorm or LayerNorm over the features, without weight and bias."""
    return unit(x_SDN, RMS_EPS) if spec.rms_norm else unit(centred(x_SDN), LAYER_EPS)


def _linear_of_norm(spec: LowRank, matrix_SCD: Tensor, normed_SDN: Tensor) -> Tensor:
    """Return matrix · normed [S, C, N]; see `expand` for the last column."""
    if spec.rms_norm:
        return matrix_SCD @ normed_SDN
    return matrix_SCD[..., :-1] @ normed_SDN + matrix_SCD[..., -1:]


def _attention(spec: LowRank, wide: Tensors, x_SDTV: Tensor, hot_STVB: Tensor, first: int) -> Tensor:
    """Return the attention weights applied to the values [S, R, N], from every input before its norm."""
    flat = _normalise(spec, x_SDTV.flatten(2))
    normed_SDTV = flat.unflatten(2, x_SDTV.shape[2:])

    def read(name: str, start: int = 0) -> Tensor:
        """Return what a matrix reads of the tokens from a position on [S, R, T, B]."""
        matrix_SCD, inputs_SDTV = wide[name], normed_SDTV[:, :, start:]
        weights_SCD = matrix_SCD[..., : spec.width]
        entries_SCM = product(weights_SCD, inputs_SDTV.flatten(2))
        if not spec.rms_norm:
            entries_SCM = entries_SCM + matrix_SCD[..., -1:]
        entries_SCTV = entries_SCM.unflatten(2, inputs_SDTV.shape[2:])
        return look_up(entries_SCTV, hot_STVB[:, start:])

    keys_SRTB = read("keys")
    values_SRTB = read("values") if "values" in wide else keys_SRTB
    queries_SRAB = read("queries", first)
    return attention(queries_SRAB, keys_SRTB, values_SRTB, first).flatten(2)
