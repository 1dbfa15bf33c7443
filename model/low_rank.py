"""The low_rank family: a small GPT whose weight matrices are products of thin factors.

One pre-norm block with one head over learned token and position vectors; logits are dot products with the
token table; no biases but LayerNorm's. Without any constraint it is the 763-parameter model. Facts from
"A 456-Parameter Transformer Solves 10-Digit Addition" (the 456p report) and its training code.

There are at most 33 · 14 different inputs, a token at a position, so what the block reads of its input is
worked out once for each of them and looked up by a product with one-hot tokens. Attention works on what is
read, x · A, before any B: the B of queries and keys meet in one small matrix, the values' B in the output.
Along problems all of it is matrix products: as lists of 7 and 14 features (model/ops.py) the same took eight
times as long to compile and a third longer to train.

Axes: S seed, B problem, T position, A answer position, N answer positions × problems, M positions × tokens,
V vocabulary, D width, R rank, P parameters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn import init

from model.fields import option, spelt
from model.fold import Fold, Tensors
from model.ops import attend, dot
from model.spec import Spec

DIGITS, VOCABULARY = 10, 14
PLUS, EQUALS, EOS = 10, 11, 13
INPUTS = 33  # 22 of the prompt and 11 answer digits
ALIGNED = 16  # numbers in 64 bytes
LAYER_EPS, RMS_EPS = 1e-5, 1e-8
REPORT = "456p report"
TIES = ("none", "all", "qk", "kv")
SHARED = tuple(f"share{factor}{tie}" for factor in "AB" for tie in ("", "_tieQK", "_tieKV"))

PARTS = {
    "q": "queries", "k": "keys", "v": "values", "qk": "queries and keys", "kv": "keys and values",
    "qkv": "queries, keys and values",
}  # fmt: skip

Shapes = dict[str, tuple[int, ...]]


def _roles() -> dict[str, str]:
    roles = {"tokens": "token table and output head", "positions": "position table"}
    roles |= {f"norm{n}": f"{what} norm" for n, what in ((1, "attention's"), (2, "FFN's"), (3, "final"))}
    roles |= {f"{norm}_bias": "its bias" for norm in list(roles) if norm.startswith("norm")}
    matrices = {part: f"residual to {what}" for part, what in PARTS.items()}
    matrices |= {"out": "attention output", "fc1": "FFN, first layer", "fc2": "FFN, second layer"}
    for factor in "AB":
        roles[f"pos_{factor}"] = f"position table, factor {factor}"
        roles |= {f"{name}_{factor}": f"{what}, factor {factor}" for name, what in matrices.items()}
        roles |= {f"qkv_{factor}{part}": f"factor {factor} of {what}" for part, what in PARTS.items()}
    return roles | matrices


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowRank(Spec):
    """34 tokens, operands most significant digit first, the sum units first: X9..X0 + Y9..Y0 = Z0..Z10 EOS.

    + is token 10, = is 11, EOS is 13 (12 is padding). A pair of factors is read as x · A · B; a full matrix
    maps its second axis to its first, as in torch.
    """

    family: ClassVar[str] = "low_rank"
    about: ClassVar[str] = "the 456p report's small GPT: learned positions, matrices in thin factors"
    roles: ClassVar[dict[str, str]] = _roles()

    # Sizes
    width: int = option(7, "width of the residual", unit="dimensions", low=2, high=16)
    ffn: int = option(14, "width of the FFN", unit="dimensions", low=1, high=64)
    positions: int = option(
        INPUTS, "rows of the position table; the first 33 are read", unit="positions", values=(INPUTS, 35),
        source=f"{REPORT} 2",
    )  # fmt: skip

    # Constraints
    pos_rank: int = option(
        0, "rank of the position table; 0: full", unit="rank", low=0, high=16, off=0, source=f"{REPORT} 2.1"
    )
    qkv_rank: int = option(
        0, "rank of the query, key and value projections; 0: full", unit="rank", low=0, high=16, off=0,
        source=f"{REPORT} 2.1",
    )  # fmt: skip
    out_rank: int = option(
        0, "rank of the attention output; 0: full", unit="rank", low=0, high=16, off=0,
        source=f"{REPORT} 2.1, 2.3",
    )  # fmt: skip
    ffn_rank: int = option(
        0, "rank of both FFN matrices; 0: full", unit="rank", low=0, high=16, off=0, source=f"{REPORT} 2.1"
    )
    rms_norm: bool = option(
        False, "RMSNorm with a weight, not LayerNorm with weight and bias", off=False, source=f"{REPORT} 2.2"
    )
    tie_qkv: str = option(
        "none", "which of queries, keys and values are equal, and which factor, A or B, all of them share",
        off="none", values=(*TIES, *SHARED), source=f"{REPORT} 2.3, training code",
    )  # fmt: skip
    no_eos: bool = option(
        False, "nothing is asked after the last digit: no EOS target, no position 32, which only it reads",
        off=False, needs={"positions": INPUTS}, source="docs/architecture.md, folds",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared and not self.qkv_rank:
            raise ValueError(f"{spelt('tie_qkv', self.tie_qkv)} needs a qkv_rank above 0, got qkv_rank=0")

    @property
    def vocabulary(self) -> int:
        return VOCABULARY

    @property
    def decoded(self) -> int:
        """The answer's digits: the published reading ends there, or at the first token that is no digit."""
        return DIGITS + 1

    @property
    def shared(self) -> str:
        """The factor that queries, keys and values share: A, B, or none (empty)."""
        return self.tie_qkv[5] if self.tie_qkv in SHARED else ""

    @property
    def parts(self) -> tuple[str, str, str]:
        """The projections of queries, keys and values: one name where they are equal."""
        tie = self.tie_qkv.removeprefix(f"share{self.shared}").removeprefix("_tie").lower()
        equal = {"all": ("qkv", "qkv", "qkv"), "qk": ("qk", "qk", "v"), "kv": ("q", "kv", "kv")}
        return equal.get(tie, ("q", "k", "v"))

    def without(self, constraint: str) -> Spec:
        """As for every family; factors can only be shared where there are factors."""
        if constraint == "qkv_rank" and self.shared:
            return super().without("tie_qkv").without(constraint)
        return super().without(constraint)

    def shapes(self) -> Shapes:
        d = self.width
        suffixes = [""] if self.rms_norm else ["", "_bias"]
        return {
            "tokens": (VOCABULARY, d),
            **self._position_shapes(self.positions - self.no_eos),
            **self._qkv_shapes(),
            **_linear("out", d, d, self.out_rank),
            **_linear("fc1", d, self.ffn, self.ffn_rank),
            **_linear("fc2", self.ffn, d, self.ffn_rank),
            **{f"norm{n}{suffix}": (d,) for n in (1, 2, 3) for suffix in suffixes},
        }

    def _position_shapes(self, rows: int) -> Shapes:
        r, d = self.pos_rank, self.width
        return {"pos_A": (rows, r), "pos_B": (r, d)} if r else {"positions": (rows, d)}

    def _qkv_shapes(self) -> Shapes:
        """The tensors of the query, key and value projections, in the order of the training code."""
        d, r, parts = self.width, self.qkv_rank, dict.fromkeys(self.parts)
        if self.shared == "A":
            return {"qkv_A": (d, r), **{f"qkv_B{part}": (r, d) for part in parts}}
        if self.shared == "B":
            return {**{f"qkv_A{part}": (d, r) for part in parts}, "qkv_B": (r, d)}
        if self.tie_qkv == "none":
            return _linear("qkv", d, 3 * d, r)
        return {name: shape for part in parts for name, shape in _linear(part, d, d, r).items()}

    def initial(self, seed: int) -> Tensor:
        """The published draws in the published order, from torch's CPU generator.

        Modules draw their default values when they are made, and the generator moves on; then every
        embedding and full matrix is drawn again, the token table twice, because the output head holds it too.
        """
        return self.layout.join(_draws(self, torch.Generator().manual_seed(seed)))

    def sequence(self, x: list[Tensor], y: list[Tensor], z: list[Tensor]) -> list[Tensor]:
        plus, equals, eos = (torch.full_like(x[0], token) for token in (PLUS, EQUALS, EOS))
        end = [eos] if len(z) == DIGITS + 1 and not self.no_eos else []
        return [*x[::-1], plus, *y[::-1], equals, *z, *end]

    def forward(self, theta_SP: Tensor, tokens_STB: Tensor, first: int) -> list[Tensor]:
        p = self.layout.split(theta_SP)
        length, batch = tokens_STB.shape[1:]
        tokens_STB = F.pad(tokens_STB, (0, -batch % ALIGNED))  # further problems, whose logits are cut off
        table_SVD, positions_STD = p["tokens"], _positions(self, p)[:, :length]
        hot_STVB = _one_hot(tokens_STB, theta_SP.dtype)

        x_SDTV = positions_STD.mT[..., None] + table_SVD.mT[:, :, None]
        x_SDN = _look_up(x_SDTV[:, :, first:], hot_STVB[:, first:]).flatten(2)
        x_SDN = x_SDN + _attend(self, p, _norm(self, p, 1, x_SDTV.flatten(2)), hot_STVB, first)
        hidden_SFN = F.gelu(_matrix(p, "fc1") @ _norm(self, p, 2, x_SDN))
        x_SDN = x_SDN + _matrix(p, "fc2") @ hidden_SFN
        logits_SVN = table_SVD @ _norm(self, p, 3, x_SDN)
        logits_SVAB = logits_SVN.unflatten(2, (length - first, -1))[..., :batch]
        return list(logits_SVAB.unbind(1))

    def folds(self) -> list[Fold]:
        """Every fold that applies, whether or not it saves anything."""
        found = []
        if self.positions > INPUTS:
            fewer = dataclasses.replace(self, positions=INPUTS)
            found.append(Fold("no position after the 33rd is read", fewer, lambda t: _cut(t, INPUTS)))
        elif not self.no_eos:
            without_end, last = dataclasses.replace(self, no_eos=True), INPUTS - 1
            says = "only the end token's prediction reads the last position"
            found.append(Fold(says, without_end, lambda t: _cut(t, last)))
        if self.pos_rank:
            full = dataclasses.replace(self, pos_rank=0)
            found.append(Fold("the position table multiplied out", full, _full_positions))
        if self.out_rank:
            full = dataclasses.replace(self, out_rank=0)
            found.append(Fold("the attention output multiplied out", full, lambda t: _full(t, "out")))
        if self.ffn_rank:
            full = dataclasses.replace(self, ffn_rank=0)
            found.append(Fold("the FFN multiplied out", full, lambda t: _full(t, "fc1", "fc2")))
        if self.qkv_rank:
            ties = {3: "none", 2: "kv" if self.parts[1] == self.parts[2] else "qk", 1: "all"}
            full = dataclasses.replace(self, qkv_rank=0, tie_qkv=ties[len(set(self.parts))])
            says = "queries, keys and values multiplied out"
            found.append(Fold(says, full, lambda t: _full_projections(self, t)))
        return found


