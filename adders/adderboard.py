"""What `export` adds to a family's file: AdderBoard's interface, and the class of a model with ties.

Only the source is used; the names of the file and its data stand here for any family's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from model.submissions.split_subspace import MAX_OUTPUT_LEN, SPEC, Adder, decode, encode

METADATA: dict[str, Any] = {}
WEIGHTS: dict[str, Any] = {}


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


def build_model() -> tuple[Adder, dict[str, Any]]:
    """The trained model and what AdderBoard shows of it."""
    return Adder(SPEC, WEIGHTS).eval(), dict(METADATA)


@torch.inference_mode()
def generate(model: nn.Module, prompt: list[int], steps: int) -> list[int]:
    """Greedy decoding: append the likeliest next token, `steps` times. It knows nothing of addition."""
    device = next(model.parameters()).device
    tokens = list(prompt)
    for _ in range(steps):
        logits_BTV = model(torch.tensor([tokens], device=device))
        tokens.append(int(logits_BTV[0, -1].argmax()))
    return tokens[len(prompt) :]


def add(model: nn.Module, a: int, b: int) -> int:
    """The sum that the model decodes. Raises ValueError as `encode` does."""
    return decode(generate(model, encode(a, b), MAX_OUTPUT_LEN))
