"""A family's kernel alone, for methods that are no bank: loss and gradient, and which answers are wrong.

Banks call the engine, which has the kernel inside (trainer/engine/native.py).

Axes: S seed, N numbers of a seed's wide tensors, T position, B problem.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor

from model.spec import Spec
from trainer.engine import native
from trainer.engine.build import library
from trainer.engine.native import Array, pointer


def flat(spec: Spec, theta_SP: Tensor) -> Tensor:
    """Return the wide tensors [S, N] of each θ as kernels read them, differentiable, to the same bits as alone."""
    wide = spec.expand(theta_SP).values()
    return torch.cat([t.expand(len(theta_SP), *t.shape[1:]).flatten(1) for t in wide], dim=1)


def loss_and_gradient(spec: Spec, wide_N: Tensor, problems: Array, count: int) -> tuple[float, Tensor]:
    """Return the mean cross-entropy of problems, teacher-forced, and its gradient [N]; float32.

    problems: `count` of them as kernels read them (`native.blocks`). Raise BuildError.
    """
    kernel, numbers = _library(spec), np.ascontiguousarray(wide_N.detach().float().numpy())
    assert len(numbers) == kernel.kernel_size()
    gradient = np.zeros(len(numbers), np.float32)
    kernel.kernel_train.restype = ctypes.c_float
    mean = kernel.kernel_train(pointer(numbers), pointer(problems), count, pointer(gradient), None)
    return mean, torch.from_numpy(gradient)


def is_wrong(spec: Spec, wide_N: Tensor, tokens_TB: Tensor) -> Tensor:
    """Mark the problems with a wrong answer [B]. It is the same on every CPU for the same wide tensors."""
    return native.is_wrong(_library(spec), wide_N.numpy(), tokens_TB)


def _library(spec: Spec) -> ctypes.CDLL:
    kernel = spec.kernel()
    assert kernel is not None
    return library(kernel.source, kernel.shape)
