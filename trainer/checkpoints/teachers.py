"""A checkpoint read as a teacher (trainer/recipe/teacher.py)."""

from __future__ import annotations

from pathlib import Path

from model.tied import Tied
from trainer.checkpoints.foreign import load_any
from trainer.data.problems import selection
from trainer.recipe.teacher import Teacher
from trainer.step import step


def read_teacher(path: Path) -> str:
    """Return the word of a checkpoint, folder or file, ours or another project's.

    Raises ValueError for a path that is none, and for a model that gets a selection problem wrong.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such checkpoint")
    checkpoint = load_any(path)
    spec, theta_1P = checkpoint.spec, checkpoint.theta_P[None]
    if isinstance(spec, Tied):
        theta_1P, spec = spec.untie(theta_1P), spec.base
    tokens = step.tokens_of(spec, *selection())
    exact = float(step.evaluate(spec, theta_1P, tokens)["exact"])
    if exact < 1:
        wrong = round((1 - exact) * tokens.shape[-1])
        raise ValueError(f"{path}: has not grokked, {wrong:,} of 5,000 selection problems are wrong")
    return Teacher(spec, tuple(theta_1P[0].tolist())).word
