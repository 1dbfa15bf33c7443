"""Recorded seeds: a row of the ledger with θ and curve from its trial's artifacts."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model import preset_name
from model.fields import did_you_mean
from search.errors import Failure, NotFound, UserError
from search.stats.counting import Row, rank, seed_of
from search.store.depot import VARIABLE
from search.store.home import below, missing
from search.store.ledger import Ledger
from search.store.record import SeedRecord, is_final
from search.store.results import PARTS, ConfigurationResults, curve_table, read_curves
from search.store.study_records import StudyRecords
from search.study.naming import names_of
from search.study.start import ANY
from search.study.trial import Configuration
from search.tracking.tracking import TRIALS, answered, artifact, connect, is_local
from trainer import Result, Seed

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

    from trainer.checkpoints.checkpoint import Checkpoint

LISTED = 20
"""Configurations with the same seed that are listed."""
CAPACITY = 64
"""Parts that an ArtifactCache has in memory by default."""


@dataclass(frozen=True)
class RecordedSeed:
    """One seed with its θ and curve."""

    study: str
    configuration: Configuration
    result: Result
    environment: dict[str, Any]

    def checkpoint(self) -> Checkpoint:
        """Return its best θ as a checkpoint with its provenance."""
        from trainer.checkpoints.checkpoint import Checkpoint

        result, seed = self.result, self.result.pair.seed
        metrics = {n: getattr(result, n) for n in ("grok_step", "held", "best_exact", "best_token")}
        return Checkpoint(
            spec=self.configuration.spec,
            theta_P=result.theta_P,
            recipe=self.configuration.recipe.as_dict(),
            seed={"init_seed": seed.init_seed, "data_seed": seed.data_seed},
            step=result.best_step,
            metrics={"outcome": result.outcome.value, **metrics},
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
        """Return the θ at which it started, if not at its own initial values, and the steps that led there."""
        start = self.configuration.start
        if start is None:
            return {}
        theta = start.theta_of(self.result.pair.seed)
        origin = {"spec": start.spec.as_dict(), "theta": theta and list(theta)}
        if theta is None:
            return {"start": origin}
        *before, parent = start.lineage
        seed = {} if ANY in start.thetas else {"seed": str(self.result.pair.seed)}
        return {"trained": "from a parent", "start": origin, "lineage": [*before, {**parent, **seed}]}


class ArtifactCache(AbstractContextManager["ArtifactCache"]):
    """The parts of a study, each read once.

    A driver puts the parts that it has just recorded into it, so none is fetched back. `capacity`: parts in
    memory.
    """

    def __init__(self, client: MlflowClient, records: StudyRecords, capacity: int = CAPACITY):
        self.client, self.records, self.capacity = client, records, capacity
        self.parts: OrderedDict[tuple[str, str], ConfigurationResults] = OrderedDict()
        self.runs: dict[str, tuple[str, str]] = {}
        self.lock = threading.Lock()  # a driver puts while its outbox reads

    @cached_property
    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """Created with the first download: a process that is killed leaves it."""
        return tempfile.TemporaryDirectory(prefix="adder-search-")

    def __exit__(self, *_: object) -> None:
        """Remove the files that were downloaded."""
        self.scratch.cleanup()

    def put(self, trial: str, part: ConfigurationResults) -> None:
        """Add a trial's part; the least recently used one is evicted."""
        with self.lock:
            self.parts[part.configuration.key, trial] = part
            while len(self.parts) > self.capacity:
                self.parts.popitem(last=False)

    def part(self, configuration: str, trial: str) -> ConfigurationResults:
        """Return a trial's part of a configuration, by their keys. Raises Failure if it is lost."""
        with self.lock:
            part = self.parts.pop((configuration, trial), None)
        part = part or ConfigurationResults.read(self._folder(configuration, trial))
        self.put(trial, part)
        return part

    def curves(self, configuration: str, trial: str) -> pd.DataFrame:
        """Return the curves of a trial's seeds of a configuration, as `curve_table` has them."""
        part = self.parts.get((configuration, trial))
        if part is not None:
            return curve_table(part.configuration, part.results)
        return read_curves(self._folder(configuration, trial))

    def seed(self, row: Row) -> RecordedSeed:
        part = self.part(row["configuration"], row["trial"])
        result = part.by_seed[seed_of(row)]
        return RecordedSeed(self.records.study, part.configuration, result, part.about["environment"])

    def _folder(self, configuration: str, trial: str) -> Path:
        """Return the folder of a part, fetched from MLflow or from the depot. Raises Failure."""
        if not self.runs.get(configuration, ("", ""))[1]:
            self.runs = self.records.list_runs()
        _, run = self.runs.get(configuration, ("", ""))
        name, scratch = f"{TRIALS}/{trial}", Path(self.scratch.name)
        with self.records.naming_store():
            with answered(self.client.tracking_uri):
                folder = artifact(self.client, run, name, scratch, self.records.home) if run else None
            folder = folder or self._in_depot(configuration, trial)
            if folder is None:
                raise self._not_there(name, configuration)
        return folder

    def _not_there(self, name: str, configuration: str) -> Failure:
        """Return why a part of a configuration's records is not to be had."""
        place = self.records.home.artifacts
        if is_local(self.client.tracking_uri) and not place.exists():
            return Failure(missing(place))
        depot = "" if os.environ.get(VARIABLE) else f"; if a depot keeps it, {VARIABLE} has to name it"
        return Failure(f"study {self.records.study}: MLflow has not got {name} of configuration {configuration}{depot}")

    def _in_depot(self, configuration: str, trial: str) -> Path | None:
        """Fetch a part that MLflow was not given. Only the environment's depot is asked, whatever a run names."""
        root = Path(self.scratch.name)
        depot, parts = self.records.home.depot_at(root), below(root, self.records.study, trial) / PARTS
        return below(parts, configuration) if depot.retains_results and depot.get_folder(parts) else None


