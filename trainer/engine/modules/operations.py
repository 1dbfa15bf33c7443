"""Translations of the operations of ordinary modules, to rows where a row is faster (graph.py).

Axes: M rows, K numbers of a row, N columns of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.engine.modules.graph import NO_TABLE, RowGraph
from trainer.engine.tape_graph import Graph, Traced
from trainer.engine.tape_operations import ENTRYWISE, entrywise

Translation = Callable[..., Tensor | tuple[Tensor, ...]]
"""(graph, arguments of torch's operation) -> registers of its result or results."""


def product_rows(graph: RowGraph, rows_MK: Tensor, table_KN: Tensor, starts_N: Tensor | None = None) -> Tensor:
    """Return starts + rows · table, [M, N]. Products with a constant 0 are left out."""
    width = table_KN.shape[1]
    nothing = [graph.constant(0)] * width
    starts = NO_TABLE
    if starts_N is not None:
        nothing = starts_N.tolist()
        starts = graph.table(nothing)
    elif _is_wide(graph, rows_MK) and not _is_wide(graph, table_KN):
        return product_rows(graph, table_KN.mT, rows_MK.mT).mT  # what problems share is the table
    made = list[list[int]]()
    for row in rows_MK.tolist():
        some = [k for k, register in enumerate(row) if graph.value(register) != 0]
        if not some:
            made.append(nothing)
            continue
        table = graph.table(table_KN[some].flatten().tolist())
        reads = [row[k] for k in some]
        made.append(graph.row("AFFINE", reads, width, table=table, stride=width, starts=starts))
    return torch.tensor(made, dtype=torch.int64)


def _is_wide(graph: RowGraph, registers: Tensor) -> bool:
    return graph.is_wide(registers.flatten().tolist())


def product(graph: RowGraph, a: Any, b: Any) -> Tensor:
    """torch.mm and torch.bmm."""
    left = graph.registers(a)
    right = graph.registers(b)
    flat_left = left.reshape(-1, *left.shape[-2:])
    flat_right = right.reshape(-1, *right.shape[-2:])
    products = [product_rows(graph, *pair) for pair in zip(flat_left, flat_right, strict=True)]
    return torch.stack(products).reshape(*left.shape[:-1], right.shape[-1])


def product_and_sum(graph: RowGraph, start: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Tensor:
    """torch.addmm and torch.baddbmm."""
    if beta != 1 or alpha != 1:
        raise NotImplementedError(f"addmm with beta={beta}, alpha={alpha} is not supported by tapes")
    start_N = graph.registers(start)
    if start_N.dim() == 1 and start_N.shape[0] == b.shape[-1]:
        return product_rows(graph, graph.registers(a), graph.registers(b), start_N)
    return add(graph, start_N, product(graph, a, b))


def vector_product(graph: RowGraph, a: Any, x: Any) -> Tensor:
    """torch.mv and torch.dot."""
    left = torch.atleast_2d(graph.registers(a))
    made = product_rows(graph, left, graph.registers(x)[:, None])
    return made.flatten() if a.dim() == 2 else made.flatten()[0]


def on_registers(name: str, *registers: Any, graph: RowGraph) -> Tensor:
    """Return an entrywise operation of tapes on registers, or on what has some."""
    traced = [Traced(r, torch.float32) if isinstance(r, Tensor) else r for r in registers]
    return ENTRYWISE[name](graph, *traced)


def add(graph: RowGraph, a: Tensor, b: Tensor) -> Tensor:
    return on_registers("add", a, b, graph=graph)


def multiply(graph: RowGraph, a: Tensor, b: Any) -> Tensor:
    return on_registers("mul", a, b, graph=graph)


def along(registers: Tensor, dims: Any, each: Callable[[list[int]], Sequence[int]], keepdim: bool = True) -> Tensor:
    """Return what `each` makes of the numbers along some dimensions, all where none are given.

    each: from registers to as many, or to one, whose dimensions then go unless keepdim.
    """
    every = list(range(registers.dim()))
    asked = every if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    inner = [d % max(1, len(every)) for d in asked]
    outer = [d for d in every if d not in inner]
    moved = registers.permute(*outer, *inner)
    rows = moved.reshape(-1, math.prod(registers.shape[d] for d in inner))
    made = torch.tensor([list(each(row)) for row in rows.tolist()], dtype=torch.int64)
    if made.shape == rows.shape and made.shape[1] > 1:
        order = [*outer, *inner]
        return made.reshape(moved.shape).permute([order.index(d) for d in every])
    kept = [1 if d in inner else registers.shape[d] for d in every if keepdim or d not in inner]
    return made.reshape(kept)


def one_of(graph: RowGraph, kind: str) -> Callable[[list[int]], list[int]]:
    """Return an operation that makes one number of a row."""
    return lambda row: graph.row(kind, row, 1) if len(row) > 1 else row


def total(graph: RowGraph, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    """torch.sum."""
    return along(graph.registers(x), dims, one_of(graph, "SUM"), keepdim)


def mean(graph: RowGraph, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    """torch.mean."""
    summed = total(graph, x, dims, keepdim)
    return multiply(graph, summed, summed.numel() / x.numel())


def variance(graph: RowGraph, x: Any, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Tensor:
    """torch.var, over the count less a correction."""
    centred = on_registers("sub", graph.registers(x), mean(graph, x, dims, True), graph=graph)
    squares = multiply(graph, centred, centred)
    summed = along(squares, dims, one_of(graph, "SUM"), keepdim)
    count = x.numel() / summed.numel() - (1 if correction is None else correction)
    return multiply(graph, summed, 1 / count)


def softmax(graph: RowGraph, x: Any, dim: int, *_: Any) -> Tensor:
    """torch.softmax. What is masked, a constant -inf, is 0."""

    def each(row: list[int]) -> list[int]:
        some = [r for r in row if graph.value(r) != -math.inf]
        soft = iter(graph.row("SOFTMAX", some, len(some)) if len(some) > 1 else [graph.constant(1)])
        return [next(soft) if r in some else graph.constant(0) for r in row]

    return along(graph.registers(x), dim, each)


def log_softmax(graph: RowGraph, x: Any, dim: int, *_: Any) -> Tensor:
    """torch.log_softmax."""
    registers = graph.registers(x)
    less = on_registers("sub", registers, along(registers, dim, one_of(graph, "HIGHEST")), graph=graph)
    summed = along(on_registers("exp", less, graph=graph), dim, one_of(graph, "SUM"))
    return on_registers("sub", less, on_registers("log", summed, graph=graph), graph=graph)


def norm(kind: str) -> Callable[[RowGraph, Any, Any, Any, Any], Tensor]:
    """Return a norm over the last dimensions, which is scaled and shifted."""

    def normed(graph: RowGraph, x: Any, shape: Sequence[int], weight: Any, eps: float) -> Tensor:
        starts = graph.table([graph.constant(eps)])
        dims = list(range(x.dim() - len(shape), x.dim()))
        made = along(
            graph.registers(x),
            dims,
            lambda row: graph.row(kind, row, len(row) + 1, starts=starts)[:-1],
        )
        return made if weight is None else multiply(graph, made, graph.registers(weight))

    return normed


def layer_norm(graph: RowGraph, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Tensor, ...]:
    """torch.native_layer_norm, whose other results no module reads."""
    made = norm("NORM")(graph, x, shape, weight, eps)
    shifted = made if bias is None else add(graph, made, graph.registers(bias))
    return shifted, _nothing(graph), _nothing(graph)


def rms_norm(graph: RowGraph, x: Any, shape: Any, weight: Any, eps: Any) -> tuple[Tensor, ...]:
    """torch.rms_norm; without eps it is that of the numbers' type."""
    least = torch.finfo(torch.float32).eps if eps is None else eps
    return norm("RMS_NORM")(graph, x, shape, weight, least), _nothing(graph)


def _nothing(graph: RowGraph) -> Tensor:
    return torch.tensor(graph.constant(math.nan))


def looked_up(graph: RowGraph, table: Tensor, index: Any) -> Tensor:
    """Return rows [..., *rest] of registers [V, *rest]: by known numbers, or by those of a problem."""
    if not isinstance(index, Traced):
        return table[index.long()]
    width = table[0].numel()
    number = graph.table(table.flatten().tolist())
    tokens = graph.registers(index).flatten().tolist()
    rows = [graph.row("LOOKUP", [t], width, table=number, stride=width) for t in tokens]
    return torch.tensor(rows, dtype=torch.int64).reshape(*index.shape, *table.shape[1:])


def embedding(graph: RowGraph, weight: Any, index: Any, *_: Any) -> Tensor:
    """torch.embedding."""
    return looked_up(graph, graph.registers(weight), index)


def index_select(graph: RowGraph, x: Any, dim: int, index: Any) -> Tensor:
    """torch.index_select."""
    return looked_up(graph, graph.registers(x).movedim(dim, 0), index).movedim(0, dim)


def index(graph: RowGraph, x: Any, indices: Sequence[Any]) -> Tensor:
    """x[indices], where one at most is a problem's."""
    registers = graph.registers(x)
    given = [d for d, i in enumerate(indices) if i is not None]
    if not any(isinstance(i, Traced) for i in indices):
        return registers[tuple(slice(None) if i is None else i for i in indices)]
    if len(given) != 1 or indices[given[0]].dtype == torch.bool:
        raise NotImplementedError("index by several of a problem's numbers is not supported by tapes")
    (dim,) = given
    rows = looked_up(graph, registers.movedim(dim, 0), indices[dim])
    taken = list(range(indices[dim].dim()))
    return rows.movedim(taken, [dim + n for n in taken])


def gather(graph: RowGraph, x: Any, dim: int, index: Any, **_: Any) -> Tensor:
    """torch.gather by known numbers."""
    if isinstance(index, Traced):
        raise NotImplementedError("gather by a problem's numbers is not supported by tapes")
    return graph.registers(x).gather(dim, index)


def pad(graph: RowGraph, x: Any, sides: Sequence[int], value: float = 0) -> Tensor:
    """torch.constant_pad_nd."""
    return torch.nn.functional.pad(graph.registers(x), sides, value=graph.constant(value))


def triangle(known: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return torch.tril or torch.triu, which leaves 0 elsewhere."""

    def cut(graph: RowGraph, x: Any, diagonal: int = 0) -> Tensor:
        registers = graph.registers(x)
        return registers.where(known(torch.ones_like(registers), diagonal).bool(), graph.constant(0))

    return cut


def _power(graph: Graph, x: int, exponent: int) -> int:
    """torch.pow: of constants, or by whole numbers and halves, as products and roots."""
    known = graph.value(x)
    by = graph.value(exponent)
    if known is not None and by is not None:
        return graph.constant(math.pow(known, by))
    if by is None or 2 * by % 1:
        raise NotImplementedError("pow by anything but whole and half numbers is not supported by tapes")
    made = graph.operation("root", x) if by % 1 else graph.constant(1)
    square = x
    left = int(abs(by))
    while left:
        if left % 2:
            made = graph.operation("mul", made, square)
        left //= 2
        square = graph.operation("mul", square, square) if left else square
    return graph.operation("div", graph.constant(1), made) if by < 0 else made


def converted(graph: RowGraph, x: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """A copy of another type; a fraction has no whole number here, nor any number a truth."""
    asked = dtype or x.dtype
    loses_fraction = x.dtype.is_floating_point and not asked.is_floating_point
    if loses_fraction or (asked == torch.bool and x.dtype != torch.bool):
        raise NotImplementedError(f"a conversion from {x.dtype} to {asked} is not supported by tapes")
    return graph.registers(x)


def copied(graph: RowGraph, to: Any, x: Any, *_: Any) -> Tensor:
    """torch.copy: what `to` has afterwards."""
    return converted(graph, x if isinstance(x, Tensor) else torch.as_tensor(x), dtype=to.dtype)


def unlucky(*_: Any, **__: Any) -> Tensor:
    raise NotImplementedError("dropout, or another draw of random numbers, is not supported by tapes")


def divide(graph: RowGraph, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    """torch.div and its floor."""
    if rounding_mode not in (None, "floor"):
        raise NotImplementedError(f"div with rounding_mode={rounding_mode} is not supported by tapes")
    made = ENTRYWISE["div"](graph, a, b)
    return made if rounding_mode is None else on_registers("floor", made, graph=graph)


def remainder(graph: RowGraph, a: Any, b: Any) -> Tensor:
    """torch.remainder, which has the sign of b."""
    whole = multiply(graph, divide(graph, a, b, "floor"), graph.registers(b))
    return on_registers("sub", graph.registers(a), whole, graph=graph)


def one_by_one(kind: str) -> Callable[..., Tensor]:
    """Return an operation of recorded.h on entries."""
    return entrywise(lambda graph, a: graph.row(kind, [a], 1)[0], 1)


def relu(graph: RowGraph, x: Any) -> Tensor:
    return on_registers("maximum", graph.registers(x), 0, graph=graph)


def sigmoid(graph: RowGraph, x: Any) -> Tensor:
    raised = on_registers("exp", on_registers("neg", graph.registers(x), graph=graph), graph=graph)
    return on_registers("reciprocal", add(graph, raised, graph.registers(1)), graph=graph)


def silu(graph: RowGraph, x: Any) -> Tensor:
    return multiply(graph, graph.registers(x), sigmoid(graph, x))


def gelu(graph: RowGraph, x: Any, approximate: str = "none") -> Tensor:
    """torch.gelu; by tanh too."""
    if approximate == "none":
        return one_by_one("GELU")(graph, x)
    a = graph.registers(x)
    cube = multiply(graph, multiply(graph, a, a), a)
    inner = add(graph, a, multiply(graph, cube, 0.044715))
    bent = one_by_one("TANH")(graph, Traced(multiply(graph, inner, math.sqrt(2 / math.pi)), torch.float32))
    return multiply(graph, multiply(graph, a, 0.5), add(graph, bent, graph.registers(1)))


OPERATIONS: dict[str, Translation] = {
    "mm": product,
    "bmm": product,
    "addmm": product_and_sum,
    "baddbmm": product_and_sum,
    "mv": vector_product,
    "dot": vector_product,
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
    "constant_pad_nd": pad,
    "div": divide,
    "floor_divide": lambda graph, a, b: divide(graph, a, b, "floor"),
    "remainder": remainder,
    "pow": entrywise(_power, 2),
    "tril": triangle(torch.tril),
    "triu": triangle(torch.triu),
    "_to_copy": converted,
    "clone": converted,
    "copy": copied,
    "fill": copied,
    **dict.fromkeys(("empty_like", "bernoulli", "native_dropout", "rand_like", "randn_like"), unlucky),
    "relu": relu,
    "sigmoid": sigmoid,
    "silu": silu,
    "gelu": gelu,
    "tanh": one_by_one("TANH"),
}
