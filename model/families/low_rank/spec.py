"""The low_rank family: a small GPT whose weight matrices are products of thin factors.

One pre-norm block with one head over learned token and position vectors; logits are dot products with the
token table; no biases but LayerNorm's. Without any constraint it is the 763-parameter model. Facts from
"A 456-Parameter Transformer Solves 10-Digit Addition" (the 456p report) and its training code.

Forward pass, initial values and folds, which need torch, are in modules beside this one.

Axes: S seed, B problem, T position, P parameters.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from model.fields import option, spelt
from model.layout import Shapes, linear
from model.spec import Parts, Spec
from model.tasks import in_columns

PLUS, EQUALS, EOS = 0, 1, 3  # after the digits
INPUTS = 33  # of ten digits: 22 of the prompt and 11 of the answer
TIES = ("none", "all", "qk", "kv")
SHARED = tuple(f"share{factor}{tie}" for factor in "AB" for tie in ("", "_tieQK", "_tieKV"))

PARTS = {
    "q": "queries",
    "k": "keys",
    "v": "values",
    "qk": "queries and keys",
    "kv": "keys and values",
    "qkv": "queries, keys and values",
}


def _roles() -> dict[str, str]:
    """Return the purpose of each tensor that some spec of the family has."""
    roles = {"tokens": "token table and output head", "positions": "position table"}
    for n, place in ((1, "attention's"), (2, "FFN's"), (3, "final")):
        roles[f"norm{n}"] = f"{place} norm"
    roles |= {f"norm{n}_bias": "its bias" for n in (1, 2, 3)}
    matrices = {part: f"residual to {reader}" for part, reader in PARTS.items()}
    matrices |= {
        "out": "attention output",
        "fc1": "FFN, first layer",
        "fc2": "FFN, second layer",
    }
    for factor in "AB":
        roles[f"pos_{factor}"] = f"position table, factor {factor}"
        for name, role in matrices.items():
            roles[f"{name}_{factor}"] = f"{role}, factor {factor}"
        for part, reader in PARTS.items():
            roles[f"qkv_{factor}{part}"] = f"factor {factor} of {reader}"
    return roles | matrices


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowRank(Spec):
    """34 tokens, operands most significant digit first, the sum units first: X9..X0 + Y9..Y0 = Z0..Z10 EOS.

    + is token 10, = is 11, EOS is 13 (12 is padding), in base ten. A pair of factors is read as x · A · B; a full
    matrix maps its second axis to its first, as in torch.
    """

    family: ClassVar[str] = "low_rank"
    operands: ClassVar[tuple[int, ...]] = (1, 2, 3)
    about: ClassVar[str] = "the 456p report's small GPT: learned positions, matrices in thin factors"
    roles: ClassVar[dict[str, str]] = _roles()
    essential: ClassVar[tuple[str, ...]] = ("tokens",)
    parts: ClassVar[dict[str, Parts]] = {
        "units": Parts("ffn", {"fc1": 0, "fc1_B": 1, "fc2": 1, "fc2_A": 0}),
    }

    # Sizes
    width: int = option(7, "width of the residual", unit="dimensions", ge=2, le=16)
    ffn: int = option(14, "width of the FFN", unit="dimensions", ge=1, le=64)
    positions: int = option(
        INPUTS,
        "rows of the position table; the first 33 are read",
        unit="positions",
        values=(INPUTS, 35),
        source="456p report 2",
    )

    # Constraints
    pos_rank: int = option(
        0,
        "rank of the position table; 0: full",
        unit="rank",
        ge=0,
        le=16,
        off=0,
        source="456p report 2.1",
    )
    qkv_rank: int = option(
        0,
        "rank of the query, key and value projections; 0: full",
        unit="rank",
        ge=0,
        le=16,
        off=0,
        source="456p report 2.1",
    )
    out_rank: int = option(
        0,
        "rank of the attention output; 0: full",
        unit="rank",
        ge=0,
        le=16,
        off=0,
        source="456p report 2.1, 2.3",
    )
    ffn_rank: int = option(
        0,
        "rank of both FFN matrices; 0: full",
        unit="rank",
        ge=0,
        le=16,
        off=0,
        source="456p report 2.1",
    )
    rms_norm: bool = option(
        False,
        "RMSNorm with a weight, not LayerNorm with weight and bias",
        off=False,
        source="456p report 2.2",
    )
    tie_qkv: str = option(
        "none",
        "which of queries, keys and values are equal, and which factor, A or B, all of them share",
        off="none",
        values=(*TIES, *SHARED),
        source="456p report 2.3, training code",
    )
    no_eos: bool = option(
        False,
        "nothing is asked after the last digit: no EOS target, no position 32, which only it reads",
        off=False,
        needs={"positions": INPUTS},
        source="docs/compress.md, folds",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared and not self.qkv_rank:
            raise ValueError(f"{spelt('tie_qkv', self.tie_qkv)} needs a qkv_rank above 0, got qkv_rank=0")

    @property
    def vocabulary(self) -> int:
        return in_columns(self.task).base + 4

    @property
    def decoded(self) -> int:
        """The answer's digits: published decoding ends there, or at the first token that is no digit."""
        return self.task.answers

    @property
    def rows(self) -> int:
        """Rows of the position table before any is left out."""
        # 33 or 35 with ten digits; another task has other positions, and as many spare ones.
        return self.positions - INPUTS + self.prompt + self.task.answers

    @property
    def shared(self) -> str:
        """The factor that queries, keys and values share: A, B, or none (empty)."""
        return self.tie_qkv[5] if self.tie_qkv in SHARED else ""  # the letter behind `share`

    @property
    def projections(self) -> tuple[str, str, str]:
        """The projections of queries, keys and values: one name where they are equal."""
        tie = self.tie_qkv.removeprefix(f"share{self.shared}").removeprefix("_tie").lower()
        equal = {
            "all": ("qkv", "qkv", "qkv"),
            "qk": ("qk", "qk", "v"),
            "kv": ("q", "kv", "kv"),
        }
        return equal.get(tie, ("q", "k", "v"))

    def without(self, constraint: str) -> Spec:
        """Also undo the sharing of factors, where there are none left."""
        # A tie such as shareA is of values, so that its field cannot say that it needs a rank.
        if constraint == "qkv_rank" and self.shared:
            return super().without("tie_qkv").without(constraint)
        return super().without(constraint)

    def shapes(self) -> Shapes:
        d = self.width
        suffixes = [""] if self.rms_norm else ["", "_bias"]
        return {
            "tokens": (self.vocabulary, d),
            **self.position_shapes(self.rows - self.no_eos),
            **self._qkv_shapes(),
            **linear("out", d, d, self.out_rank),
            **linear("fc1", d, self.ffn, self.ffn_rank),
            **linear("fc2", self.ffn, d, self.ffn_rank),
            **{f"norm{n}{suffix}": (d,) for n in (1, 2, 3) for suffix in suffixes},
        }

    def position_shapes(self, rows: int) -> Shapes:
        """Return the tensors of a position table with so many rows."""
        r, d = self.pos_rank, self.width
        return {"pos_A": (rows, r), "pos_B": (r, d)} if r else {"positions": (rows, d)}

    def _qkv_shapes(self) -> Shapes:
        """Return the shapes of the query, key and value projections, in the order of the training code."""
        d, r = self.width, self.qkv_rank
        parts = dict.fromkeys(self.projections)  # each name once, in order
        if self.shared == "A":
            seconds = {f"qkv_B{part}": (r, d) for part in parts}
            return {"qkv_A": (d, r), **seconds}
        if self.shared == "B":
            firsts = {f"qkv_A{part}": (d, r) for part in parts}
            return {**firsts, "qkv_B": (r, d)}
        if self.tie_qkv == "none":
            return linear("qkv", d, 3 * d, r)
        shapes: Shapes = {}
        for part in parts:
            shapes |= linear(part, d, d, r)
        return shapes

    @property
    def answers(self) -> int:
        return self.task.answers + (not self.no_eos)
