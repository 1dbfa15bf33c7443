"""Fetching a checkpoint out of MLflow, and writing it where the user wants it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from model import name_of
from model.fields import nearest
from search.errors import UserError
from search.store.tracking import runs_of
from search.store.seeds import RecordedSeed, load_seeds, rank
from search.store.tracking import KEY_TAG, answered
from trainer import Seed
from trainer.checkpoint import JSON_FILE, THETA_FILE, Checkpoint


def pull(
    client: MlflowClient,
    study: str,
    seed: Seed | None,
    model: str | None = None,
    configuration: str | None = None,
) -> Checkpoint:
    """The best seed's checkpoint, or one seed's: of the whole study, of a rung or of a configuration.

    Raises UserError naming what there is.
    """
    with answered(study):
        runs = runs_of(client, study)
        mine = [r for r in runs if r.data.tags[KEY_TAG].startswith(configuration or "")]
        keys = [r.data.tags[KEY_TAG] for r in (mine or runs)]
        if configuration and not mine:
            hint = nearest(configuration, keys)
            raise UserError(f"study {study!r} has no configuration {configuration!r}; {hint}")
        if configuration and len(mine) > 1:
            raise UserError(f"study {study!r}: {configuration!r} may be any of {', '.join(sorted(keys))}")
        found = _recorded(client, mine)
    models = {name_of(s.configuration.spec): None for s in found}
    if model is not None and found and model not in models:
        raise UserError(f"study {study!r} has no finished seed of {model!r}; {nearest(model, models)}")
    of_model = [s for s in found if model in (None, name_of(s.configuration.spec))]
    wanted = [s for s in of_model if seed is None or s.result.pair.seed == seed]
    if not wanted:
        what = "no finished seed" if seed is None else f"no finished seed {seed}"
        raise UserError(f"study {study!r} has {what} yet")
    return min(wanted, key=lambda s: (rank(s.result), s.configuration.spec.params)).checkpoint(study)


def _recorded(client: MlflowClient, runs: list[Run]) -> list[RecordedSeed]:
    """Every finished seed of some configurations."""
    found: list[RecordedSeed] = []
    with tempfile.TemporaryDirectory() as folder:
        for run in runs:
            found += load_seeds(client, run, Path(folder))
    return found


def save_checkpoint(checkpoint: Checkpoint, target: Path) -> None:
    """Write a checkpoint folder whole or not at all. Raises UserError if something else is there."""
    own = {JSON_FILE, THETA_FILE}
    if target.exists() and not (target.is_dir() and {f.name for f in target.iterdir()} == own):
        raise UserError(f"{target}: exists and is no checkpoint alone; choose another folder with -o")
    fresh = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=".checkpoint-"))
        fresh.chmod(0o755)
        checkpoint.save(fresh)
        shutil.rmtree(target, ignore_errors=True)
        fresh.replace(target)
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror})") from None
    finally:
        if fresh:
            shutil.rmtree(fresh, ignore_errors=True)
