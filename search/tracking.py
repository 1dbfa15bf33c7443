"""Writing MLflow: an experiment a study, a run a configuration, a child run for each of its best seeds.

Everything is looked up by tag before it is created and is a function of the ledger and a trial's
results, so writing twice changes nothing. Only the driver writes.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from search import worker
from search.errors import Failure
from search.home import Home
from search.ledger import Row
from search.plan import Configuration, Trial
from search.plots import grokking_curves
from search.progress import step_metrics
from search.stats import COUNTED, GrokRate
from search.study import Study
from trainer import Outcome, Result, Seed
from trainer.checkpoint import Checkpoint

KEY_TAG, SEED_TAG, PARENT_TAG = "adder.configuration", "adder.seed", "mlflow.parentRunId"
BEST_CHILDREN = 3
TRIALS, BEST, CHECKPOINT = "trials", "best", "checkpoint"
CURVES_PNG = "curves.png"


def tracking_uri(home: Home, study: Study | None = None) -> str:
    """The study's server, else the environment's, else the home's SQLite file."""
    chosen = (study and study.tracking_uri) or os.environ.get("MLFLOW_TRACKING_URI")
    return chosen or f"sqlite:///{home.mlflow_db}"


def connect(home: Home, uri: str) -> MlflowClient:
    """A client that has been answered once. Raises Failure if the store is locked or away."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    try:
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
    except Exception as error:  # whatever the store raises, the user gets one line
        line = f"MLflow store {uri}: {_one_line(error)}"
        raise Failure(re.sub("//[^/@ ]*@", "//", line)) from None  # no password in a log
    return client


def _one_line(error: Exception) -> str:
    text = " ".join(str(getattr(error, "orig", None) or error).split())
    return text[:200] or type(error).__name__


class Tracker:
    """One study's experiment."""

    def __init__(self, client: MlflowClient, home: Home, study: Study):
        self.client, self.home, self.study = client, home, study
        self.runs: dict[str, str] = {}
        found = client.get_experiment_by_name(study.name)
        self.experiment = found.experiment_id if found else self._create()

    def _create(self) -> str:
        tags = {"mlflow.note.content": self.study.about} if self.study.about else {}
        local = tracking_uri(self.home, self.study).startswith("sqlite:")
        location = (self.home.artifacts / self.study.name).as_uri() if local else None
        return self.client.create_experiment(self.study.name, artifact_location=location, tags=tags)

    def run_of(self, configuration: Configuration) -> str:
        """The configuration's run, found by its key or made with all its parameters."""
        if configuration.key not in self.runs:
            found = self._find(f"tags.`{KEY_TAG}` = '{configuration.key}'", parent=None)
            self.runs[configuration.key] = found or self._new_run(configuration)
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
        params = [Param(k, json.dumps(v) if isinstance(v, list) else str(v)) for k, v in
                  configuration.as_params().items()]  # fmt: skip
        self.client.log_batch(run.info.run_id, params=params)
        return run.info.run_id

    def progress(self, configuration: Configuration, step: int, values: dict[str, float]) -> None:
        """Metrics of a configuration at a training step."""
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self.client.log_batch(self.run_of(configuration), metrics=metrics)

    def trial(self, trial: Trial, folder: Path) -> None:
        """A finished trial's θ's, curves and results, as artifacts of its configuration's run."""
        run = self.run_of(trial.configuration)
        for name in (worker.RESULTS, worker.THETA, worker.CURVES, "trial.json"):
            self.client.log_artifact(run, str(folder / name), f"{TRIALS}/{trial.key}")

    def summary(self, configuration: Configuration, rows: list[Row]) -> None:
        """Counts, rate and interval of a configuration, its picture, and its best seeds' checkpoints."""
        run = self.run_of(configuration)
        rate = GrokRate.of(r["outcome"] for r in rows)
        counts = Counter(r["outcome"] for r in rows)
        low, high = rate.interval
        grok_steps = sorted(r["grok_step"] for r in rows if r["outcome"] == Outcome.GROKKED)
        values = {
            "grok_rate": rate.rate, "grok_rate_low": low, "grok_rate_high": high, "seeds": rate.n,
            "best_exact": max((r["best_exact"] or 0.0 for r in rows), default=0.0),
            "held": sum(bool(r["held"]) for r in rows),
            "verify_calls": sum(r["verify_calls"] for r in rows),
            **{o.value: counts[o] for o in (*COUNTED, Outcome.CENSORED)},
        }  # fmt: skip
        if grok_steps:
            values["median_grok_step"] = float(pd.Series(grok_steps).median())
        now = int(time.time() * 1000)
        last = max((r["steps"] for r in rows), default=0)
        self.client.log_batch(run, metrics=[Metric(f"final.{k}", v, now, last) for k, v in values.items()])
        self._best(run, configuration)

    def _best(self, run: str, configuration: Configuration) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = load_trials(self.client, run, Path(folder))
            results = [r for _, trial_results, _ in found for r in trial_results]
            if not results:
                return
            curves = pd.concat([worker.curve_table(t, r) for t, r, _ in found], ignore_index=True)
            picture = Path(folder) / CURVES_PNG
            grokked = [r for r in results if r.outcome == Outcome.GROKKED]
            seeds = [(r.pair.seed.init_seed, r.pair.seed.data_seed) for r in grokked]
            grokking_curves(curves, seeds, f"study {self.study.name}, {configuration.title}", picture)
            self.client.log_artifact(run, str(picture))
            ranked = sorted(results, key=rank)
            self._checkpoint(run, BEST, configuration, ranked[0], Path(folder))
            for result in [r for r in ranked if r.outcome == Outcome.GROKKED][:BEST_CHILDREN]:
                self._child(run, configuration, result, Path(folder))
            first_round = {Seed.of(n) for n in self.study.first_seeds()}
            self._fill_steps(run, configuration, [r for r in results if r.pair.seed in first_round])

    def _fill_steps(self, run: str, configuration: Configuration, results: list[Result]) -> None:
        """Metrics of the steps that no uninterrupted run wrote, from the recorded curves."""
        if len(results) < len(self.study.first_seeds()):
            return
        written = {m.step for m in self.client.get_metric_history(run, "grok_rate")}
        every = configuration.recipe.eval_every
        for i in range(max(len(r.curve_EM) for r in results)):
            step = (i + 1) * every
            if step not in written:
                rows = [
                    dict(zip(worker.MEASURES, r.curve_EM[min(i, len(r.curve_EM) - 1)].tolist(), strict=True))
                    | {"grok_step": r.grok_step}
                    for r in results
                ]
                self.progress(configuration, step, step_metrics(step, rows))

    def _child(self, parent: str, configuration: Configuration, result: Result, folder: Path) -> None:
        """The run of one grokked seed: its curve as metrics, its checkpoint as artifacts."""
        seed = str(result.pair.seed)
        if self._find(f"tags.`{SEED_TAG}` = '{seed}'", parent):
            return
        tags = {PARENT_TAG: parent, SEED_TAG: seed}
        run = self.client.create_run(self.experiment, tags=tags, run_name=f"seed {seed}").info.run_id
        now, every = int(time.time() * 1000), configuration.recipe.eval_every
        points = [
            Metric(name, value, now, (i + 1) * every)
            for i, row in enumerate(result.curve_EM.tolist())
            for name, value in zip(worker.MEASURES, row, strict=True)
        ]
        for start in range(0, len(points), 1_000):  # MLflow's limit for one call
            self.client.log_batch(run, metrics=points[start : start + 1_000])
        params = {"seed": seed, "grok_step": result.grok_step, "held": result.held,
                  "params": configuration.spec.params}  # fmt: skip
        self.client.log_batch(run, params=[Param(k, str(v)) for k, v in params.items()])
        self._checkpoint(run, CHECKPOINT, configuration, result, folder)
        self.client.set_terminated(run)

    def _checkpoint(
        self, run: str, name: str, configuration: Configuration, result: Result, folder: Path
    ) -> None:
        target = folder / name
        checkpoint_of(self.study.name, configuration, result).save(target)
        self.client.log_artifacts(run, str(target), name)

    def end(self, configuration: Configuration, status: str = "FINISHED") -> None:
        self.client.set_terminated(self.run_of(configuration), status=status)

    def has_ended(self, configuration: Configuration) -> bool:
        """Whether the configuration's run was concluded."""
        return self.client.get_run(self.run_of(configuration)).info.status == "FINISHED"

    def reopen(self, configuration: Configuration) -> None:
        self.client.update_run(self.run_of(configuration), status="RUNNING")

    def note(self, key: str, value: str) -> None:
        self.client.set_experiment_tag(self.experiment, key, value)


