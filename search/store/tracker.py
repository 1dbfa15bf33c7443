"""Writing MLflow: an experiment a study, a run a configuration, a child run for each of its best seeds.

Everything is looked up by tag before it is created and is a function of the ledger and a trial's
results, so writing twice changes nothing. Only who holds the study writes.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import unquote, urlparse

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run

from model import verify
from model.adderboard import ADDITIONS
from search.run import worker
from search.errors import Failure, UserError
from search.store.home import Home
from search.store.ledger import Row
from search.study.trial import Configuration
from search.store.stats import step_metrics
from search.store.stats import COUNTED, GrokRate, Stopping
from search.study.schema import Study
from trainer import Outcome, Result, Seed
from trainer.checkpoint import Checkpoint

KEY_TAG, SEED_TAG, PARENT_TAG = "adder.configuration", "adder.seed", "mlflow.parentRunId"
STUDY_TAG, BEST_TAG = "adder.study", "adder.best_seed"
ADDERBOARD = "adderboard"  # a child run's metric: right answers of AdderBoard's 10,010
BEST_CHILDREN = 3
STEPS_AT_ONCE = 100  # of up to ten metrics: MLflow's limit for one call is 1,000
ALL_DRAWN = 32
"""Configurations of a study up to which each has its picture; of more, those that grokked have."""
TRIALS, BEST, CHECKPOINT = "trials", "best", "checkpoint"
CURVES_PNG, STUDY_JSON, CENSORED_JSON = "curves.png", "study.json", "censored.json"
CENSORED = ("init_seed", "data_seed", "confirmation", "steps", "best_exact", "best_token")
FINISHED = "FINISHED"


def tracking_uri(home: Home, own: str | None = None) -> str:
    """The study's own store, else the environment's, else the home's SQLite file."""
    return own or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home.mlflow_db}"


def is_local(uri: str) -> bool:
    """Whether a store is a file and no server."""
    return uri.startswith("sqlite:")


