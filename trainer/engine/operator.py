"""A family's kernel as an operator of torch, `adder_search::kernel`: differentiable towards wide tensors.

For notebooks and new methods; banks call the engine, which has the kernel inside
(trainer/engine/native.py).

Axes: S seed, N numbers of a seed's wide tensors, T position, B problem.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.spec import Kernel, Spec
from trainer.engine.build import library
from trainer.engine.native import LANES, Array, blocks, pointer
from trainer.engine.structures import Measures, Seen


def flat(spec: Spec, theta_SP: Tensor) -> Tensor:
    """Return the wide tensors [S, N] of each θ as kernels read them, differentiable, to the same bits as alone."""
    wide = spec.expand(theta_SP).values()
    return torch.cat([t.expand(len(theta_SP), *t.shape[1:]).flatten(1) for t in wide], dim=1)


def loss(spec: Spec, wide_N: Tensor, tokens_TB: Tensor) -> Tensor:
    """Return the mean cross-entropy of problems, teacher-forced, by the spec's kernel; float32.

    Raise ValueError for a spec without a kernel or wide tensors of another size; BuildError.
    """
    kernel = _kernel_of(spec)
    mean: Tensor = _loss(wide_N, tokens_TB, str(kernel.source), json.dumps(kernel.shape))[0]
    return mean


def loss_and_gradient(spec: Spec, wide_N: Tensor, problems: Array, count: int) -> tuple[float, Tensor]:
    """Return `loss` of `count` problems, as kernels read them (native.blocks), and its gradient [N]."""
    kernel = _kernel_of(spec)
    return _train(library(kernel.source, kernel.shape), wide_N, problems, count)


def _kernel_of(spec: Spec) -> Kernel:
    kernel = spec.kernel()
    if kernel is None:
        raise ValueError(f"{spec.family} has no kernel")
    return kernel


def _train(kernel: ctypes.CDLL, wide_N: Tensor, problems: Array, count: int) -> tuple[float, Tensor]:
    numbers = np.ascontiguousarray(wide_N.detach().float().numpy())
    gradient = np.zeros(len(numbers), np.float32)
    kernel.kernel_train.restype = ctypes.c_float
    mean = kernel.kernel_train(pointer(numbers), pointer(problems), count, pointer(gradient), None)
    return mean, torch.from_numpy(gradient)


def is_wrong(spec: Spec, wide_N: Tensor, tokens_TB: Tensor) -> Tensor:
    """Mark the problems with a wrong answer [B], by the spec's kernel. Same on every CPU for the same wide tensors."""
    kernel, count = _kernel_of(spec), tokens_TB.shape[1]
    right = np.zeros((-(-count // LANES), LANES), np.int32)
    library(kernel.source, kernel.shape).kernel_evaluate(
        *(pointer(wide_N.numpy()), pointer(blocks(tokens_TB[None])), count),
        *(ctypes.byref(Measures()), ctypes.byref(Seen(logits=None, right=right.ctypes.data))),
    )
    return torch.from_numpy(right.flatten()[:count] == 0)


@torch.library.custom_op("adder_search::kernel", mutates_args=(), device_types="cpu")
def _loss(wide: Tensor, tokens: Tensor, source: str, shape: str) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient [N]: a kernel computes both at once."""
    kernel = library(Path(source), json.loads(shape))
    if len(wide) != kernel.kernel_size() or len(tokens) != kernel.kernel_length():
        sizes = f"{kernel.kernel_size()} numbers and {kernel.kernel_length()} tokens"
        raise ValueError(f"the kernel reads {sizes}, got {len(wide)} and {len(tokens)}")
    mean, gradient_N = _train(kernel, wide, blocks(tokens[None]), tokens.shape[1])
    return torch.tensor(mean), gradient_N


def _keep(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _back(ctx: Any, pull: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    (gradient,) = ctx.saved_tensors
    return pull * gradient, None, None, None


_loss.register_autograd(_back, setup_context=_keep)
