"""First values: those that the module's own code draws, with torch's generator seeded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from own_modules.loading import build

if TYPE_CHECKING:
    from own_modules.spec import Module


def initial(spec: Module, seed: int) -> Tensor:
    # In the order of `named_parameters`, which is that of the layout.
    return torch.cat([p.detach().flatten() for p in build(spec, seed).parameters()])