def connect(home: Home, uri: str) -> MlflowClient:
    """A client that has been answered once. Raises Failure if the store is locked or away."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    with answered(uri):
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
    return client


@contextmanager
def answered(what: str) -> Iterator[None]:
    """Whatever a store raises, the user gets one line, and no password in it."""
    try:
        yield
    except (Failure, UserError):
        raise
    except Exception as error:
        line = f"MLflow store {what}: {_one_line(error)}"
        raise Failure(re.sub("//[^/@ ]*@", "//", line)) from None


def _one_line(error: Exception) -> str:
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    return text[:200] or type(error).__name__


class Tracker:
    """One study's experiment."""

    def __init__(self, client: MlflowClient, home: Home, study: Study):
        self.client, self.home, self.study = client, home, study
        self.runs: dict[str, str] = {}
        self.steps: dict[str, set[int]] = {}
        with answered(study.name):
            found = client.get_experiment_by_name(study.name)
            if found and found.lifecycle_stage != "active":
                raise Failure(f"experiment {study.name} was deleted in MLflow: restore or rename it")
            self.experiment = found.experiment_id if found else self._create()

    def _create(self) -> str:
        tags = {"mlflow.note.content": self.study.about} if self.study.about else {}
        local = is_local(self.client.tracking_uri)
        location = (self.home.artifacts / self.study.name).as_uri() if local else None
        return self.client.create_experiment(self.study.name, artifact_location=location, tags=tags)

    def run_of(self, configuration: Configuration) -> str:
        """The configuration's run, found by its key or made with all its parameters."""
        if configuration.key not in self.runs:
            found = self._find(f"tags.`{KEY_TAG}` = '{configuration.key}'", parent=None)
            run = found or self._new_run(configuration)
            written = self.client.get_run(run).data.params  # MLflow lets nothing be changed
            values = {k: v for k, v in configuration.as_params().items() if k not in written}
            params = [Param(k, json.dumps(v) if isinstance(v, list) else str(v)) for k, v in values.items()]
            self.client.log_batch(run, params=params)
            self.runs[configuration.key] = run
        return self.runs[configuration.key]

    def _find(self, condition: str, parent: str | None) -> str | None:
        if parent:
            condition += f" and tags.`{PARENT_TAG}` = '{parent}'"
        runs = self.client.search_runs([self.experiment], condition)
        mine = [r for r in runs if r.data.tags.get(PARENT_TAG) == parent]
        return mine[0].info.run_id if mine else None

    def _new_run(self, configuration: Configuration) -> str:
        tags = {KEY_TAG: configuration.key}
        run = self.client.create_run(self.experiment, tags=tags, run_name=configuration.title)
        return str(run.info.run_id)

    def progress(self, configuration: Configuration, steps: dict[int, dict[str, float]]) -> None:
        """Metrics of a configuration by training step."""
        self._log_once(self.run_of(configuration), "grok_rate", steps)

    def _log_once(self, run: str, mark: str, steps: dict[int, dict[str, float]]) -> None:
        """Metrics by step, those of a step together and once: MLflow keeps every value of a step.

        `mark`: the metric that says whether a step is there.
        """
        known = self.steps.pop(run, None)  # kept when all is written: after an error the server is asked
        if known is None:
            known = {m.step for m in self.client.get_metric_history(run, mark)}
        now, new = int(time.time() * 1000), [step for step in steps if step not in known]
        for i in range(0, len(new), STEPS_AT_ONCE):
            some = new[i : i + STEPS_AT_ONCE]
            metrics = [Metric(k, v, now, step) for step in some for k, v in steps[step].items()]
            self.client.log_batch(run, metrics=metrics)
        self.steps[run] = known.union(new)

    def trial(self, key: str, part: worker.Part) -> None:
        """What of a finished trial is one configuration's, as artifacts of its run: θ's, curves, results."""
        with tempfile.TemporaryDirectory() as folder:
            part.write(Path(folder))
            self.client.log_artifacts(self.run_of(part.configuration), folder, f"{TRIALS}/{key}")

    def summary(self, configuration: Configuration, rows: list[Row]) -> dict[Seed, int]:
        """Counts, rate and interval of a configuration, its picture, and its best seeds' checkpoints.

        Returns how many of AdderBoard's 10,010 its child runs have right, by seed.
        """
        run = self.run_of(configuration)
        with tempfile.TemporaryDirectory() as folder:
            verified = self._best(run, configuration, Path(folder))
        right = sum(correct == ADDITIONS for correct in verified.values())
        self.counts(configuration, rows, {"verified": right, "verify_tried": len(verified)})
        censored = [{name: r[name] for name in CENSORED} for r in rows if r["outcome"] == Outcome.CENSORED]
        self.client.log_dict(run, {"seeds": censored}, CENSORED_JSON)
        return verified

    def counts(
        self, configuration: Configuration, rows: list[Row], more: dict[str, float] | None = None
    ) -> None:
        """What a configuration's rows come to so far, as `final.*` metrics."""
        now, last = int(time.time() * 1000), max((r["steps"] for r in rows), default=0)
        values = final_metrics(rows) | (more or {})
        metrics = [Metric(f"final.{k}", v, now, last) for k, v in values.items()]
        self.client.log_batch(self.run_of(configuration), metrics=metrics)

    def _best(self, run: str, configuration: Configuration, folder: Path) -> dict[Seed, int]:
        """Write picture, best checkpoint and child runs. Returns right additions of the children, by seed."""
        recorded = load_seeds(self.client, self.client.get_run(run), folder)
        seeds = sorted(recorded, key=lambda s: rank(s.result))
        if not seeds:
            return {}
        grokked = [s for s in seeds if s.result.outcome == Outcome.GROKKED]
        if grokked or self.study.planned <= ALL_DRAWN:
            self._picture(run, configuration, seeds, grokked, folder / CURVES_PNG)
        self._checkpoint(run, BEST, seeds[0], folder)
        self.client.set_tag(run, BEST_TAG, str(seeds[0].result.pair.seed))
        watched = set(self.study.watched())
        self._fill_steps(configuration, [s.result for s in seeds if s.result.pair.seed in watched])
        for seed in grokked[:BEST_CHILDREN]:
            self._child(run, seed, folder)
        return self._verified(run)

    def _verified(self, run: str) -> dict[Seed, int]:
        """What is known of a configuration's child runs: right additions of AdderBoard's, by seed."""
        runs = self.client.search_runs([self.experiment], f"tags.`{PARENT_TAG}` = '{run}'")
        named = {Seed.named(r.data.tags[SEED_TAG]): r.data.metrics for r in runs if SEED_TAG in r.data.tags}
        return {seed: int(m[ADDERBOARD]) for seed, m in named.items() if ADDERBOARD in m}

    def _picture(
        self,
        run: str,
        configuration: Configuration,
        seeds: list[RecordedSeed],
        grokked: list[RecordedSeed],
        path: Path,
    ) -> None:
        from search.evidence.plots import grokking_curves

        curves = worker.curve_table(configuration, [s.result for s in seeds])
        winners = [(s.result.pair.seed.init_seed, s.result.pair.seed.data_seed) for s in grokked]
        grokking_curves(curves, winners, f"study {self.study.name}, {configuration.title}", path)
        self.client.log_artifact(run, str(path))

    def _fill_steps(self, configuration: Configuration, results: list[Result]) -> None:
        """Metrics of the steps that an interruption left out, from the recorded curves."""
        if len(results) < len(self.study.watched()):
            return
        steps = {}
        for i in range(max(len(r.curve_EM) for r in results)):
            rows = [
                dict(zip(worker.MEASURES, r.curve_EM[min(i, len(r.curve_EM) - 1)].tolist(), strict=True))
                | {"grok_step": r.grok_step}
                for r in results
            ]
            step = (i + 1) * configuration.recipe.eval_every
            steps[step] = step_metrics(step, rows)
        self.progress(configuration, steps)

    def _child(self, parent: str, seed: RecordedSeed, folder: Path) -> None:
        """The run of one grokked seed: its curve as metrics, its checkpoint as artifacts."""
        result, name = seed.result, str(seed.result.pair.seed)
        run = self._find(f"tags.`{SEED_TAG}` = '{name}'", parent)
        if run and self.client.get_run(run).info.status == FINISHED:
            return
        tags = {PARENT_TAG: parent, SEED_TAG: name}
        run = run or self.client.create_run(self.experiment, tags=tags, run_name=f"seed {name}").info.run_id
        every = seed.configuration.recipe.eval_every
        points = {
            (i + 1) * every: dict(zip(worker.MEASURES, row, strict=True))
            for i, row in enumerate(result.curve_EM.tolist())
        }
        self._log_once(run, worker.MEASURES[0], points)
        params = {"seed": name, "grok_step": result.grok_step, "held": result.held,
                  "params": seed.configuration.spec.params}  # fmt: skip
        self.client.log_batch(run, params=[Param(k, str(v)) for k, v in params.items()])
        self._checkpoint(run, CHECKPOINT, seed, folder)
        if ADDERBOARD not in self.client.get_run(run).data.metrics:  # of a driver that died before the end
            self.client.log_metric(run, ADDERBOARD, verify(seed.configuration.spec, result.theta_P).correct)
        self.client.set_terminated(run)

    def _checkpoint(self, run: str, name: str, seed: RecordedSeed, folder: Path) -> None:
        target = folder / name
        seed.checkpoint(self.study.name).save(target)
        self.client.log_artifacts(run, str(target), name)

    def end(self, configuration: Configuration, status: str = FINISHED) -> None:
        self.client.set_terminated(self.run_of(configuration), status=status)

    def unconcluded(self) -> dict[str, str]:
        """The configurations whose runs have not been concluded: key and run."""
        runs = self.client.search_runs(
            [self.experiment], "attributes.status != 'FINISHED'", max_results=50_000
        )
        return {r.data.tags[KEY_TAG]: r.info.run_id for r in runs if KEY_TAG in r.data.tags}

    def asked(self) -> None:
        """Leave the study itself, as it is now, with its own run."""
        self.client.log_dict(
            self.own_run(), json.loads(self.study.model_dump_json(by_alias=True)), STUDY_JSON
        )

    def own_run(self) -> str:
        """The run that is the study's and no configuration's: what was asked, what came of it as a whole."""
        run = self._find(f"tags.`{STUDY_TAG}` = 'yes'", parent=None)
        if run is None:
            tags, name = {STUDY_TAG: "yes"}, f"study {self.study.name}"
            run = str(self.client.create_run(self.experiment, tags=tags, run_name=name).info.run_id)
        if self.client.get_run(run).info.status != FINISHED:
            self.client.set_terminated(run)
        return run

    def reopen(self, configuration: Configuration) -> None:
        self.client.update_run(self.run_of(configuration), status="RUNNING")


