"""Reading what was recorded: studies, best seeds, checkpoints. Pure functions of ledger and MLflow."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from model import name_of
from model.fields import nearest
from search.errors import UserError
from search.ledger import Row
from search.stats import GrokRate, Stopping
from search.tracking import KEY_TAG, PARENT_TAG, RecordedSeed, answered, load_seeds, rank
from trainer import Outcome, Seed
from trainer.checkpoint import JSON_FILE, THETA_FILE, Checkpoint


def overview(rows: list[Row]) -> list[dict[str, Any]]:
    """One dictionary a study: trials, seeds, counts by outcome, grok rate with its interval."""
    studies: dict[str, list[Row]] = {}
    for row in rows:
        studies.setdefault(row["study"], []).append(row)
    return [{"study": name, **summarise(mine)} for name, mine in studies.items()]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Counts of some ledger rows, and the grok rate where they are one configuration's: to pool the rates of
    several, chosen by what came before, means nothing."""
    rate, stopping = GrokRate.of(r["outcome"] for r in rows), Stopping.of(rows)
    counts = Counter(r["outcome"] for r in rows)
    configurations = len({r["configuration"] for r in rows})
    return {
        "configurations": configurations,
        "trials": len({r["trial"] for r in rows}),
        "seeds": len(rows),
        "states": {o.value: counts[o] for o in Outcome if counts[o]},
        "grokked": rate.grokked,
        "counted": rate.n,
        "grok_rate": rate.rate if configurations == 1 else None,
        "interval": list(rate.interval) if configurations == 1 else None,
        "held": sum(bool(r["held"]) for r in rows),
        "given_up": stopping.given_up,
        "spared": stopping.spared,
        "spared_grokked": stopping.spared_grokked,
        "best_exact": max((r["best_exact"] or 0.0 for r in rows), default=0.0),
        "verify_calls": sum(r["verify_calls"] for r in rows),
    }


def pull(client: MlflowClient, study: str, seed: int | None, model: str | None = None) -> Checkpoint:
    """The checkpoint of a study's best seed, or of a seed by number; of one rung's, if `model` names it.

    Raises UserError if there is none.
    """
    with answered(study):
        found = _recorded(client, study)
    models = {name_of(s.configuration.spec): None for s in found}
    if model is not None and found and model not in models:
        raise UserError(f"study {study!r} has no finished seed of {model!r}; {nearest(model, models)}")
    mine = [s for s in found if model in (None, name_of(s.configuration.spec))]
    wanted = [s for s in mine if seed is None or s.result.pair.seed == Seed.of(seed)]
    if not wanted:
        what = "no finished seed" if seed is None else f"no finished seed {seed}"
        raise UserError(f"study {study!r} has {what} yet")
    return min(wanted, key=lambda s: (rank(s.result), s.configuration.spec.params)).checkpoint(study)


def _recorded(client: MlflowClient, study: str) -> list[RecordedSeed]:
    """Every finished seed of a study."""
    experiment = client.get_experiment_by_name(study)
    if experiment is None:
        names = [e.name for e in client.search_experiments() if e.name != "Default"]
        raise UserError(f"study {study!r} has no records here; {nearest(study, names or ['none yet'])}")
    found: list[RecordedSeed] = []
    with tempfile.TemporaryDirectory() as folder:
        for run in client.search_runs([experiment.experiment_id], max_results=50_000):
            if KEY_TAG in run.data.tags and PARENT_TAG not in run.data.tags:
                found += load_seeds(client, run.info.run_id, Path(folder))
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