def _linear(name: str, reads: int, writes: int, rank: int) -> Shapes:
    """The tensors of a matrix: two factors, or one matrix in torch's orientation."""
    if rank:
        return {f"{name}_A": (reads, rank), f"{name}_B": (rank, writes)}
    return {name: (writes, reads)}


# Initial values


def _draws(spec: LowRank, gen: torch.Generator) -> Tensors:
    """Every tensor of one seed. Without the EOS target the last position is drawn all the same."""
    shapes = spec.shapes()
    rows = spec._position_shapes(spec.positions)
    drawn = {name: torch.empty(shape) for name, shape in (shapes | rows).items()}
    matrices = [n for n in shapes if n not in rows and n != "tokens" and not n.startswith("norm")]
    whole = [n for n in matrices if not _is_factor(n)]

    drawn["tokens"].normal_(generator=gen)
    for name in rows:
        drawn[name].normal_(0, 0.02 if spec.pos_rank else 1, generator=gen)
    for name in matrices:
        if _is_factor(name):
            drawn[name].normal_(0, math.sqrt(2 / sum(shapes[name])), generator=gen)
        else:
            init.kaiming_uniform_(drawn[name], a=math.sqrt(5), generator=gen)
    init.kaiming_uniform_(torch.empty(VOCABULARY, spec.width), a=math.sqrt(5), generator=gen)

    for name in ["tokens", *([] if spec.pos_rank else rows), *whole, "tokens"]:
        drawn[name].normal_(0, 0.02, generator=gen)
    for name in shapes:
        if name.startswith("norm"):
            drawn[name].fill_(0 if name.endswith("bias") else 1)
    return {name: t[: shapes[name][0]] for name, t in drawn.items()}


