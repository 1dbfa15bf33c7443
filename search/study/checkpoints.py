"""Checkpoints that a study file or a command names: ours, or what a package reads; as teachers too."""

from __future__ import annotations

from pathlib import Path

from model.tied import untied
from search.plugins import readers
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE, Checkpoint
from trainer.data.problems import selection
from trainer.files.paths import expanded
from trainer.recipe.teacher import Teacher
from trainer.step import step


def load_any(path: Path) -> Checkpoint:
    """Load a checkpoint folder of ours, either of its files, or another program's file.

    Raises ValueError saying what is wrong, a line for each reader that was asked.
    """
    if path.is_dir() or path.name in (JSON_FILE, THETA_FILE):
        return Checkpoint.load(path)
    wrong = []
    for read in readers():
        try:
            return read(path)
        except ValueError as error:
            wrong.append(str(error))
    raise ValueError("\n".join(wrong) or f"{path}: is no checkpoint of ours, and nothing installed reads others")


def load_grokked(path: Path, must: bool = True) -> Checkpoint:
    """Load a checkpoint. Raises ValueError for a path that is none, and where it must have grokked and has not."""
    path = Path(expanded(str(path)))
    if not path.exists():
        raise ValueError(f"{path}: no such checkpoint")
    checkpoint = load_any(path)
    if must:
        spec = checkpoint.spec
        tokens = step.tokens_of(spec, *selection(spec.task))
        count = tokens.shape[-1]
        exact = float(step.evaluate(spec, checkpoint.theta_P[None], tokens)["exact"])
        errors = round((1 - exact) * count)  # whole problems, which a share times their count only nearly is
        if errors:
            raise ValueError(f"{path}: has not grokked, {errors:,} of {count:,} selection problems are wrong")
    return checkpoint


def read_teacher(path: Path) -> str:
    """Return the word of a checkpoint, folder or file, ours or another project's.

    Raises ValueError for a path that is none, and for a model that gets a selection problem wrong.
    """
    checkpoint = load_grokked(path)
    spec, theta_P = untied(checkpoint.spec, checkpoint.theta_P)
    return Teacher(spec, tuple(theta_P.tolist())).word
