"""The rope family: one block of a Qwen-like decoder, whose positions are rotations of queries and keys.

No position has parameters. RMSNorm stands before attention, before the MLP and at the end; queries and keys
have norms of their own; the MLP is a SwiGLU; nothing has biases; logits are dot products with the token table.
Without any constraint it is tbukic's 113-parameter model. Facts from AdderBoard's entries and their training code.

Forward pass, initial values and folds, which need torch, are in modules beside this one.

Axes: S seed, B problem, T position, P parameters.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from model.fields import option
from model.layout import Shapes, linear
from model.spec import Parts, Spec
from model.tasks import in_columns

HEAD, PLANE = 4, 2  # PLANE: dimensions of the digits' arc


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope(Spec):
    """35 tokens, units first: 0 X0..X9 0 0 Y0..Y9 0 = Z0..Z10, of ten digits. Delimiters are the digit 0.

    All heads share one head of keys and values, and a head is 4 wide. A matrix maps its second axis to its first.
    """

    family: ClassVar[str] = "rope"
    about: ClassVar[str] = "AdderBoard's Qwen-like nets: positions are rotations, SwiGLU"
    delimiters: ClassVar[int] = 2
    operands: ClassVar[tuple[int, ...]] = (1, 2, 3)
    roles: ClassVar[dict[str, str]] = {
        "tokens": "token table and output head",
        "arc": "digits on an arc: radius, start, stride",
        "q": "residual to queries (and what is tied to them)",
        "k": "residual to keys",
        "v": "residual to values",
        "kv": "residual to keys and values",
        "k_scale": "keys, of queries",
        "k_angle": "angle from queries to keys",
        "o": "attention output",
        "o_A": "attention output, column",
        "o_B": "attention output, row",
        "gate": "MLP, gates",
        "up": "MLP, first layer",
        "gate_scale": "gates, of the first layer",
        "down": "MLP, second layer",
        "down_angle": "angle from the first layer to the second",
        "norm": "all norms",
        "norm12": "attention's and MLP's norm",
        "norm1": "attention's norm",
        "norm2": "MLP's norm",
        "norm3": "final norm",
        "qk_norm": "norm of queries and keys",
        "q_norm": "norm of queries",
        "k_norm": "norm of keys",
    }
    essential: ClassVar[tuple[str, ...]] = ("tokens", "arc", "norm", "norm3")

    # Sizes
    width: int = option(3, "width of the residual", unit="dimensions", ge=2, le=8)
    heads: int = option(1, "heads of queries", unit="heads", ge=1, le=4)
    ffn: int = option(2, "hidden units of the MLP", unit="units", ge=1, le=16)
    rope_base: float = option(
        3.0,
        "queries and keys turn by 1 and by 1/√base a position",
        unit="base",
        ge=1,
        source="AdderBoard: staghado",
    )
    half_split: bool = option(
        False,
        "pairs that turn are (0, 2) and (1, 3), not (0, 1) and (2, 3)",
        source="Qwen3; AdderBoard: staghado",
    )
    arc_radius: float = option(
        2.5,
        "radius of the arc at step 0, and where it is frozen",
        unit="residual",
        source="AdderBoard: tbukic",
    )
    arc_start: float = option(
        -1.2,
        "angle of digit 0 at step 0, and where the arc is frozen",
        unit="radians",
        source="AdderBoard: tbukic",
    )
    arc_stride: float = option(
        0.29,
        "angle between digits at step 0, and where the arc is frozen",
        unit="radians",
        source="AdderBoard: tbukic",
    )
    first_k_angle: float = option(
        0.1,
        "angle from queries to keys at step 0, and where it is frozen",
        unit="radians",
        source="AdderBoard: tbukic",
    )
    first_down_angle: float = option(
        0.1,
        "angle from the MLP's first layer to its second at step 0, and where it is frozen",
        unit="radians",
        source="AdderBoard: tbukic",
    )
    qk_norm_1: float = option(
        -1.0,
        "second weight of queries and keys, where fixed",
        unit="factor",
        source="Hyra-results, smallest_adder",
    )
    qk_norm_2: float = option(
        0.0,
        "third weight of queries and keys, where fixed",
        unit="factor",
        source="Hyra-results, smallest_adder",
    )
    qk_norm_3: float = option(
        3.6,
        "fourth weight of queries and keys, where fixed",
        unit="factor",
        source="Hyra-results, smallest_adder",
    )

    # Constraints, by what they are about
    # ---- tokens and inputs
    arc: bool = option(
        False,
        "digits lie on an arc of a circle, in two dimensions",
        off=False,
        source="AdderBoard: tbukic, 95",
    )
    frozen_arc: bool = option(
        False,
        "the arc is fixed and nothing of it is learned",
        off=False,
        needs={"arc": True},
        source="Hyra-results, smallest_adder",
    )
    sine_input: bool = option(
        False,
        "the third dimension of an input is sin(position / 10,000)",
        off=False,
        needs={"arc": True},
        source="AdderBoard: warlockee, 58 and 49",
    )
    # ---- attention; queries can stand for keys or values only where there is one head of each
    tie_kv: bool = option(
        False,
        "keys and values share a projection",
        off=False,
        excludes=("tie_qk", "scaled_k", "turned_k", "tie_vq"),
        source="AdderBoard: tbukic, 96",
    )
    tie_qk: bool = option(
        False,
        "keys and queries share a projection",
        off=False,
        needs={"heads": 1},
        excludes=("scaled_k", "turned_k"),
        source="AdderBoard: tbukic, 44",
    )
    scaled_k: bool = option(
        False,
        "keys are queries times a number",
        off=False,
        needs={"heads": 1},
        excludes=("turned_k",),
        source="AdderBoard: tbukic, 58",
    )
    turned_k: bool = option(
        False,
        "keys are queries turned by an angle",
        off=False,
        needs={"heads": 1},
        source="AdderBoard: tbukic, 45",
    )
    frozen_k_angle: bool = option(
        False,
        "the angle from queries to keys is fixed",
        off=False,
        needs={"turned_k": True},
        source="Hyra-results, smallest_adder",
    )
    tie_vq: bool = option(
        False,
        "values and queries share a projection",
        off=False,
        needs={"heads": 1},
        source="AdderBoard: tbukic, 45",
    )
    tie_oq: bool = option(
        False,
        "the attention output is the queries' projection, transposed",
        off=False,
        excludes=("rank1_out",),
        source="AdderBoard: tbukic, 101",
    )
    rank1_out: bool = option(
        False,
        "the attention output is a product of a column and a row",
        off=False,
        source="AdderBoard: tbukic, 96",
    )
    shared_qk_norm: bool = option(
        False,
        "one weight vector serves queries and keys",
        off=False,
        source="AdderBoard: vijec, 52",
    )
    fixed_qk_norm: bool = option(
        False,
        "the last three weights of queries and keys are fixed",
        off=False,
        needs={"shared_qk_norm": True},
        source="Hyra-results, smallest_adder",
    )
    # ---- MLP
    tie_gate: bool = option(
        False,
        "gates are the MLP's first layer times a number",
        off=False,
        source="AdderBoard: tbukic, 58",
    )
    tie_down_gate: bool = option(
        False,
        "the MLP's second layer is its gates, transposed",
        off=False,
        excludes=("turned_down",),
        source="AdderBoard: warlockee, 52",
    )
    turned_down: bool = option(
        False,
        "the MLP's second layer is its first, transposed, after units turn by an angle in pairs",
        off=False,
        source="AdderBoard: tbukic, 36",
    )
    frozen_down_angle: bool = option(
        False,
        "the angle from the MLP's first layer to its second is fixed",
        off=False,
        needs={"turned_down": True},
        source="Hyra-results, smallest_adder",
    )
    # ---- norms
    shared_block_norms: bool = option(
        False,
        "one weight vector serves attention's norm and the MLP's",
        off=False,
        excludes=("shared_norms",),
        source="AdderBoard: tbukic, 86",
    )
    shared_norms: bool = option(
        False,
        "one weight vector serves all three norms",
        off=False,
        source="AdderBoard: tbukic, 83",
    )
    # ---- what an arc leaves unread, which folds take off
    arc_inputs: bool = option(
        False,
        "attention reads the arc's two dimensions; the others are 0 there",
        off=False,
        needs={"arc": True},
        excludes=("sine_input",),
        source="docs/compress.md, folds",
    )
    arc_logits: bool = option(
        False,
        "the final norm has weights for the arc's two dimensions; logits read no others",
        off=False,
        needs={"arc": True},
        excludes=("shared_norms",),
        source="docs/compress.md, folds",
    )
    flat_down: bool = option(
        False,
        "the MLP writes to the arc's two dimensions; writing to others only scales all logits",
        off=False,
        needs={"arc": True},
        excludes=("tie_down_gate", "turned_down"),
        source="docs/compress.md, folds",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.turned_down and self.ffn == 1:
            raise ValueError("turned_down excludes ffn=1: there is no pair of units to turn")
        if self.sine_input and self.width == PLANE:
            raise ValueError("sine_input needs a third dimension, got width=2")

    @property
    def vocabulary(self) -> int:
        return in_columns(self.task).base

    @property
    def decoded(self) -> int:
        return self.task.answers

    @property
    def answers(self) -> int:
        return self.task.answers

    @property
    def inputs(self) -> int:
        """Tokens that are read: all but the last."""
        return self.prompt + self.answers - 1

    @property
    def parts(self) -> dict[str, Parts]:  # type: ignore[override]
        """Heads, and hidden units; but not units that turn in pairs, each of which writes what two of them read."""
        heads = {"heads": Parts("heads", {"q": 0, "o": 1, "o_A": 0})}
        units = {"units": Parts("ffn", {"gate": 0, "up": 0, "down": 1})}
        return heads if self.turned_down else units | heads

    @property
    def free_down(self) -> bool:
        """True if the MLP's second layer is a matrix of its own."""
        return not (self.tie_down_gate or self.turned_down)

    def trained(self) -> Rope:
        # Learned numbers begin at these values and leave them; only where they are fixed is θ read by them.
        unread = [] if self.frozen_arc else ["arc_radius", "arc_start", "arc_stride"]
        unread += [] if self.frozen_k_angle else ["first_k_angle"]
        unread += [] if self.frozen_down_angle else ["first_down_angle"]
        unread += [] if self.fixed_qk_norm else ["qk_norm_1", "qk_norm_2", "qk_norm_3"]
        return self.with_defaults(unread)

    def hard_wired(self) -> dict[str, float]:
        constants = {"sine_input": 1e-4} if self.sine_input else {}
        if self.frozen_arc:
            names = ("arc_radius", "arc_start", "arc_stride")
            constants |= {name: getattr(self, name) for name in names}
        if self.frozen_k_angle:
            constants["k_angle"] = self.first_k_angle
        if self.frozen_down_angle:
            constants["down_angle"] = self.first_down_angle
        if self.fixed_qk_norm:
            weights = {f"qk_norm[{n}]": getattr(self, f"qk_norm_{n}") for n in (1, 2, 3)}
            constants |= {name: w for name, w in weights.items() if abs(w) != 1}
        # Zeros and signs are structure: no way of counting has them (docs/counting.md).
        return {name: value for name, value in constants.items() if value}

    def shapes(self) -> Shapes:
        # In the order in which initial values are drawn: another one is another start of every seed.
        d, f = self.width, self.ffn
        shapes: Shapes = {"tokens": (self.vocabulary, d)}
        if self.arc:
            shapes = {} if self.frozen_arc else {"arc": (3,)}
        shapes |= self._attention_shapes()
        shapes |= {"gate_scale": (1,)} if self.tie_gate else {"gate": (f, d)}
        shapes["up"] = (f, d)
        if self.free_down:
            shapes["down"] = (PLANE if self.flat_down else d, f)
        if self.turned_down and not self.frozen_down_angle:
            shapes["down_angle"] = (1,)
        return shapes | self._norm_shapes()

    def _attention_shapes(self) -> Shapes:
        d, size = self.width, self.heads * HEAD
        read = PLANE if self.arc_inputs else d
        # Tied to the output, queries have all of the residual's dimensions: it writes to each of them.
        shapes: Shapes = {"q": (size, d if self.tie_oq else read)}
        if self.scaled_k:
            shapes["k_scale"] = (1,)
        elif self.turned_k:
            shapes |= {} if self.frozen_k_angle else {"k_angle": (1,)}
        elif not self.tie_qk:
            shapes["kv" if self.tie_kv else "k"] = (HEAD, read)
        if not (self.tie_kv or self.tie_vq):  # one head of keys and values serves all queries
            shapes["v"] = (HEAD, read)
        return shapes | ({} if self.tie_oq else linear("o", size, d, int(self.rank1_out)))

    def _norm_shapes(self) -> Shapes:
        d = self.width
        read = PLANE if self.arc_inputs else d
        seen = PLANE if self.arc_logits else d
        shapes: Shapes = {"q_norm": (HEAD,), "k_norm": (HEAD,)}
        if self.shared_qk_norm:
            shapes = {"qk_norm": (1 if self.fixed_qk_norm else HEAD,)}
        if self.shared_norms:
            return shapes | {"norm": (d,)}
        first: Shapes = {"norm12": (d,)} if self.shared_block_norms else {"norm1": (read,), "norm2": (d,)}
        return shapes | first | {"norm3": (seen,)}