def _is_factor(name: str) -> bool:
    return "_A" in name or "_B" in name


# The forward pass


def _attend(spec: LowRank, p: Tensors, normed_SDM: Tensor, hot_STVB: Tensor, first: int) -> Tensor:
    """What attention adds to the residual [S, D, N], from every input after its norm."""
    (query, Aq, Bq), (key, Ak, Bk), (value, Av, Bv) = _projections(spec, p)

    def read(A_SDR: Tensor, start: int = 0) -> Tensor:
        entries_SRTV = _product(A_SDR.mT, normed_SDM).unflatten(2, (-1, VOCABULARY))
        return _look_up(entries_SRTV[:, :, start:], hot_STVB[:, start:])

    keys_SRTB = read(Ak)
    values_SRTB = keys_SRTB if value == key else read(Av)
    queries_SRAB = keys_SRTB[:, :, first:] if query == key else read(Aq, first)
    form_SRR = _product(Bk, Bq.mT) / math.sqrt(spec.width)
    queries_SRAB = (form_SRR @ queries_SRAB.flatten(2)).unflatten(2, queries_SRAB.shape[2:])

    scores_SATB = dot(queries_SRAB[:, :, :, None].unbind(1), keys_SRTB[:, :, None].unbind(1))
    attended_SRAB = torch.stack(attend(scores_SATB, first, values_SRTB.unbind(1)), dim=1)
    return _product(_matrix(p, "out"), Bv.mT) @ attended_SRAB.flatten(2)