def rank(result: Result) -> tuple[Any, ...]:
    """Sorting key, best first: grokked and held, grokked early, then the highest exact match."""
    grokked = result.outcome == Outcome.GROKKED
    return (not grokked, not result.held, result.grok_step or 0, -result.best_exact, -result.best_token)


@dataclass(frozen=True)
class RecordedSeed:
    """One seed as MLflow has it."""

    configuration: Configuration
    result: Result
    environment: dict[str, Any]

    def checkpoint(self, study: str) -> Checkpoint:
        """Its best θ with its papers: from scratch, with one recipe, by the code that trained it."""
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
                "study": study,
                "configuration": self.configuration.key,
                "environment": self.environment,
            },
            code=self.environment["code"],
        )


def load_seeds(client: MlflowClient, run: Run, folder: Path) -> list[RecordedSeed]:
    """Every recorded seed of a configuration's run, read back from its artifacts."""
    parts = [worker.Part.read(f) for f in trial_folders(client, run, folder)]
    return [RecordedSeed(p.configuration, r, p.about["environment"]) for p in parts for r in p.results]


def trial_folders(client: MlflowClient, run: Run, scratch: Path) -> list[Path]:
    """Where the artifacts of a configuration's trials are; `scratch`: where those of a server are put."""
    folder = artifact(client, run, TRIALS, scratch)
    return sorted(folder.iterdir()) if folder else []


