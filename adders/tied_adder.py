"""What a submission has where ties share numbers: the plain model, reading each as often as it is tied.

`export` puts this class into the family's file; the base here is any family's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from model.submissions.split_subspace import Adder


class TiedAdder(Adder):
    """The model above whose weights are `numbers`, its only parameters: k is the k-th number, -k its
    negative, 0 is zero.
    """

    def __init__(self, spec: dict[str, Any], numbers: list[float], ties: dict[str, Any]) -> None:
        super().__init__(spec, {})
        del self._modules["weights"]
        self.numbers = nn.Parameter(torch.tensor(numbers, dtype=torch.float32))
        self.ties = {name: torch.tensor(entries) for name, entries in ties.items()}

    def forward(self, tokens_BT: Tensor) -> Tensor:
        device = self.numbers.device
        self.weights = {name: self.entries(k.to(device)) for name, k in self.ties.items()}
        return super().forward(tokens_BT)

    def entries(self, k: Tensor) -> Tensor:
        """A tensor whose entries are numbers, their negatives, or zero."""
        return self.numbers[(k.abs() - 1).clamp(min=0)] * k.sign()
