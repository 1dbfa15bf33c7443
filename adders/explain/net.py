"""A checkpoint as a program that a browser runs: net.js is its interpreter.

Everything that depends on θ alone is a tape (trainer/engine/tape.py), recorded of the spec's own `expand`; net.js plays
it again whenever a number changes. What follows, `apply`, net.js has for each family.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from model import Spec
from model.tied import ties_of
from trainer.engine.tape import record
from trainer.engine.tape_graph import OPS

COLUMNS = 10
FOLDED: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "root": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "cos": math.cos,
    "abs": abs,
    "max": max,
    "min": min,
    "floor": math.floor,
    "power": operator.pow,
    "greater": operator.gt,
    "not_less": operator.ge,
    "equal": operator.eq,
    "choose": lambda condition, a, b: a if condition else b,
}
"""Operations of tapes on constants, by name."""
READS = {"choose": 3} | dict.fromkeys(("neg", "root", "exp", "log", "sin", "cos", "abs", "floor"), 1)
"""Numbers that an operation reads, where they are not two."""


def program(spec: Spec, theta_P: Tensor) -> dict[str, Any]:
    """Return a net as plain values: its numbers, its ties, the tape of its wide tensors, and its shape."""
    base, ties = ties_of(spec)
    shapes: dict[str, list[int]] = {}

    def expand(tensors: dict[str, Tensor]) -> list[Tensor]:
        wide = base.expand(tensors["theta"])
        # the tape has no shapes, which net.js needs
        for name, tensor in wide.items():
            shapes[name] = list(tensor.shape[1:])
        return list(wide.values())

    tape = record(expand, {"theta": (base.params,)}, _fold)
    arrays = {name: getattr(tape, name).tolist() for name in ("constants", "blocks", "reads", "outputs")}
    return {
        "numbers": theta_P.double().tolist(),
        "ties": list(ties),
        "tensors": [[n, list(s)] for n, s in zip(base.layout.names, base.layout.shapes, strict=True)],
        "tape": arrays | {"inputs": tape.inputs},
        "wide": list(shapes.items()),
        "family": base.family,
        "form": _form(base),
        "steps": base.decoded,
        "prompt": _prompt(base),
    }


def _fold(code: int, *numbers: float) -> float:
    """Return an operation's result on constants, which the tape has in its place."""
    name = OPS[code]
    return float(FOLDED[name](*numbers[: READS.get(name, 2)]))


def _form(base: Any) -> dict[str, Any]:
    """Return what `apply` reads of a spec."""
    if base.family == "low_rank":
        return {"heads": 1, "centre": not base.rms_norm}
    if base.family == "rope":
        return {"heads": base.heads}
    return {"heads": base.heads, "circular": base.circular, "summed": base.out_rank > 0}


def _prompt(base: Spec) -> list[int]:
    """Return the prompt's tokens, 100 + j where column j of the first number stands and 200 + j of the second."""

    def marks(first: int) -> list[Tensor]:
        return [torch.tensor([first + j], dtype=torch.int64) for j in range(COLUMNS)]

    # numbers of no token, so that each shows where it comes from
    prompt = base.sequence(marks(100), marks(200), [])
    return [int(token) for token in prompt]
