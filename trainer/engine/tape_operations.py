"""Translations of torch's operations to those of tapes, one entry each (trainer/engine/tape.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.engine.tape_graph import Graph

Operation = Callable[..., Tensor]
"""(graph, arguments of torch's operation) -> registers of its result, or of a tensor that broadcasts to it."""


def _entries(*registers: Tensor) -> tuple[Iterable[tuple[int, ...]], torch.Size]:
    """Return, for each entry of tensors that broadcast, the registers that meet there; and the common shape."""
    parts = torch.broadcast_tensors(*registers)
    flat = [part.flatten().tolist() for part in parts]
    return zip(*flat, strict=True), parts[0].shape


def shaped(registers: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Return registers as a tensor of a shape."""
    return torch.tensor(registers, dtype=torch.int64).reshape(shape)


def entrywise(scalar: Callable[..., int], count: int) -> Operation:
    """Return an operation on entries. `scalar` takes the graph and `count` registers."""

    def on_tensors(graph: Graph, *args: Any, **kwargs: Any) -> Tensor:
        alpha = kwargs.get("alpha", 1)
        args = (*args[:count], *(None,) * (count - len(args)))
        if alpha != 1:
            raise NotImplementedError(f"alpha={alpha} is not supported by the engine")
        rows, shape = _entries(*map(graph.registers, args))
        results = [scalar(graph, *row) for row in rows]
        return shaped(results, shape)

    return on_tensors


def named(name: str, count: int) -> Operation:
    """Return an operation on `count` entries that tapes have by a name."""
    return entrywise(lambda graph, *reads: graph.operation(name, *reads), count)


def _not(graph: Graph, a: int) -> int:
    return graph.operation("sub", graph.constant(1), a)


def _reciprocal(graph: Graph, a: int) -> int:
    return graph.operation("div", graph.constant(1), a)


def _square(graph: Graph, a: int) -> int:
    return graph.operation("mul", a, a)


def _power(graph: Graph, a: int, n: int) -> int:
    """a^n for whole n of 0 or more."""
    # A square is one product, and vectors can be made of it; the engine makes other powers one by one.
    if graph.value(n) == 2:
        return _square(graph, a)
    return graph.operation("power", a, n)


def _sign(graph: Graph, a: int) -> int:
    zero = graph.constant(0)
    above = graph.operation("greater", a, zero)
    below = graph.operation("greater", zero, a)
    return graph.operation("sub", above, below)


def clamp(graph: Graph, value: Any, low: Any = None, high: Any = None, **named_: Any) -> Tensor:
    """torch.clamp with numbers or tensors as limits."""
    low = named_.get("min", low)
    high = named_.get("max", high)
    result = graph.registers(value)
    # The upper limit last: where limits cross, torch returns it.
    for name, limit in (("max", low), ("min", high)):
        if limit is not None:
            pairs, shape = _entries(result, graph.registers(limit))
            clamped = [graph.operation(name, *pair) for pair in pairs]
            result = shaped(clamped, shape)
    return result


def inner(dims: Any, count: int) -> list[int]:
    """Return the dimensions along which an operation goes, counted from 0: all of `count` where none are given."""
    if dims is None or dims == []:
        return list(range(count))
    given = [dims] if isinstance(dims, int) else dims
    return [d % max(1, count) for d in given]


def reduced(name: str) -> Operation:
    """Return a reduction over dimensions by halves, which keeps a tape short and its rounding small."""

    def on_tensor(graph: Graph, value: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
        rows = graph.registers(value)
        every = range(rows.dim())
        gone = sorted(inner(dims, len(every)))
        remaining = [d for d in every if d not in gone]
        together = math.prod(rows.shape[d] for d in gone)
        flat = rows.permute(*remaining, *gone).reshape(-1, together)
        sums = [_halved(graph, name, row) for row in flat.tolist()]
        if keepdim:
            return shaped(sums, [1 if d in gone else rows.shape[d] for d in every])
        return shaped(sums, [rows.shape[d] for d in remaining])

    return on_tensor


def _halved(graph: Graph, name: str, row: list[int]) -> int:
    """Reduce a row of registers to one: the first half meets the second, until one is left."""
    # This is the order of a tape's sums, and so part of every θ: another one is another bit.
    while len(row) > 1:
        half = len(row) // 2
        pairs = zip(row[:half], row[half:], strict=False)
        odd = row[2 * half :]
        row = [graph.operation(name, *pair) for pair in pairs] + odd
    return row[0]


def mean(graph: Graph, value: Any, *args: Any, **kwargs: Any) -> Tensor:
    """torch.mean: a sum, times the share of an entry."""
    summed = reduced("add")(graph, value, *args, **kwargs)
    share = graph.constant(summed.numel() / value.numel())
    scaled = [graph.operation("mul", r, share) for r in summed.flatten().tolist()]
    return shaped(scaled, summed.shape)


def matrix_product(graph: Graph, a: Any, b: Any) -> Tensor:
    """mm and bmm: [..., I, K] · [..., K, J]."""
    rows = graph.registers(a)
    columns = graph.registers(b)
    # [..., I, J, K]: along the last axis lie the products of one sum.
    pairs, shape = _entries(rows[..., :, None, :], columns.mT[..., None, :, :])
    products = [graph.operation("mul", *pair) for pair in pairs]
    sums = [_halved(graph, "add", row) for row in shaped(products, (-1, shape[-1])).tolist()]
    return shaped(sums, shape[:-1])


# Truths are 0 and 1, as numbers: "and" is a product, "or" the larger one.
ENTRYWISE: dict[str, Operation] = {
    **{name: named(name, 2) for name in ("add", "sub", "mul", "div")},
    **{name: named(name, 1) for name in ("neg", "exp", "log", "sin", "cos", "abs", "floor")},
    "rsub": entrywise(lambda graph, a, b: graph.operation("sub", b, a), 2),
    "sqrt": named("root", 1),
    "rsqrt": entrywise(lambda graph, a: _reciprocal(graph, graph.operation("root", a)), 1),
    "reciprocal": entrywise(_reciprocal, 1),
    "square": entrywise(_square, 1),
    "pow": entrywise(_power, 2),
    "sign": entrywise(_sign, 1),
    "maximum": named("max", 2),
    "minimum": named("min", 2),
    "gt": named("greater", 2),
    "ge": named("not_less", 2),
    "lt": entrywise(lambda graph, a, b: graph.operation("greater", b, a), 2),
    "le": entrywise(lambda graph, a, b: graph.operation("not_less", b, a), 2),
    "eq": named("equal", 2),
    "ne": entrywise(lambda graph, a, b: _not(graph, graph.operation("equal", a, b)), 2),
    "logical_not": entrywise(_not, 1),
    "bitwise_not": entrywise(_not, 1),
    **{name: named("mul", 2) for name in ("logical_and", "bitwise_and")},
    **{name: named("max", 2) for name in ("logical_or", "bitwise_or")},
    "where": named("choose", 3),
    "masked_fill": entrywise(lambda graph, a, mask, b: graph.operation("choose", mask, b, a), 3),
    "clamp": clamp,
    "clamp_min": clamp,
    "clamp_max": lambda graph, value, high: clamp(graph, value, None, high),
}
REDUCTIONS: dict[str, Operation] = {
    "sum": reduced("add"),
    "amax": reduced("max"),
    "amin": reduced("min"),
    "mean": mean,
    "mm": matrix_product,
    "bmm": matrix_product,
}
VIEWS = {
    "view", "_unsafe_view", "reshape", "expand", "select", "slice", "unsqueeze", "squeeze",
    "permute", "transpose", "t", "cat", "stack", "unbind", "split", "split_with_sizes", "clone",
    "detach", "alias", "contiguous", "_to_copy", "index", "repeat", "flip", "roll", "diagonal",
    "gather", "index_select",
}  # fmt: skip
FACTORIES = {
    "ones_like",
    "zeros_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
}
