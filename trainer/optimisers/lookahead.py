"""Lookahead: slow weights that follow fast ones. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from model.fields import option
from trainer.fields import Group, dependent_option
from trainer.optimisers.base import Optimiser, Tensors, also, columns

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = "Zhang et al., Lookahead optimizer, NeurIPS 2019, algorithm 1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookahead(Group):
    lookahead_k: int = option(
        0, "Lookahead: so many steps forward, then one back; 0 is off", unit="steps", ge=0, switch=True,
        source=SOURCE,
    )  # fmt: skip
    lookahead_alpha: float = dependent_option(
        "lookahead_k", 0.5, "how far the slow weights go towards the fast ones", unit="fraction", ge=0,
        le=1, source=SOURCE,
    )  # fmt: skip


def lookahead(inner: Optimiser) -> Optimiser:
    """The inner optimiser keeps its state when θ goes back."""

    def update(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
        import torch

        new = inner.update(state, now, grad_SP)
        alpha, k = columns(now, "lookahead_alpha", "lookahead_k")
        count_S1 = (state["step"] + 1)[:, None]
        meets_S1 = (count_S1 / k).floor() * k == count_S1
        weights = state["slow_weights"] + alpha * (new["theta"] - state["slow_weights"])
        pairs = {"theta": (weights, new["theta"]), "slow_weights": (weights, state["slow_weights"])}
        return new | {name: torch.where(meets_S1, *pair) for name, pair in pairs.items()}

    return also(inner, lambda theta_SP: {"slow_weights": theta_SP.clone()}, update=update)
