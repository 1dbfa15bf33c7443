"""A family's kernel as an operator of torch, `adder_search::kernel`: differentiable towards wide tensors.

For notebooks and new methods; banks call the engine, which has the kernel inside
(trainer/engine/native.py).

Axes: N numbers of a seed's wide tensors, T position, B problem.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.spec import Spec
from trainer.engine.build import library
from trainer.engine.native import LANES, blocks, pointer
from trainer.engine.structures import Measures, Seen


def flat(spec: Spec, theta_P: Tensor) -> Tensor:
    """Return the wide tensors [N] of θ as kernels read them, differentiable."""
    return torch.cat([t.flatten() for t in spec.expand(theta_P[None]).values()])


def loss(spec: Spec, wide_N: Tensor, tokens_TB: Tensor) -> Tensor:
    """Return the mean cross-entropy of problems, teacher-forced, by the spec's kernel; float32.

    Raise ValueError for a spec without a kernel or wide tensors of another size; BuildError.
    """
    kernel = spec.kernel()
    if kernel is None:
        raise ValueError(f"{spec.family} has no kernel")
    mean: Tensor = _kernel(wide_N, tokens_TB, str(kernel.source), json.dumps(kernel.shape))[0]
    return mean


def is_wrong(spec: Spec, wide_N: Tensor, tokens_TB: Tensor) -> Tensor:
    """Mark the problems with a wrong answer [B], by the spec's kernel. Same on every CPU for the same wide tensors."""
    kernel, count = spec.kernel(), tokens_TB.shape[1]
    assert kernel is not None
    right = np.zeros((-(-count // LANES), LANES), np.int32)
    library(kernel.source, kernel.shape).kernel_evaluate(
        *(pointer(wide_N.numpy()), pointer(blocks(tokens_TB[None])), count),
        *(ctypes.byref(Measures()), ctypes.byref(Seen(logits=None, right=right.ctypes.data))),
    )
    return torch.from_numpy(right.flatten()[:count] == 0)


@torch.library.custom_op("adder_search::kernel", mutates_args=(), device_types="cpu")
def _kernel(wide: Tensor, tokens: Tensor, source: str, shape: str) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient [N]: a kernel computes both at once."""
    kernel = library(Path(source), json.loads(shape))
    if len(wide) != kernel.kernel_size() or len(tokens) != kernel.kernel_length():
        sizes = f"{kernel.kernel_size()} numbers and {kernel.kernel_length()} tokens"
        raise ValueError(f"the kernel reads {sizes}, got {len(wide)} and {len(tokens)}")
    numbers = np.ascontiguousarray(wide.detach().float().numpy())
    gradient = np.zeros(len(wide), np.float32)
    kernel.kernel_train.restype = ctypes.c_float
    mean = kernel.kernel_train(
        pointer(numbers), pointer(blocks(tokens[None])), tokens.shape[1], pointer(gradient), None
    )
    return torch.tensor(mean), torch.from_numpy(gradient)


def _keep(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _back(ctx: Any, pull: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    (gradient,) = ctx.saved_tensors
    return pull * gradient, None, None, None


_kernel.register_autograd(_back, setup_context=_keep)