def artifact(client: MlflowClient, run: Run, name: str, scratch: Path) -> Path | None:
    """Where a run's artifact is, a file or a folder at its top level; None if there is none."""
    place, run_id = urlparse(run.info.artifact_uri), run.info.run_id
    if place.scheme == "file":
        written = Path(unquote(place.path))
        store = Path(urlparse(client.tracking_uri).path).parent
        moved = store / "artifacts" / Path(*written.parts[-3:])  # MLflow knows where a home was made
        return next((path / name for path in (moved, written) if (path / name).exists()), None)
    if name not in {item.path for item in client.list_artifacts(run_id)}:
        return None
    own = scratch / run_id  # parts of one trial have the same path in several runs
    own.mkdir(exist_ok=True)
    return Path(client.download_artifacts(run_id, name, str(own)))


def final_metrics(rows: list[Row]) -> dict[str, float]:
    """What a configuration's ledger rows come to, by the names that follow `final.` in MLflow."""
    rate, stopping = GrokRate.of(r["outcome"] for r in rows), Stopping.of(rows)
    confirmation = GrokRate.of(r["outcome"] for r in rows if r["confirmation"])
    counts = Counter(r["outcome"] for r in rows)
    low, high = rate.interval
    grok_steps = [r["grok_step"] for r in rows if r["outcome"] == Outcome.GROKKED]
    values = {
        "grok_rate": rate.rate, "grok_rate_low": low, "grok_rate_high": high, "seeds": rate.n,
        "best_exact": max((r["best_exact"] or 0.0 for r in rows), default=0.0),
        "held": sum(bool(r["held"]) for r in rows),
        "spared": stopping.spared, "spared_grokked": stopping.spared_grokked,
        "confirmation_grokked": confirmation.grokked, "confirmation_seeds": confirmation.n,
        "confirmation_given_up": confirmation.given_up,
        **{o.value: counts[o] for o in (*COUNTED, Outcome.CENSORED)},
    }  # fmt: skip
    return values | ({"median_grok_step": float(median(grok_steps))} if grok_steps else {})
