"""Ties of a descent: what one step changes of them, and how a θ is trained to keep them."""

from __future__ import annotations

from typing import Any

from model import Spec
from model.tied import Tied, Ties, canonical, constrained, describe_new
from trainer.recipe.ramp import largest_divisor


def retied(ties: Ties, p: int, k: int) -> Ties:
    """Return the ties with entry p alone reading k: 0, or plus or minus a number."""
    return canonical((*ties[:p], k, *ties[p + 1 :]))


def describe_change(base: Spec, before: Ties, after: Ties) -> tuple[list[str], list[str]]:
    """Return as text the ties that `after` drops from `before`, and those that it adds."""
    texts = Tied(base=base, ties=before).spelt()
    dropped = [text for text in texts if not _holds(base, text, after)]
    common = constrained(base, [text for text in texts if text not in dropped])
    return dropped, describe_new(base, common, after)


def _holds(base: Spec, text: str, ties: Ties) -> bool:
    """True if ties say what a constraint says."""
    try:
        return constrained(base, [text], ties) == ties
    except ValueError:  # it contradicts them
        return False


def tie_ramp_defaults(steps: int = 6_000) -> dict[str, Any]:
    """Return the fields of a recipe that moves a trained θ into ties: short, calm, without a curriculum."""
    return {
        "steps": steps,
        "ramp": steps // 2,
        "lr": 0.003,
        "warmup": min(200, steps),
        "weight_decay": 0.0,
        "curriculum": (),
        "carry_mix": 0.3,
        "fade_start": steps,
        "fade_end": steps,
        "hold": steps,
        "eval_every": largest_divisor(steps, max(1, steps // 6)),
    }