def _projections(spec: LowRank, p: Tensors) -> list[tuple[str, Tensor, Tensor]]:
    """For queries, keys and values: a name for x · A, A [..., D, R] and B [..., R, D]."""
    if spec.shared == "A":
        return [("qkv", p["qkv_A"], p[f"qkv_B{part}"]) for part in spec.parts]
    if spec.shared == "B":
        return [(part, p[f"qkv_A{part}"], p["qkv_B"]) for part in spec.parts]
    if spec.qkv_rank and spec.tie_qkv == "none":
        return [("qkv", p["qkv_A"], B) for B in p["qkv_B"].chunk(3, dim=-1)]
    if spec.qkv_rank:
        return [(part, p[f"{part}_A"], p[f"{part}_B"]) for part in spec.parts]
    full = p["qkv"].chunk(3, dim=-2) if spec.tie_qkv == "none" else [p[part] for part in spec.parts]
    itself = torch.eye(spec.width, dtype=full[0].dtype, device=full[0].device).expand_as(full[0])
    return [("x", itself, matrix.mT) for matrix in full]


def _positions(spec: LowRank, p: Tensors) -> Tensor:
    return _product(p["pos_A"], p["pos_B"]) if spec.pos_rank else p["positions"]


def _matrix(p: Mapping[str, Tensor], name: str) -> Tensor:
    """A matrix in torch's orientation, its factors multiplied out."""
    return p[name] if name in p else _product(p[f"{name}_A"], p[f"{name}_B"]).mT


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a · b for matrices of one seed each, [..., m, k] and [..., k, n], without BLAS.

    BLAS adds in an order that depends on where in memory a matrix begins, which for small ones depends on the
    seed's slot. Along problems, whose number is a multiple of 16 here, all begin alike.
    """
    return (a[..., None] * b[..., None, :, :]).sum(-2)


def _norm(spec: LowRank, p: Tensors, n: int, x_SDN: Tensor) -> Tensor:
    """RMSNorm or LayerNorm over the features."""
    if not spec.rms_norm:
        x_SDN = x_SDN - x_SDN.mean(1, keepdim=True)
    scale_S1N = torch.rsqrt(x_SDN.square().mean(1, keepdim=True) + (RMS_EPS if spec.rms_norm else LAYER_EPS))
    x_SDN = x_SDN * scale_S1N * p[f"norm{n}"][..., None]
    return x_SDN if spec.rms_norm else x_SDN + p[f"norm{n}_bias"][..., None]


def _one_hot(tokens_STB: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where a token is the one of the row, else 0: [S, T, V, B]."""
    every_V1 = torch.arange(VOCABULARY, dtype=tokens_STB.dtype, device=tokens_STB.device)[:, None]
    return (tokens_STB[:, :, None] == every_V1).to(dtype)


def _look_up(entries_SCTV: Tensor, hot_STVB: Tensor) -> Tensor:
    """The entry of each position's token [S, C, T, B]."""
    return (entries_SCTV.transpose(1, 2) @ hot_STVB).transpose(1, 2)


# Folds


def _cut(t: Tensors, rows: int) -> Tensors:
    """The first positions alone."""
    return t | {name: t[name][:rows] for name in ("positions", "pos_A") if name in t}


def _full_positions(t: Tensors) -> Tensors:
    return t | {"positions": t["pos_A"] @ t["pos_B"]}


def _full(t: Tensors, *names: str) -> Tensors:
    """Matrices in place of their factors."""
    return t | {name: _matrix(t, name) for name in names}


def _full_projections(spec: LowRank, t: Tensors) -> Tensors:
    """The query, key and value projections as full matrices, one where they are equal."""
    full = {part: (A @ B).mT for part, (_, A, B) in zip(spec.parts, _projections(spec, t), strict=True)}
    return t | full | ({"qkv": torch.cat(list(full.values()))} if len(full) == 3 else {})
