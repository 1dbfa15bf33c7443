"""A spec's net recorded as a program for one problem, by `Spec.apply` on a problem without numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.spec import Spec
from own_modules.tapes.graph import Program, RowGraph
from own_modules.tapes.operations import OPERATIONS
from trainer.engine.tape import Recorder, dummies
from trainer.engine.tape_graph import Traced, Work
from trainer.engine.tape_operations import ENTRYWISE, REDUCTIONS

KNOWN = {**ENTRYWISE, **REDUCTIONS, **OPERATIONS}
"""Translations of operations that make numbers."""


def record(spec: Spec, work: Work) -> Program:
    """Return the program of a spec's answers' logits, from the numbers of its wide tensors and a problem's tokens.

    work: computes operations on constants. Raise NotImplementedError for an operation that it cannot have, naming it.
    """
    expanded = spec.expand(torch.zeros(1, spec.params))
    size = sum(t.numel() for t in expanded.values())
    graph = RowGraph(work, size)
    # First the wide tensors, then the tokens: the order of a graph's inputs.
    wide = {name: _inputs(graph, t.shape, torch.float32) for name, t in expanded.items()}
    first = spec.prompt - 1
    tokens = _inputs(graph, (1, first + spec.answers, 1), torch.int32)

    # Attention's fused operations would hide what they are made of.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _RowRecorder(graph):
        logits = spec.apply(wide, tokens, first)
        logits_VA = torch.stack([v.reshape(spec.answers) for v in logits])
    outputs = graph.registers(logits_VA).T.flatten()
    return graph.program(outputs.tolist())


def _inputs(graph: RowGraph, shape: Any, dtype: torch.dtype) -> Traced:
    """Return a tensor of further inputs."""
    registers = [graph.input() for _ in range(math.prod(shape))]
    return Traced(torch.tensor(registers, dtype=torch.int64).reshape(shape), dtype)


class _RowRecorder(Recorder):
    """A recorder that knows the operations of modules too, and those that work in place.

    Registers of views lie in the same memory, as numbers would: what is written to one is read by all.
    """

    graph: RowGraph

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        # `add_` is `add` in place.
        translate = KNOWN.get(name.removesuffix("_"))
        if translate is None or not any(isinstance(leaf, Traced) for leaf in leaves):
            return super().__torch_dispatch__(function, types, args, kwargs)

        # Within the recorder: what an operation is made of is recorded too.
        with self:
            made = translate(self.graph, *args, **kwargs)
        if name.endswith("_"):
            written = args[0]
            if not isinstance(written, Traced):
                raise NotImplementedError(f"{name} to a tensor of known numbers is not supported by the engine")
            written.registers.copy_(self._registers(made))
            return written

        like = function(*dummies(args), **dummies(kwargs))
        if isinstance(like, torch.Tensor):
            return self._traced(made, like)
        return tuple(map(self._traced, made, like))

    def _registers(self, made: Any) -> torch.Tensor:
        """Return the registers of what a translation made, which may be registers already."""
        is_registers = isinstance(made, torch.Tensor) and not isinstance(made, Traced)
        return made if is_registers else self.graph.registers(made)

    def _traced(self, made: Any, like: torch.Tensor) -> Traced:
        registers = self._registers(made).expand(like.shape)
        # Of other types numbers are rounded otherwise. Known ones in double, such as angles, lose a rounding alone.
        is_known = like.dtype == torch.float64 and None not in map(self.graph.value, registers.flatten().tolist())
        if like.dtype.is_floating_point and like.dtype != torch.float32 and not is_known:
            raise NotImplementedError(f"{like.dtype} is not supported by the engine")
        # Cloned: a result of its own has memory of its own, into which an operation in place may write.
        return Traced(registers.clone(), like.dtype)
