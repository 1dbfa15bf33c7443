"""The split_subspace family: MicroAdder's decoder, where positions route and tokens carry content.

One pre-norm block over a residual of token dimensions and position dimensions. Queries and keys read
positions, values read tokens; logits are dot products with the token table. Without any constraint it is
JackCai's 242-parameter model. Facts from "Training a Transformer for Perfect 10-Digit Addition" (the 57p
paper), "Reflection: 75 Parameters From Scratch" and the training code of both.

Forward pass, initial values and folds, which need torch, are in modules beside this one.

Axes: S seed, B problem, T position, P parameters.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import option
from model.layout import Shapes
from model.spec import Parts, Spec
from model.structures import Words, rotations
from model.tasks import in_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from model.spec import Probe


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSubspace(Spec):
    """34 tokens, units first: X0..X9 PLUS Y0..Y9 EQUALS Z0..Z10 EOS, of ten digits.

    The delimiters are tokens 10, 11 and 12 of a vocabulary of 14 (13 is padding), or token 0 of one of 10; in another
    base they follow its digits too.
    """

    family: ClassVar[str] = "split_subspace"
    operands: ClassVar[tuple[int, ...]] = (2, 3)
    sees_whose: ClassVar[bool] = False  # a column's digits have one position in all numbers
    about: ClassVar[str] = "MicroAdder's decoder: positions route, tokens carry content"
    roles: ClassVar[dict[str, str]] = {
        "tokens": "token table",
        "arc": "digits on an arc: radii, start, stride",
        "digits": "digit positions, shared by X, Y and Z",
        "spiral": "amplitude, phase, slope, offset",
        "correction": "scales of digit positions",
        "z_hi": "position of Z10",
        "equals": "position of EQUALS",
        "plus": "position of PLUS",
        "eos": "position of EOS",
        "phase": "angle between queries and keys",
        "q_proj": "positions to queries (and keys where tied)",
        "q_A": "its column",
        "q_B": "its row",
        "k_proj": "positions to keys",
        "v_proj": "tokens to values",
        "form": "attention scores as a form of two positions",
        "out": "attention output",
        "out_A": "attention output, column",
        "out_B": "attention output, row",
        "fc1": "FFN, first layer",
        "fc1_bias": "its bias",
        "fc2": "FFN, second layer",
        "fc2_bias": "its bias",
        "head": "residual to token space (values and fc2 too where tied)",
        "norm": "RMSNorm weights",
    }

    essential: ClassVar[tuple[str, ...]] = ("tokens", "arc", "head", "norm")

    # Sizes, and numbers that are initial values or, where a constraint fixes them, constants
    tok_dim: int = option(3, "width of the token subspace", unit="dimensions", ge=2, le=8)
    pos_dim: int = option(3, "width of the position subspace", unit="dimensions", ge=3, le=8)
    heads: int = option(2, "attention heads; divides the width", unit="heads", ge=1, le=4)
    hidden: int = option(2, "hidden units of the FFN", unit="units", ge=2, le=16)
    spiral_amp: float = option(
        3.5,
        "radius of the spiral at step 0, and where it is frozen",
        unit="residual",
        source="57p paper 2.2",
    )
    spiral_slope: float = option(
        0.15,
        "rise of the spiral for each digit at step 0, and where it is frozen",
        unit="residual",
        source="57p paper 2.2",
    )
    equals_index: float = option(
        9.5,
        "where EQUALS sits on the ring, if it does",
        unit="digits",
        source="57p training code",
    )

    # Constraints, by what they are about
    # ---- tokens
    vocabulary: int = option(
        14,
        "tokens in the table; with 10, delimiters are the digit 0 and only their position tells",
        off=14,
        unit="tokens",
        values=(10, 14),
        source="57p paper 4.1",
    )
    arc: bool = option(
        False,
        "digits lie on an elliptical arc: two radii, a start and a stride",
        off=False,
        needs={"tok_dim": 2, "vocabulary": 10},
        source="57p paper 4.1",
    )
    circular: bool = option(
        False,
        "the digits' arc is a circle's: one radius for both axes",
        off=False,
        needs={"arc": True},
        source="57p paper 2.1",
    )
    # ---- positions
    spiral: bool = option(
        False,
        "digit positions lie on a spiral, each with a learned scale",
        off=False,
        source="57p paper 2.2",
    )
    linear_correction: bool = option(
        False,
        "the scales of the spiral's positions are linear in the digit",
        off=False,
        needs={"spiral": True},
        excludes=("plain_spiral",),
        source="57p paper 4.1",
    )
    plain_spiral: bool = option(
        False,
        "the spiral's positions have no scales",
        off=False,
        needs={"spiral": True},
        source="57p paper 4.1",
    )
    flat_spiral: bool = option(
        False,
        "the spiral does not rise (slope 0)",
        off=False,
        needs={"spiral": True},
        source="Reflection 7.2",
    )
    frozen_spiral: bool = option(
        False,
        "the spiral is fixed and nothing of it is learned",
        off=False,
        needs={"plain_spiral": True},
        source="57p paper 2.2",
    )
    frozen_eos: bool = option(False, "EOS has position zero", off=False, source="57p paper 4.1")
    frozen_plus: bool = option(False, "PLUS has position zero", off=False, source="57p paper 4.1")
    equals_on_ring: bool = option(
        False,
        "EQUALS sits on the digits' spiral, at a fixed index",
        off=False,
        needs={"spiral": True},
        source="57p training code",
    )
    frozen_z_hi: bool = option(False, "Z10 has position zero", off=False, source="Reflection 5")
    no_eos: bool = option(
        False,
        "nothing is asked after the last digit: no EOS target, and no z_hi, which only it reads",
        off=False,
        needs={"vocabulary": 10, "frozen_eos": True},
        excludes=("frozen_z_hi",),
        source="docs/compress.md, folds",
    )
    # ---- attention scores
    tie_qk: bool = option(
        False,
        "keys and queries share a projection; queries are turned by one angle a head",
        off=False,
        source="57p paper 2.3",
    )
    unturned: bool = option(
        False,
        "the angle between queries and keys is 0",
        off=False,
        needs={"tie_qk": True},
        source="57p paper 2.3",
    )
    qk_dim: int = option(
        0,
        "width of a head's queries and keys; 0: as its values",
        unit="dimensions",
        le=16,
        ge=0,
        off=0,
        source="57p paper 2.3",
    )
    toeplitz_q: bool = option(
        False,
        "the query projection of a head has constant diagonals",
        off=False,
        needs={"tie_qk": True},
        excludes=("circulant_q",),
        source="57p paper 7.2",
    )
    circulant_q: bool = option(
        False,
        "the query projection of a head has constant diagonals that wrap around",
        off=False,
        needs={"tie_qk": True},
        source="57p paper 7.2",
    )
    rank1_q: bool = option(
        False,
        "the query projection of a head is a product of a column and a row",
        off=False,
        needs={"tie_qk": True},
        excludes=("toeplitz_q", "circulant_q"),
        source="Reflection 7.3",
    )
    direct_forms: bool = option(
        False,
        "attention scores are a free form of two positions, and the output reads tokens directly",
        off=False,
        excludes=("toeplitz_q", "circulant_q", "rank1_q", "unturned"),
        source="docs/compress.md, folds",
    )
    # ---- values and output
    tie_vo: bool = option(
        False,
        "values are read through the output head (V = headᵀ)",
        off=False,
        source="57p paper 2.4",
    )
    rank2_out: bool = option(
        False,
        "the attention output has rank 2",
        off=False,
        excludes=("rank1_out",),
        source="57p paper 4.1",
    )
    rank1_out: bool = option(
        False,
        "the attention output is a product of a column and a row",
        off=False,
        source="57p paper 2.5",
    )
    unit_out: bool = option(
        False,
        "the first entry of the output's row is 1",
        off=False,
        needs={"rank1_out": True},
        excludes=("onehot_out",),
        source="docs/compress.md, folds",
    )
    opposite_out: bool = option(
        False,
        "the second entry of the output's row is minus the first",
        off=False,
        needs={"rank1_out": True},
        excludes=("onehot_out",),
        source="lab/2026-11-23-descents",
    )
    token_out: bool = option(
        False,
        "the attention output writes to the token dimensions alone",
        off=False,
        needs={"rank1_out": True},
        excludes=("onehot_out",),
        source="Reflection 7.4",
    )
    onehot_out: bool = option(
        False,
        "the attention output is added to the second token dimension as it is",
        off=False,
        needs={"rank1_out": True},
        source="Reflection 7.4",
    )
    # ---- norms
    shared_norm: bool = option(
        False,
        "one weight vector serves all three norms",
        off=False,
        source="57p paper 2.6",
    )
    structured_norm3: bool = option(
        False,
        "norm weights are b, but b + c in the second dimension and b + d in the last",
        off=False,
        needs={"shared_norm": True},
        excludes=(
            "structured_norm2",
            "structured_norm1",
            "scalar_norm",
            "parameterless_norm",
        ),
        source="Reflection 7.6",
    )
    structured_norm2: bool = option(
        False,
        "norm weights are b, but b + d in the last dimension",
        off=False,
        needs={"shared_norm": True},
        excludes=("structured_norm1", "scalar_norm", "parameterless_norm"),
        source="Reflection 7.6",
    )
    structured_norm1: bool = option(
        False,
        "norms have no weights but 1 + d in the last dimension",
        off=False,
        needs={"shared_norm": True},
        excludes=("scalar_norm", "parameterless_norm"),
        source="lab/2026-11-23-descents",
    )
    scalar_norm: bool = option(
        False,
        "one number is every weight of every norm",
        off=False,
        needs={"shared_norm": True},
        excludes=("parameterless_norm",),
        source="Reflection 7.6",
    )
    parameterless_norm: bool = option(
        False,
        "norms have no weights",
        off=False,
        needs={"shared_norm": True},
        source="Reflection 6",
    )
    # ---- FFN
    no_ffn_bias: bool = option(False, "the FFN has no biases", off=False, source="57p paper 2.7")
    one_unit: bool = option(
        False,
        "the FFN has one hidden unit",
        off=False,
        needs={"hidden": 2},
        excludes=("tie_fc2_head",),
        source="57p paper 2.7",
    )
    tie_fc2_head: bool = option(
        False,
        "the FFN writes through the output head (fc2 = headᵀ)",
        off=False,
        needs={"tok_dim": 2, "hidden": 2},
        source="57p paper 2.4",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width, got heads={self.heads} and width {self.width}")
        # Untied, queries and keys of one dimension are two rows, and need no turn.
        if self.tie_qk and self.qk_dim == 1:
            raise ValueError("tie_qk excludes qk_dim=1: there is no pair of dimensions to turn")
        # 0 and the head's own width are one model, which must not have two keys.
        if self.qk_dim == self.head_dim:
            object.__setattr__(self, "qk_dim", 0)

    @property
    def width(self) -> int:
        """Dimensions of the residual."""
        return self.tok_dim + self.pos_dim

    @property
    def head_dim(self) -> int:
        """Width of one head's values."""
        return self.width // self.heads

    @property
    def query_dim(self) -> int:
        """Width of one head's queries and keys."""
        return self.qk_dim or self.head_dim

    @property
    def units(self) -> int:
        """Hidden units that have numbers."""
        return 1 if self.one_unit else self.hidden

    @property
    def parts(self) -> dict[str, Parts]:  # type: ignore[override]
        """Hidden units, where there is more than one."""
        return {} if self.one_unit else {"units": Parts("hidden", {"fc1": 0, "fc1_bias": 0, "fc2": 1})}

    @property
    def norm_numbers(self) -> int:
        """Numbers that the weights of all norms are made of, where they have a structure; else 0."""
        if self.structured_norm3:
            return 3
        if self.structured_norm2:
            return 2
        return int(self.structured_norm1 or self.scalar_norm)

    @property
    def out_rank(self) -> int:
        """Rank of the attention output; 0: full."""
        return 1 if self.rank1_out else 2 if self.rank2_out else 0

    @property
    def decoded(self) -> int:
        """One more than the answer with a vocabulary of 14, which has a token that ends it."""
        return self.task.answers + (self.vocabulary == 14)

    @property
    def tokens(self) -> int:
        """V: as many more or fewer than the vocabulary as the base has digits more or fewer than ten."""
        return self.vocabulary - 10 + in_columns(self.task).base

    @property
    def columns(self) -> int:
        """Digits of a number."""
        return in_columns(self.task).digits

    @property
    def spiral_start(self) -> list[float]:
        """Amplitude, phase (radians), slope and offset of a spiral that has learned nothing."""
        return [
            self.spiral_amp,
            0.0,
            0.0 if self.flat_spiral else self.spiral_slope,
            0.0,
        ]

    def trained(self) -> SplitSubspace:
        unread = [] if self.frozen_spiral else ["spiral_amp", "spiral_slope"]
        unread += [] if self.equals_on_ring else ["equals_index"]
        unread += ["tie_qk", "qk_dim", "tie_vo"] if self.direct_forms else []  # drawn for them, then multiplied
        return self.with_defaults(unread)

    def hard_wired(self) -> dict[str, float]:
        constants = {"out_B[0]": 1.0} if self.unit_out else {}
        if self.frozen_spiral:
            constants |= {
                "spiral_amp": self.spiral_amp,
                "spiral_slope": self.spiral_start[2],
            }
        if self.equals_on_ring:
            constants["equals_index"] = self.equals_index
        return {name: value for name, value in constants.items() if value}  # zeros are structure

    def structures(self) -> dict[str, list[Words]]:
        """Add rotations of the form of scores, where one head has such a form."""
        groups = super().structures()
        if self.direct_forms and self.heads == 1:
            groups["rotation"] = rotations("form", self.pos_dim)
        return groups

    @property
    def answers(self) -> int:
        """Positions whose next token is predicted."""
        return self.task.answers + (not self.no_eos)

    def shapes(self) -> Shapes:
        # θ is stored in this order: checkpoints, ties and golden curves hang on it.
        shapes = self._embedding_shapes() | self._attention_shapes()
        shapes["fc1"] = (self.units, self.width)
        if not self.no_ffn_bias:
            shapes["fc1_bias"] = (self.units,)
        if not self.tie_fc2_head:
            shapes["fc2"] = (self.width, self.units)
        if not self.no_ffn_bias:
            shapes["fc2_bias"] = (self.width,)
        shapes["head"] = (self.tok_dim, self.width)
        if self.norm_numbers:
            shapes["norm"] = (self.norm_numbers,)
        elif not self.parameterless_norm:
            shapes["norm"] = (1 if self.shared_norm else 3, self.width)
        return shapes

    def _embedding_shapes(self) -> Shapes:
        shapes: Shapes = {"tokens": (self.tokens, self.tok_dim)}
        if self.arc:
            shapes = {"arc": (3 if self.circular else 4,)}
        if not self.spiral:
            shapes["digits"] = (self.columns, self.pos_dim)
        elif not self.frozen_spiral:
            shapes["spiral"] = (3 if self.flat_spiral else 4,)
        if self.spiral and not self.plain_spiral:
            shapes["correction"] = (2 if self.linear_correction else self.columns,)
        # Delimiters and the answer's last column have positions of their own, unless a constraint takes them.
        learned = {
            "z_hi": not (self.no_eos or self.frozen_z_hi),
            "equals": not self.equals_on_ring,
            "plus": not self.frozen_plus,
            "eos": not self.frozen_eos,
        }
        return shapes | {name: (self.pos_dim,) for name, is_learned in learned.items() if is_learned}

    def _attention_shapes(self) -> Shapes:
        h, q, width, rank = self.heads, self.query_dim, self.width, self.out_rank
        # Directly, the output reads each head's tokens; else its values, as wide as the residual in all.
        reads = h * self.tok_dim if self.direct_forms else width
        shapes: Shapes = {}
        if self.direct_forms:
            shapes["form"] = (h * self.pos_dim, self.pos_dim)
        else:
            projection = (h * q, self.pos_dim)
            if self.tie_qk and not self.unturned:
                shapes["phase"] = (h,)
            # One number per diagonal, or per diagonal that wraps around.
            if self.toeplitz_q:
                projection = (h, q + self.pos_dim - 1)
            elif self.circulant_q:
                projection = (h, max(q, self.pos_dim))
            if self.rank1_q:
                shapes |= {"q_A": (h, q), "q_B": (h, self.pos_dim)}
            else:
                shapes["q_proj"] = projection
            if not self.tie_qk:
                shapes["k_proj"] = projection
            if not self.tie_vo:
                shapes["v_proj"] = (width, self.tok_dim)
        if not rank:
            return shapes | {"out": (width, reads)}
        shapes["out_A"] = (reads, rank)
        row = self.tok_dim if self.token_out else width
        written = 0 if self.onehot_out else row - self.unit_out - self.opposite_out
        if written:
            shapes["out_B"] = (rank, written)
        return shapes

    def probes(self) -> dict[str, Probe]:
        return self._probes.probes(self)

    def images(self, theta_P: Tensor) -> list[Tensor]:
        return self._images.images(self, theta_P)

    def recycled(self) -> Callable[[Any, Tensor], Tensor] | None:
        # A single unit has no other whose opposite it could be.
        return self._probes.opposed if "switches" in self.probes() and self.units > 1 else None
