"""Translations of the operations of ordinary modules: to rows where those are faster (graph.py), else to simpler ones.

Each is called while a recorder listens, so that what it does with traced tensors is recorded in turn.
Axes: M rows, K numbers of a row, N columns of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from own_modules.tapes.graph import NO_TABLE, RowGraph
from trainer.engine.tape_graph import Graph, Traced
from trainer.engine.tape_operations import entrywise, inner, named

Translation = Callable[..., Any]
"""(graph, arguments of torch's operation) -> its result or results, or registers of them."""


# Products


def product_rows(graph: RowGraph, rows_MK: Tensor, table_KN: Tensor, starts_N: Tensor | None = None) -> Tensor:
    """Return the registers of starts + rows · table, [M, N]. Products with a constant 0 are left out."""
    sums_of_none = [graph.constant(0)] * table_KN.shape[1]
    starts = NO_TABLE
    if starts_N is not None:
        sums_of_none = starts_N.tolist()
        starts = graph.table(sums_of_none)
    elif graph.is_wide(rows_MK) and not graph.is_wide(table_KN):
        # The 16 problems of a block share the wide tensors: as the table those are read once for all.
        return product_rows(graph, table_KN.mT, rows_MK.mT).mT

    width = len(sums_of_none)
    made = list[list[int]]()
    for row in rows_MK.tolist():
        some = [k for k, register in enumerate(row) if graph.value(register) != 0]
        if not some:
            made.append(sums_of_none)
            continue
        reads = [row[k] for k in some]
        table = graph.table(table_KN[some].flatten().tolist())
        made.append(graph.row("AFFINE", reads, width, table=table, stride=width, starts=starts))
    return torch.tensor(made)


def product(graph: RowGraph, a: Any, b: Any) -> Tensor:
    """torch.mm and torch.bmm."""
    left = graph.registers(a).reshape(-1, *a.shape[-2:])
    right = graph.registers(b).reshape(-1, *b.shape[-2:])
    made = [product_rows(graph, *pair) for pair in zip(left, right, strict=True)]
    return torch.stack(made).reshape(*a.shape[:-1], b.shape[-1])


def product_and_sum(graph: RowGraph, start: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """torch.addmm and torch.baddbmm."""
    if start.shape == b.shape[-1:] and beta == alpha == 1:
        return product_rows(graph, graph.registers(a), graph.registers(b), graph.registers(start))
    scaled = a @ b if alpha == 1 else alpha * (a @ b)
    return scaled if beta == 0 else scaled + beta * start


# Operations along dimensions


def along(registers: Tensor, dims: Any, each: Callable[[list[int]], Sequence[int]], keepdim: bool = True) -> Tensor:
    """Apply `each` to the numbers along some dimensions, by default along all. Return the registers of the results.

    each: from registers to as many, or to one. Where it is one, those dimensions go, or with keepdim have the size 1.
    """
    every = range(registers.dim())
    along_these = inner(dims, len(every))
    outer = [d for d in every if d not in along_these]
    # A row for each place in the outer dimensions.
    order = outer + along_these
    moved = registers.permute(*order)
    length = math.prod(registers.shape[d] for d in along_these)
    rows = moved.reshape(-1, length)
    made = torch.tensor([list(each(row)) for row in rows.tolist()])

    is_as_many = made.shape == rows.shape and made.shape[1] > 1
    if is_as_many:
        back = [order.index(d) for d in every]
        return made.reshape(moved.shape).permute(back)
    if not keepdim:
        return made.reshape([registers.shape[d] for d in outer])
    return made.reshape([1 if d in along_these else registers.shape[d] for d in every])


def total(graph: RowGraph, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    """torch.sum."""

    def each(row: list[int]) -> list[int]:
        return graph.row("SUM", row, 1) if len(row) > 1 else row

    return along(graph.registers(x), dims, each, keepdim)


def mean(graph: RowGraph, x: Any, *args: Any, **kwargs: Any) -> Tensor:
    """torch.mean."""
    summed = x.sum(*args, **kwargs)
    return summed * (summed.numel() / x.numel())


def variance(graph: RowGraph, x: Any, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Tensor:
    """torch.var, over the count less a correction."""
    deviations = x - x.mean(dims, True)
    squares = deviations.square()
    count = x.numel() / squares.sum(dims).numel()
    less = 1 if correction is None else correction
    return squares.sum(dims, keepdim) * (1 / (count - less))


def softmax(graph: RowGraph, x: Any, dim: int, *_: Any) -> Tensor:
    """torch.softmax. What is masked, a constant -inf, is 0."""

    def each(row: list[int]) -> list[int]:
        # Masks are known when a net is recorded: in half of a causal net's places nothing is computed.
        some = [n for n, register in enumerate(row) if graph.value(register) != -math.inf]
        if len(some) > 1:
            shares = graph.row("SOFTMAX", [row[n] for n in some], len(some))
        else:
            shares = [graph.constant(1)]
        made = dict(zip(some, shares, strict=False))  # nothing where all is masked
        return [made[n] if n in made else graph.constant(0) for n in range(len(row))]

    return along(graph.registers(x), dim, each)


def log_softmax(graph: RowGraph, x: Any, dim: int, *_: Any) -> Tensor:
    """torch.log_softmax."""
    less = x - x.amax(dim, True)  # so that no exponential overflows
    return less - less.exp().sum(dim, True).log()


def norm(graph: RowGraph, kind: str, x: Any, shape: Sequence[int], weight: Any, eps: float) -> Any:
    """Return a norm over the last dimensions, scaled."""
    starts = graph.table([graph.constant(eps)])
    dims = list(range(x.dim() - len(shape), x.dim()))

    def each(row: list[int]) -> list[int]:
        # The last number is the row's scale, which the gradient reads again.
        *normed, _ = graph.row(kind, row, len(row) + 1, starts=starts)
        return normed

    normed = Traced(along(graph.registers(x), dims, each), x.dtype)
    return normed if weight is None else normed * weight


def layer_norm(graph: RowGraph, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, ...]:
    """torch.native_layer_norm, whose other results no module reads."""
    made = norm(graph, "NORM", x, shape, weight, eps)
    if bias is not None:
        made = made + bias
    return made, math.nan, math.nan


def rms_norm(graph: RowGraph, x: Any, shape: Any, weight: Any, eps: Any) -> tuple[Any, ...]:
    """torch.rms_norm; without eps it is that of the numbers' type."""
    least = torch.finfo(x.dtype).eps if eps is None else eps
    return norm(graph, "RMS_NORM", x, shape, weight, least), math.nan


# Numbers that say which


def looked_up(graph: RowGraph, table: Tensor, index: Any) -> Tensor:
    """Return rows [..., *rest] of registers [V, *rest]: by known numbers, or by those of a problem."""
    if not isinstance(index, Traced):
        return table[index.long()]
    width = table[0].numel()
    number = graph.table(table.flatten().tolist())
    asked = index.registers.flatten().tolist()
    rows = [graph.row("LOOKUP", [register], width, table=number, stride=width) for register in asked]
    return torch.tensor(rows).reshape(*index.shape, *table.shape[1:])


def embedding(graph: RowGraph, weight: Any, index: Any, pad: int = -1, by_count: bool = False, *_: Any) -> Tensor:
    """torch.embedding."""
    if pad != -1 or by_count:
        raise NotImplementedError("embedding with padding_idx or scale_grad_by_freq is not supported by the engine")
    return looked_up(graph, graph.registers(weight), index)


def index_select(graph: RowGraph, x: Any, dim: int, index: Any) -> Tensor:
    """torch.index_select."""
    return looked_up(graph, graph.registers(x).movedim(dim, 0), index).movedim(0, dim)


def index(graph: RowGraph, x: Any, indices: Sequence[Any]) -> Tensor:
    """x[indices], where one at most is a problem's."""
    registers = graph.registers(x)
    if not any(isinstance(i, Traced) for i in indices):
        # None is a whole dimension here; in Python's brackets it would be a new one.
        known = [slice(None) if i is None else i for i in indices]
        return registers[tuple(known)]

    dim, *others = (d for d, i in enumerate(indices) if i is not None)
    asked = indices[dim]
    if others or asked.dtype == torch.bool:
        raise NotImplementedError("index by several of a problem's numbers is not supported by the engine")
    rows = looked_up(graph, registers.movedim(dim, 0), asked)
    taken = list(range(asked.dim()))
    return rows.movedim(taken, [dim + n for n in taken])


def gather(graph: RowGraph, x: Any, dim: int, index: Any, **_: Any) -> Tensor:
    """torch.gather by known numbers."""
    if isinstance(index, Traced):
        raise NotImplementedError("gather by a problem's numbers is not supported by the engine")
    return graph.registers(x).gather(dim, index)


def triangle(known: Callable[..., Tensor]) -> Translation:
    """Return torch.tril or torch.triu, which leaves 0 elsewhere."""
    return lambda graph, x, diagonal=0: x.where(known(torch.ones(x.shape), diagonal).bool(), 0.0)


def pad(graph: RowGraph, x: Any, sides: Sequence[int], value: float = 0) -> Tensor:
    """torch.constant_pad_nd."""
    return F.pad(graph.registers(x), sides, value=graph.constant(value))


# Copies


def converted(graph: RowGraph, x: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """A copy of another type; a fraction has no whole number here, nor any number a truth."""
    asked = dtype or x.dtype
    loses_fraction = x.dtype.is_floating_point and not asked.is_floating_point
    if loses_fraction or (asked == torch.bool and x.dtype != torch.bool):
        raise NotImplementedError(f"a conversion from {x.dtype} to {asked} is not supported by the engine")
    return graph.registers(x)


def copied(graph: RowGraph, to: Any, x: Any, *_: Any) -> Tensor:
    """torch.copy: what `to` has afterwards."""
    source = x if isinstance(x, Tensor) else torch.as_tensor(x)
    return converted(graph, source, dtype=to.dtype)


def unlucky(*_: Any, **__: Any) -> Tensor:
    raise NotImplementedError("dropout, or another draw of random numbers, is not supported by the engine")


# Entries


def bent(kind: str) -> Translation:
    """Return an operation of recorded.h on entries."""
    return entrywise(lambda graph, a: graph.row(kind, [a], 1)[0], 1)


def gelu(graph: RowGraph, x: Any, approximate: str = "none") -> Any:
    """torch.gelu; by tanh too."""
    if approximate == "none":
        return bent("GELU")(graph, x)
    # In the order in which they are recorded: a gradient is summed by it.
    half = 0.5 * x
    cubic = x + 0.044715 * x**3
    bent_by = torch.tanh(math.sqrt(2 / math.pi) * cubic)
    return half * (1 + bent_by)


def divide(graph: RowGraph, a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """torch.div and its floor."""
    if rounding_mode not in (None, "floor"):
        raise NotImplementedError(f"div with rounding_mode={rounding_mode} is not supported by the engine")
    made = named("div", 2)(graph, a, b)
    return Traced(made, torch.float32).floor() if rounding_mode else made


def _power(graph: Graph, x: int, exponent: int) -> int:
    """torch.pow: of constants, or by whole numbers and halves, as products and roots."""
    known = graph.value(x)
    by = graph.value(exponent)
    if known is not None and by is not None:
        return graph.constant(math.pow(known, by))
    if by is None or 2 * by % 1:
        raise NotImplementedError("pow by anything but whole and half numbers is not supported by the engine")
    # A half is a root, and each whole one a product.
    made = graph.operation("root", x) if by % 1 else graph.constant(1)
    for _ in range(int(abs(by))):
        made = graph.operation("mul", made, x)
    return graph.operation("div", graph.constant(1), made) if by < 0 else made


OPERATIONS: dict[str, Translation] = {
    "mm": product,
    "bmm": product,
    "addmm": product_and_sum,
    "baddbmm": product_and_sum,
    "mv": lambda graph, a, x: (a @ x[:, None])[:, 0],
    "dot": lambda graph, a, b: (a * b).sum(),
    "sum": total,
    "mean": mean,
    "var": variance,
    "_softmax": softmax,
    "_safe_softmax": softmax,
    "_log_softmax": log_softmax,
    "native_layer_norm": layer_norm,
    "_fused_rms_norm": rms_norm,
    "embedding": embedding,
    "index": index,
    "index_select": index_select,
    "gather": gather,
    "tril": triangle(torch.tril),
    "triu": triangle(torch.triu),
    "constant_pad_nd": pad,
    "_to_copy": converted,
    "clone": converted,
    "copy": copied,
    "fill": copied,
    **dict.fromkeys(("empty_like", "bernoulli", "native_dropout", "rand_like", "randn_like"), unlucky),
    "tanh": bent("TANH"),
    "relu": bent("RELU"),
    "sigmoid": lambda graph, x: 1 / (1 + torch.exp(-x)),
    "silu": lambda graph, x: x * torch.sigmoid(x),
    "gelu": gelu,
    "div": divide,
    "floor_divide": lambda graph, a, b: divide(graph, a, b, "floor"),
    "remainder": lambda graph, a, b: a - torch.div(a, b, rounding_mode="floor") * b,
    "pow": entrywise(_power, 2),
}
