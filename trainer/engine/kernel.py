"""A spec's kernel without a bank: losses, gradients, logits, and which answers are wrong.

Wide tensors are made by the tape of `expand`, so all of this has the same bits on every machine. Banks call the
engine, which has the kernel inside (trainer/engine/native.py).

Axes: P parameters, N numbers of a seed's wide tensors, T position, B problem, A answer position, V vocabulary.
"""

from __future__ import annotations

import ctypes

import numpy as np
from torch import Tensor

from model.spec import Kernel, Spec
from trainer.engine import native
from trainer.engine.build import library
from trainer.engine.native import LANES, Array, Measures, Seen, pointer


class KernelLoss:
    """A spec's loss on some problems, teacher-forced, for one θ [P] in float32 numbers. Raise BuildError.

    kernel: by default the spec's own.
    """

    def __init__(self, spec: Spec, tokens_1TB: Tensor, kernel: Kernel | None = None):
        self.spec = spec
        self.count = tokens_1TB.shape[-1]
        self.library = _library(kernel or native.kernel_of(spec))
        self.tape = native.expansion(spec)
        self.problems = native.blocks(tokens_1TB)

    def slope(self, theta_P: Array) -> tuple[float, Array]:
        """Return the mean loss and its gradient [P], float32."""
        wide_N = native.run(self.tape, theta_P)
        gradient_N = np.zeros(len(self.tape.outputs), np.float32)
        assert len(wide_N) == self.library.kernel_size()
        # ctypes takes a result for an int where nothing is said.
        self.library.kernel_train.restype = ctypes.c_float
        mean = self.library.kernel_train(
            pointer(wide_N),
            pointer(self.problems),
            self.count,
            pointer(gradient_N),
            None,
        )
        return mean, native.run(self.tape, theta_P, gradient_N)

    def logits(self, theta_P: Array) -> Array:
        """Return the logits [A, V, B], float32."""
        answers = self.spec.answers
        vocabulary = self.spec.logits
        seen = np.zeros((len(self.problems), answers, vocabulary, LANES), np.float32)
        wide_N = native.run(self.tape, theta_P)
        places = Seen(logits=seen.ctypes.data, right=None)
        self.library.kernel_evaluate(
            pointer(wide_N),
            pointer(self.problems),
            self.count,
            ctypes.byref(Measures()),
            ctypes.byref(places),
        )
        # From blocks of lanes [blocks, A, V, 16] to problems, without the spare lanes.
        return np.moveaxis(seen, 0, 2).reshape(answers, vocabulary, -1)[..., : self.count]


def is_wrong(spec: Spec, theta_P: Array, tokens_TB: Tensor) -> Tensor:
    """Mark the problems that θ [P] in float32 numbers answers wrongly [B]."""
    kernel = _library(native.kernel_of(spec))
    wide_N = native.run(native.expansion(spec), theta_P)
    return native.is_wrong(kernel, wide_N, tokens_TB)


def _library(kernel: Kernel | None) -> ctypes.CDLL:
    assert kernel is not None
    return library(kernel.source, kernel.shape, kernel.folders)