def pull(
    records: StudyRecords, seed: Seed | None, model: str | None = None, configuration: str | None = None
) -> tuple[Checkpoint, dict[str, Any] | None]:
    """Return the checkpoint of the best seed, or of `seed`, in a study, a preset or a configuration, and the verdict on
    all pairs that is recorded of it.

    Raises NotFound naming what there is, and UserError for a seed of several configurations that start alike; where
    they start from different θ, as in a descent, the best is taken.
    """
    configurations = records.list_configurations()
    keys = match_configurations(records.study, configurations, model, configuration)
    rows = finished_seeds(records, keys, seed)
    if not rows:
        begun = sorted(seed_of(r) for r in records.list_seeds() if r["configuration"] in keys)
        what = f"has no finished seed{f' {seed}' if seed else ''} yet"
        if seed and begun and seed not in begun:
            what = f"has begun no seed {seed}; it has {begun[0]} to {begun[-1]}"
        raise NotFound(f"study {records.study!r} {what}")
    if seed and len(rows) > 1 and len({configurations[r["configuration"]].start for r in rows}) == 1:
        raise _several(records, seed, sorted(rows, key=rank), configurations)
    best = min(rows, key=lambda r: (rank(r), configurations[r["configuration"]].spec.params))
    with ArtifactCache(connect(records.home, only_reads=True), records) as cache:
        return cache.seed(best).checkpoint(), best["proof"]


def _several(
    records: StudyRecords, seed: Seed, rows: Sequence[SeedRecord], configurations: Mapping[str, Configuration]
) -> UserError:
    """Return the error for a seed of several configurations: it lists them, the best first."""
    names = names_of(records.get_recorded_study(), configurations.values())
    lines = [f"  --configuration {r['configuration'][:6]}  {names[r['configuration']]}: {r['outcome']}" for r in rows]
    more = [f"  and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return UserError("\n".join([f"seed {seed} is in {len(lines)} configurations; add one of", *lines[:LISTED], *more]))


def finished_seeds(records: StudyRecords, keys: Collection[str], seed: Seed | None) -> list[SeedRecord]:
    """List the rows of configurations that have ended and that MLflow has, or those of one seed."""
    return [
        r
        for r in records.list_seeds()
        if r["configuration"] in keys and r["published"] and is_final(r) and seed in (None, seed_of(r))
    ]


def record_verification(ledger: Ledger, checkpoint: Checkpoint, correct: int) -> None:
    """Count a call of `verify` with the seed that a checkpoint's provenance names, if the ledger has it.

    correct: right answers of the 10,010. Raises UserError if the recorded θ is not the checkpoint's.
    """
    study, configuration = (checkpoint.provenance.get(k) for k in ("study", "configuration"))
    numbers = tuple(checkpoint.seed.get(k) for k in ("init_seed", "data_seed"))
    if not (isinstance(study, str) and isinstance(configuration, str)):
        return
    records = StudyRecords(ledger, study)
    for row in records.list_seeds(configuration):
        if (row["init_seed"], row["data_seed"]) == numbers:
            with ArtifactCache(connect(records.home, only_reads=True), records) as cache:
                recorded_P = cache.seed(row).result.theta_P
            if checkpoint.theta_P.tolist() != recorded_P.tolist():
                raise UserError(f"its θ is not the one that study {study} has of seed {seed_of(row)}")
            records.record_verification((configuration, row["init_seed"], row["data_seed"]), correct)


def match_configurations(
    study: str, configurations: dict[str, Configuration], model: str | None, prefix: str | None
) -> list[str]:
    """Return the keys of the configurations of a preset, or of the one whose key starts with `prefix`.

    Raises NotFound, with the nearest names, and UserError for a prefix of several.
    """
    keys = [k for k in configurations if k.startswith(prefix or "")]
    if prefix and not keys:
        hint = did_you_mean(prefix, configurations)
        raise NotFound(f"study {study!r} has no configuration {prefix!r}; {hint}")
    if prefix and len(keys) > 1:
        raise UserError(f"study {study!r}: {prefix!r} may be any of {', '.join(sorted(keys))}")
    models = {key: preset_name(configurations[key].spec) for key in keys}
    if model is not None and models and model not in models.values():
        hint = did_you_mean(model, dict.fromkeys(models.values()))
        raise NotFound(f"study {study!r} has no finished seed of {model!r}; {hint}")
    return [key for key in keys if model in (None, models[key])]
