"""Grokfast: the slow part of the gradients, amplified. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.fields import option
from trainer.fields import Group, dependent_option
from trainer.optimisers.base import Optimiser, Tensors, also, columns, zeros

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = "Lee et al., Grokfast, arXiv 2405.20233, algorithm 1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grokfast(Group):
    grokfast_lambda: float = option(
        0.0, "Grokfast: how much of the gradients' moving mean is added; 0 is off", unit="factor", ge=0.0,
        switch=True, source=SOURCE,
    )  # fmt: skip
    grokfast_alpha: float = dependent_option(
        "grokfast_lambda", 0.98, "that mean's memory", unit="fraction", ge=0, le=0.9999999, source=SOURCE
    )
    grokfast_start: int = dependent_option(
        "grokfast_lambda", 0, "when it begins, with a new mean", unit="steps", ge=0
    )
    grokfast_end: int = dependent_option("grokfast_lambda", 0, "when it ends; 0: never", unit="steps", ge=0)

    @staticmethod
    def validate(recipe: Any) -> None:
        start, end = recipe.grokfast_start, recipe.grokfast_end
        if end and end <= start:
            raise ValueError(f"grokfast_end must be above grokfast_start, or 0, got {end} and {start}")


def grokfast(inner: Optimiser) -> Optimiser:
    """Filter the gradient before it is clipped, as MicroAdder does."""

    def gradient(state: Tensors, now: Tensors, grad_SP: Tensor) -> tuple[Tensor, Tensors]:
        import torch

        alpha, factor, start, end = columns(
            now, *(f"grokfast_{n}" for n in ("alpha", "lambda", "start", "end"))
        )
        step_S1 = state["step"][:, None]
        mean = torch.where(step_S1 == start, grad_SP, state["slow"] * alpha + grad_SP * (1 - alpha))
        on_S1 = (step_S1 >= start) & ((end == 0) | (step_S1 < end))
        filtered_SP, tensors = inner.gradient(
            state, now, torch.where(on_S1, grad_SP + factor * mean, grad_SP)
        )
        return filtered_SP, {**tensors, "slow": mean}

    return also(inner, zeros("slow"), gradient=gradient)