def rank(result: Result) -> tuple[Any, ...]:
    """Sorting key, best first: grokked and held, grokked early, then the highest exact match."""
    grokked = result.outcome == Outcome.GROKKED
    return (not grokked, not result.held, result.grok_step or 0, -result.best_exact, -result.best_token)


def checkpoint_of(study: str, configuration: Configuration, result: Result) -> Checkpoint:
    """A seed's best θ with its papers. Provenance: from scratch, one uninterrupted recipe."""
    seed = result.pair.seed
    return Checkpoint(
        spec=configuration.spec,
        theta_P=result.theta_P,
        recipe=configuration.recipe.as_dict(),
        seed={"init_seed": seed.init_seed, "data_seed": seed.data_seed},
        step=result.best_step,
        metrics={
            "outcome": result.outcome.value,
            "grok_step": result.grok_step,
            "held": result.held,
            "best_exact": result.best_exact,
            "best_token": result.best_token,
        },
        provenance={"trained": "from scratch", "study": study, "configuration": configuration.key},
    )


def load_trials(
    client: MlflowClient, run: str, folder: Path
) -> list[tuple[Trial, list[Result], dict[str, Any]]]:
    """Every recorded trial of a configuration's run, read back from its artifacts."""
    found = []
    for item in client.list_artifacts(run, TRIALS):
        local = client.download_artifacts(run, item.path, str(folder))
        results = worker.read_results(Path(local))
        if results is not None:
            found.append(results)
    return found
