"""The forward pass of a module, of many seeds at once: torch.func's vmap over its parameters.

Axes: S seed, T position, B problem, A answer position, V token, P parameters.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from torch import Tensor
from torch.func import functional_call, vmap

from own_modules.loading import constants, parameters, template
from own_modules.tapes import by_tape

if TYPE_CHECKING:
    from model.ops import Tensors
    from model.spec import MakeKernel
    from own_modules.spec import Module

# Of attention, which vmap runs seed by seed; torch asks its reader to file an issue.
warnings.filterwarnings("ignore", "There is a performance drop because we have not yet implemented the batching rule")


def expand(spec: Module, theta_SP: Tensor) -> Tensors:
    return parameters(spec, theta_SP)


def apply(spec: Module, wide: Tensors, tokens_STB: Tensor, first: int) -> Tensor:
    """Return the logits of the positions from `first` on [V, S, A, B]: a tensor where other families have V of them."""
    module, shared = template(spec), constants(spec, tokens_STB.device)
    tokens_SBT = tokens_STB.long().transpose(1, 2)

    def answers(own: Tensors, tokens_BT: Tensor) -> Tensor:
        logits: Tensor = functional_call(module, {**own, **shared}, (tokens_BT,))
        if logits.dim() == 2:  # of one answer
            return logits[:, None]
        return logits[:, first:]

    # Selection problems are the same for all seeds: vmap then need not copy them.
    is_shared = len(tokens_SBT) == 1
    tokens = tokens_SBT[0] if is_shared else tokens_SBT
    logits_SBAV: Tensor = vmap(answers, in_dims=(0, None if is_shared else 0))(wide, tokens)
    return logits_SBAV.permute(3, 0, 2, 1)


def kernel(spec: Module) -> MakeKernel:
    return by_tape
