"""Recorded seeds: what the ledger says of one, with θ and curve out of its trial's artifacts.

`Shelf` reads each part once. A driver puts the parts that it has just recorded onto it, so that nothing which
this process wrote is fetched back.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from model import preset_name
from model.fields import did_you_mean
from search.errors import Failure, UserError
from search.stats.counting import rank, seed_of
from search.store.database import ROWS, wait_for
from search.store.depot import VARIABLE
from search.store.home import below
from search.store.ledger import Ledger, Row, is_final
from search.store.results import PARTS, ConfigurationResults, curve_table, read_curves
from search.study.start import ANY
from search.study.trial import Configuration
from search.tracking.tracking import TRIALS, answered, artifact, reach
from trainer import Result, Seed

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

    from trainer.checkpoints.checkpoint import Checkpoint

KEPT = 64
"""Parts that a shelf has in memory, unless it is told to keep more; unit: parts."""


@dataclass(frozen=True)
class RecordedSeed:
    """One seed with its θ and curve."""

    study: str
    configuration: Configuration
    result: Result
    environment: dict[str, Any]

    def checkpoint(self) -> Checkpoint:
        """Its best θ with its papers: from scratch, with one recipe, by the code that trained it."""
        from trainer.checkpoints.checkpoint import Checkpoint

        result, seed = self.result, self.result.pair.seed
        return Checkpoint(
            spec=self.configuration.spec,
            theta_P=result.theta_P,
            recipe=self.configuration.recipe.as_dict(),
            seed={"init_seed": seed.init_seed, "data_seed": seed.data_seed},
            step=result.best_step,
            metrics={
                "outcome": result.outcome.value,
                "grok_step": result.grok_step,
                "held": result.held,
                "best_exact": result.best_exact,
                "best_token": result.best_token,
            },
            provenance={
                "trained": "from scratch",
                "study": self.study,
                "configuration": self.configuration.key,
                "environment": self.environment,
                **self._origin(),
            },
            code=self.environment["code"],
        )

    def _origin(self) -> dict[str, Any]:
        """Where its θ began, if not at its own initial values, and what led there."""
        start = self.configuration.start
        if start is None:
            return {}
        theta = start.theta_of(self.result.pair.seed)
        began = {"spec": start.spec.as_dict(), "theta": theta and list(theta)}
        if theta is None:
            return {"start": began}
        *before, parent = start.lineage
        own = {} if ANY in start.thetas else {"seed": str(self.result.pair.seed)}
        return {"trained": "from a parent", "start": began, "lineage": [*before, {**parent, **own}]}


class ArtifactCache:
    """The parts of a study, read when they are asked for; use as a context manager."""

    def __init__(self, client: MlflowClient, ledger: Ledger, study: str, kept: int = KEPT):
        self.client, self.ledger, self.study, self.kept = client, ledger, study, kept
        self.parts: OrderedDict[tuple[str, str], ConfigurationResults] = OrderedDict()
        self.pages: dict[str, tuple[str, str]] = {}
        self.lock = threading.Lock()  # a driver puts while its outbox reads
        self.scratch = tempfile.TemporaryDirectory(prefix="adder-search-")

    def __enter__(self) -> ArtifactCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what a server's artifacts were put into."""
        self.scratch.cleanup()

    def put(self, trial: str, part: ConfigurationResults) -> None:
        """Have a trial's part at hand; the one that was not asked for the longest leaves."""
        with self.lock:
            self.parts[part.configuration.key, trial] = part
            while len(self.parts) > self.kept:
                self.parts.popitem(last=False)

    def part(self, configuration: str, trial: str) -> ConfigurationResults:
        """A trial's part of a configuration, by their keys. Raises Failure if it is lost."""
        with self.lock:
            found = self.parts.pop((configuration, trial), None)
        found = found or ConfigurationResults.read(self._folder(configuration, trial))
        self.put(trial, found)
        return found

    def curves(self, configuration: str, trial: str) -> pd.DataFrame:
        """The curves of a trial's seeds of a configuration, as they are in its file."""
        part = self.parts.get((configuration, trial))
        if part is not None:
            return curve_table(part.configuration, part.results)
        return read_curves(self._folder(configuration, trial))

    def seed(self, row: Row) -> RecordedSeed:
        """A ledger row's seed."""
        part, its = self.part(row["configuration"], row["trial"]), seed_of(row)
        return RecordedSeed(self.study, part.configuration, part.by_seed[its], part.about["environment"])

    def _folder(self, configuration: str, trial: str) -> Path:
        if not self.pages.get(configuration, ("", ""))[1]:
            self.pages = self.ledger.list_runs(self.study)
        _, run = self.pages.get(configuration, ("", ""))
        name, scratch = f"{TRIALS}/{trial}", Path(self.scratch.name)
        with answered(self.study):
            folder = artifact(self.client, run, name, scratch, self.ledger.home) if run else None
        folder = folder or self._in_depot(configuration, trial)
        if folder is None:
            depot = "" if os.environ.get(VARIABLE) else f"; if a depot keeps it, {VARIABLE} has to name it"
            raise Failure(
                f"study {self.study}: MLflow has not got {name} of configuration {configuration}{depot}"
            )
        return folder

    def _in_depot(self, configuration: str, trial: str) -> Path | None:
        """A part that MLflow was not given. Only the environment's depot is asked, whatever a run names."""
        root = Path(self.scratch.name)
        depot, parts = self.ledger.home.depot_at(root), below(root, self.study, trial) / PARTS
        return below(parts, configuration) if depot.keeps and depot.get_folder(parts) else None


