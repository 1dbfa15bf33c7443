"""Folds of the rope family: what an arc of two dimensions leaves unread. See docs/compress.md."""

from __future__ import annotations

from dataclasses import replace

from model.families.rope.spec import PLANE, Rope
from model.ops import Tensors
from model.spec import Fold


def folds(spec: Rope) -> list[Fold]:
    """Return every fold that applies to a spec, even if it saves nothing."""
    if not spec.arc:
        return []
    steps: list[Fold] = []
    if not (spec.arc_inputs or spec.sine_input):
        text = "attention reads 0 beyond the arc's two dimensions"
        steps.append(_cut(text, replace(spec, arc_inputs=True)))
    if not (spec.arc_logits or spec.shared_norms):
        text = "logits read the arc's two dimensions"
        steps.append(_cut(text, replace(spec, arc_logits=True)))
    if spec.free_down and not spec.flat_down:
        text = "the MLP's other dimensions only scale a position's logits"
        flat = replace(spec, flat_down=True)
        steps.append(_cut(text, flat, rescales=spec.width > PLANE))
    return steps


def _cut(description: str, to: Rope, rescales: bool = False) -> Fold:
    """Return the fold that keeps the first rows and columns of every tensor, as many as `to` has."""
    # `slice(2)` of each axis; a tensor that is not cut is taken whole.
    parts = {name: tuple(map(slice, shape)) for name, shape in to.shapes().items()}

    def rewrite(t: Tensors) -> Tensors:
        return {name: t[name][part] for name, part in parts.items()}

    return Fold(description, to, rewrite, rescales)
