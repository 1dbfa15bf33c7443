"""Arithmetic and memory traffic that a train step of one seed needs: tallied as eager torch does it.

Counted are multiplications, divisions, additions and subtractions; a sum of k products takes 2k - 1.
Exponentials, logarithms, sines and error functions are counted apart, since each costs a dozen of those; a
softmax takes three operations an entry beside its exponential, a GELU four beside its error function, its
derivative six; eager torch takes error function and exponential again for that, which nobody needs to. Not
counted are comparisons, selects, square roots and looking up what belongs to a token, however a family does
it in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model import Spec
from model.families.low_rank import forward as low_rank
from trainer import Bank, Pair, Recipe, Seed
from trainer.step import step

NUMBER = 4  # bytes of a float32 and of a token (int32)
ELEMENTWISE = {"mul": 1, "add": 1, "sub": 1, "rsub": 1, "div": 1, "pow": 1, "gelu": 4, "gelu_backward": 6}
TRANSCENDENTAL = {"exp": 1, "log": 1, "sin": 1, "cos": 1, "gelu": 1}
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


class Tally(TorchDispatchMode):
    """Counts the floating-point operations and the exponentials of what runs within it."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.exponentials = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.is_floating_point():
            self._count(func.overloadpacket.__name__.removesuffix("_"), out.numel(), args)
        return out

    def _count(self, name: str, size: int, args: tuple[Any, ...]) -> None:
        self.flops += ELEMENTWISE.get(name, 0) * size
        self.exponentials += TRANSCENDENTAL.get(name, 0) * size
        if name in PRODUCTS:
            self.flops += size * (2 * args[-2].shape[-1] - 1)
        elif name in ("sum", "mean"):
            self.flops += args[0].numel() - (size if name == "sum" else 0)
        elif name == "_softmax":
            self.flops += 3 * size
            self.exponentials += size
        elif name == "_softmax_backward_data":
            self.flops += 4 * size


def tally(call: Callable[[], object]) -> Tally:
    with Tally() as counted:
        call()
    return counted


def train_step(spec: Spec, batch: int) -> Tally:
    """Forward, backward and the optimiser. Making the problems is not in it, nor are evaluations."""
    bank = Bank(spec, [Pair(Recipe(batch=batch), Seed.of(777))], compiled=False)
    tokens_STB = bank.backend.make_block(bank.state, bank.hyper)[0]
    with patch.object(low_rank, "look_up", _gathered):
        return tally(lambda: bank.backend.train_step(bank.state, bank.hyper, tokens_STB))


def _gathered(entries_SCTV: Tensor, hot_STVB: Tensor) -> Tensor:
    """model.matrices.look_up, which makes products with one-hot rows: the engine makes none."""
    token_STB = hot_STVB.argmax(2)
    index_SCTB = token_STB[:, None].expand(-1, entries_SCTV.shape[1], -1, -1)
    return entries_SCTV.gather(3, index_SCTB)


def forward(spec: Spec, batch: int) -> Tally:
    """The loss of one seed."""
    tokens_1TB = torch.randint(10, (1, spec.prompt + spec.answers, batch))
    return tally(lambda: step.loss(spec, spec.initial(777)[None], tokens_1TB))


def traffic(spec: Spec, batch: int) -> int:
    """Bytes that must be moved: tokens written once and read once; θ and both moments read and written.

    What a perfect program with large enough caches would move. Ours also keeps intermediate arrays.
    """
    tokens = (spec.prompt + spec.answers) * batch
    return NUMBER * (2 * tokens + 6 * spec.params)
