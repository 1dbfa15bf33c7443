"""Tapes: a torch function on a seed's numbers, recorded once as a straight-line program on scalars.

The engine (trainer/engine/cpp) runs a tape for many seeds at once without torch, in an order of operations that is
the same on every CPU, and backwards for its gradient. A tape holds the operations that the function does on tensors
of one seed: torch hands each to a recorder, which keeps, for each tensor, the number of the register that holds each
of its entries. So a view costs nothing, a choice by a known condition is made here, equal operations are written
once, and operations that no output needs are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.engine.tape_graph import Graph, Tape, Traced, Work
from trainer.engine.tape_operations import ENTRYWISE, FACTORIES, REDUCTIONS, VIEWS

OF_NUMBERS = {"dtype", "device", "memory_format", "layout"}
"""Arguments that say how numbers are stored, which registers are not."""
CHOOSE = {"index", "gather", "index_select"}
"""Views that take what numbers say; the others take tensors for their entries alone."""
COPIES = {"_to_copy", "clone", "detach", "alias", "contiguous"}


def record(
    function: Callable[[dict[str, Tensor]], Sequence[Tensor]],
    inputs: Mapping[str, Sequence[int]],
    work: Work,
) -> Tape:
    """Record a function's tape. It is called once, with a tensor [1, *shape] for each input.

    inputs: their shapes by name, in the order of the tape's inputs. work: computes operations on constants, so that
    their results are the engine's too. Raise NotImplementedError for an operation that tapes do not have.
    """
    graph = Graph(work)
    traced: dict[str, Tensor] = {}
    for name, shape in inputs.items():
        registers = [graph.input() for _ in range(math.prod(shape))]
        numbers = torch.tensor(registers, dtype=torch.int64)
        traced[name] = Traced(numbers.reshape(1, *shape), torch.float32)
    # Without gradients: the engine makes its own, backwards through the tape.
    with torch.no_grad(), Recorder(graph):
        outputs = list(function(traced))
    registers = list[int]()
    for output in outputs:
        registers += graph.registers(output).flatten().tolist()
    return graph.tape(registers)


class Recorder(TorchDispatchMode):
    """Intercept every operation of torch and record it where a tensor is traced.

    On plain tensors torch's own operation runs, but for arithmetic on floats, which is the engine's.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; torch would import its compiler, for two seconds, to say so."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        traced = any(isinstance(a, Traced) for a in torch.utils._pytree.tree_leaves((args, kwargs)))
        if name in VIEWS and traced:
            return self._view(function, args, kwargs)
        if name in ENTRYWISE or name in REDUCTIONS:
            # torch says the shape and dtype of the result; its numbers are thrown away.
            like = function(*dummies(args), **dummies(kwargs))
            # Indices and masks are known now: recorded, they could choose nothing.
            if not traced and not like.dtype.is_floating_point:
                return function(*args, **kwargs)
            # Arithmetic on plain floats is recorded too: constants are the engine's own results.
            registers = {**ENTRYWISE, **REDUCTIONS}[name](self.graph, *args, **kwargs)
            return Traced(registers.expand(like.shape), like.dtype)
        # Anything else of a traced tensor would compute with numbers that it does not have.
        if traced and name not in FACTORIES:
            listed = "trainer/engine/tape_operations.py lists what it has"
            raise NotImplementedError(f"{name} is not supported by the engine; {listed}")
        return function(*dummies(args), **dummies(kwargs)) if traced else function(*args, **kwargs)

    def _view(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Apply an operation that only moves entries to the registers."""
        like = function(*dummies(args), **dummies(kwargs))
        kwargs = {k: v for k, v in kwargs.items() if k not in OF_NUMBERS}
        name = function.overloadpacket.__name__
        if name in COPIES:
            return Traced(args[0].registers, like.dtype)
        if name in ("view", "_unsafe_view"):  # registers may lie in another order, which a view refuses
            return Traced(args[0].registers.reshape(like.shape), like.dtype)

        def registers(x: Any) -> Any:
            """Return an argument's registers. A plain tensor of integers that says which entries stays."""
            is_which = name in CHOOSE and not isinstance(x, Traced) and not x.dtype.is_floating_point
            return x if is_which else self.graph.registers(x)

        moved = function(*torch.utils._pytree.tree_map_only(Tensor, registers, args), **kwargs)
        if isinstance(moved, Tensor):
            return Traced(moved, like.dtype)
        return [Traced(m, t.dtype) for m, t in zip(moved, like, strict=True)]


def dummies(values: Any) -> Any:
    """Replace tensors by ones, to see the shape and dtype of a result.

    On the CPU, because tensors without numbers ("meta") would import torch's compiler.
    """

    def ones(x: Any) -> Any:
        return torch.ones(x.shape, dtype=x.dtype) if isinstance(x, Tensor) else x

    return torch.utils._pytree.tree_map(ones, values)