ALIKE = (
    "configuration", "confirmation", "outcome", "steps", "grok_step", "held", "hopeless_step", "screen"
)  # fmt: skip
"""What rows have in common that count for the same."""


def alike(ledger: Ledger, study: str, configuration: str) -> list[Row]:
    """A configuration's rows as they are counted: of those that count for the same one, again and again.

    So counting a hundred thousand takes the memory of some hundred. `core_s` is their mean, and `best_exact`
    their highest.
    """
    columns = [ROWS.c[name] for name in ALIKE]
    mean = sa.case((sa.func.count(ROWS.c.core_s) == sa.func.count(), sa.func.avg(ROWS.c.core_s)))
    query = sa.select(
        *columns,
        sa.type_coerce(mean, sa.Float).label("core_s"),
        sa.func.max(ROWS.c.best_exact).label("best_exact"),
        sa.func.count().label("count"),
    )
    mine = (ROWS.c.study == study, ROWS.c.configuration == configuration)
    groups = wait_for(
        lambda: ledger.database.read(query.where(*mine).group_by(*columns)), ledger.database.patience_s
    )
    return [row for row in groups for _ in range(row["count"])]


def pull(
    ledger: Ledger, study: str, seed: Seed | None, model: str | None = None, configuration: str | None = None
) -> Checkpoint:
    """The best seed's checkpoint, or one seed's: of the whole study, of a preset or of a configuration.

    Raises UserError naming what there is.
    """
    ledger.require_study(study)
    known = ledger.list_configurations(study)
    mine = chosen(study, known, model, configuration)
    rows = [
        r for r in ledger.list_seeds(study) if r["configuration"] in mine and r["published"] and is_final(r)
    ]
    wanted = [r for r in rows if seed is None or seed_of(r) == seed]
    if not wanted:
        raise UserError(f"study {study!r} has no finished seed{'' if seed is None else f' {seed}'} yet")
    best = min(wanted, key=lambda r: (rank(r), known[r["configuration"]].spec.params))
    with ArtifactCache(reach(ledger, study), ledger, study) as shelf:
        return shelf.seed(best).checkpoint()


def record_verification(ledger: Ledger, checkpoint: Checkpoint, correct: int) -> None:
    """Count a call of `verify` with the seed that a checkpoint's papers name, if the ledger has it, and keep
    how many of the 10,010 were right. Raises UserError where the recorded θ is another than the checkpoint's.
    """
    study, configuration = (checkpoint.provenance.get(k) for k in ("study", "configuration"))
    numbers = tuple(checkpoint.seed.get(k) for k in ("init_seed", "data_seed"))
    if not (isinstance(study, str) and isinstance(configuration, str)):
        return
    for row in ledger.list_seeds(study, configuration):
        if (row["init_seed"], row["data_seed"]) == numbers:
            with ArtifactCache(reach(ledger, study), ledger, study) as shelf:
                recorded_P = shelf.seed(row).result.theta_P
            if checkpoint.theta_P.tolist() != recorded_P.tolist():
                raise UserError(f"its θ is not the one that study {study} has of seed {seed_of(row)}")
            key = (configuration, row["init_seed"], row["data_seed"])
            ledger.record_verification(study, key, correct)


def chosen(
    study: str, known: dict[str, Configuration], model: str | None, configuration: str | None
) -> Sequence[str]:
    """Keys of the configurations that are meant."""
    keys = [k for k in known if k.startswith(configuration or "")]
    if configuration and not keys:
        hint = did_you_mean(configuration, known or ["none yet"])
        raise UserError(f"study {study!r} has no configuration {configuration!r}; {hint}")
    if configuration and len(keys) > 1:
        raise UserError(f"study {study!r}: {configuration!r} may be any of {', '.join(sorted(keys))}")
    models = {preset_name(known[k].spec): None for k in keys}
    if model is not None and models and model not in models:
        raise UserError(f"study {study!r} has no finished seed of {model!r}; {did_you_mean(model, models)}")
    return [k for k in keys if model in (None, preset_name(known[k].spec))]
