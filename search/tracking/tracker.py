"""Writing MLflow: an experiment a study, a run a configuration, a child run for each of its best seeds.

Everything is looked up by tag before it is created and is a function of the ledger and of parts, so writing
twice changes nothing. Only who holds the study writes; what is written when is in search/analysis/publish.py.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run

from model import verify
from search.errors import Failure
from search.stats.counting import Row, final_metrics
from search.store.depot import Depot
from search.store.home import Home
from search.study.file import stopping_rule
from search.study.schema import Study
from search.study.start import describe_step, ties_beyond_parent
from search.study.trial import Configuration
from search.tracking.artifacts import RecordedSeed
from search.tracking.tracking import (
    ADDERBOARD,
    ANCESTOR_TAGS,
    CHECKPOINT,
    DEPOT_TAG,
    FINISHED,
    KEY_TAG,
    PARENT_TAG,
    SEED_TAG,
    STUDY_JSON,
    STUDY_TAG,
    TIED_TAG,
    TRIALS,
    answered,
    check_place,
    folder_of,
    is_local,
    local_artifacts,
)
from trainer import MEASURES, Seed
from trainer.files import durable
from trainer.recipe.screen import PROBE

RUNNING = "RUNNING"
LONGEST_TAG = 4_000  # characters
STEPS_AT_ONCE = 50  # of up to twenty metrics, probes among them: MLflow's limit for one call is 1,000


class Tracker:
    """One study's experiment."""

    def __init__(self, client: MlflowClient, home: Home, study: Study):
        self.client, self.home, self.study = client, home, study
        self.runs: dict[str, str] = {}
        self.known: dict[str, str] | None = None
        """Runs of configurations that an earlier driver left, once the store was asked."""
        self.open: dict[str, bool] = {}
        """Whether a run counts as running, as far as is known."""
        self.steps: dict[str, set[int]] = {}
        self.places: dict[str, Path | None] = {}
        self.rooted: set[str] = set()
        """Runs whose folder of artifacts has its name on disk, or which name their depot."""
        self.counted: dict[str, tuple[int, int]] = {}
        """Rows of a configuration when it was counted, and how many came after."""
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
            found = self._found(configuration.key)
            run = self.client.get_run(found) if found else self._new_run(configuration)
            self.places[run.info.run_id] = folder_of(self.client, self.home, run)
            written = run.data.params  # MLflow lets nothing be changed
            values = {k: v for k, v in configuration.as_params().items() if k not in written}
            params = [Param(k, json.dumps(v) if isinstance(v, list) else str(v)) for k, v in values.items()]
            self.client.log_batch(run.info.run_id, params=params)
            self.runs[configuration.key] = run.info.run_id
            self.open[run.info.run_id] = run.info.status == RUNNING
        return self.runs[configuration.key]

    def _found(self, key: str) -> str | None:
        """The run of a configuration that was there when the store was asked: nobody else makes any."""
        if self.known is None:
            runs = self.client.search_runs([self.experiment], max_results=50_000)
            own = [r for r in runs if KEY_TAG in r.data.tags]  # a seed's run has none
            self.known = {r.data.tags[KEY_TAG]: r.info.run_id for r in own}
        return self.known.get(key)

    def _find(self, condition: str, parent: str | None) -> str | None:
        if parent:
            condition += f" and tags.`{PARENT_TAG}` = '{parent}'"
        runs = self.client.search_runs([self.experiment], condition)
        mine = [r for r in runs if r.data.tags.get(PARENT_TAG) == parent]
        return mine[0].info.run_id if mine else None

    def _new_run(self, configuration: Configuration) -> Run:
        """A run that nobody has; if the answer is lost, the store is asked again."""
        tags = {KEY_TAG: configuration.key, **self._ancestors(configuration)}
        known, self.known = self.known, None
        run = self.client.create_run(self.experiment, tags=tags, run_name=configuration.title)
        self.known = known
        return run

    def _ancestors(self, configuration: Configuration) -> dict[str, str]:
        """Tags of what led to the θ that a configuration starts from, and the link to its parent's run."""
        steps = configuration.start.lineage if configuration.start else ()
        named = dict(zip(ANCESTOR_TAGS, map(describe_step, reversed(steps)), strict=False))
        if not steps:
            return {}
        its, own = steps[-1].get("configuration"), steps[-1].get("study") == self.study.name
        run = self.runs.get(its) or self._found(its) if own and its else steps[-1].get("run")
        tied = ", ".join(ties_beyond_parent(steps[-1].get("spec"), configuration.spec))
        return named | ({PARENT_TAG: run} if run else {}) | ({TIED_TAG: tied[:LONGEST_TAG]} if tied else {})

    def log_steps(self, configuration: Configuration, steps: Mapping[int, dict[str, float]]) -> None:
        """Write metrics of a configuration by training step. Steps that are there stay as they are."""
        self._log_once(self.run_of(configuration), "grok_rate", steps)

    def _log_once(self, run: str, mark: str, steps: Mapping[int, dict[str, float]]) -> None:
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

    def part(self, configuration: Configuration, trial: str, folder: Path) -> None:
        """A part's files, as its worker left them, as artifacts of its configuration's run. Where a depot
        keeps them MLflow has summaries and the best checkpoints, and is told the name of the depot.
        """
        run, name = self.run_of(configuration), f"{TRIALS}/{trial}"
        if isinstance(depot := self.home.depot, Depot):
            if run not in self.rooted:
                self.client.set_tag(run, DEPOT_TAG, depot.uri)
                self.rooted.add(run)
            return
        if (mine := self._place(run)) is None:
            self.client.log_artifacts(run, str(folder), name)
        else:
            durable.link(folder, mine / name)
            if run not in self.rooted:  # MLflow may have made its folder, and leaves it unsynced
                durable.sync_names(mine.parents[2], mine / name)
                self.rooted.add(run)

    def _place(self, run: str) -> Path | None:
        """The folder of a run's artifacts, unless a server has them."""
        if run not in self.places:
            self.places[run] = local_artifacts(self.client, self.home, run)
        return self.places[run]

    def keep(self, run: str, source: Path, name: str = "") -> None:
        """What is in a folder, as artifacts of a run below `name`. Where no server has them: on disk."""
        self.client.log_artifacts(run, str(source), name or None)
        if (mine := self._place(run)) is not None:
            durable.sync_below(mine.parents[2], mine / name)  # artifacts/STUDY/RUN/artifacts

    def is_count_due(self, configuration: Configuration, new: int) -> bool:
        """Whether a configuration has an eighth more rows than when it was counted, with these new ones: to
        count all of them for each trial would take a time that grows as their square. A first trial is
        counted with the second, or when the configuration is concluded.
        """
        known, more = self.counted.get(configuration.key, (0, 0))
        self.counted[configuration.key] = known, more + new
        return more > 0 and 8 * (more + new) >= known

    def counts(
        self, configuration: Configuration, rows: Sequence[Row], more: Mapping[str, float] | None = None
    ) -> None:
        """What a configuration's rows come to so far, as `final.*` metrics."""
        now, last = int(time.time() * 1000), max((r["steps"] for r in rows), default=0)
        values = final_metrics(rows, stopping_rule(self.study)) | dict(more or {})
        metrics = [Metric(f"final.{k}", v, now, last) for k, v in values.items()]
        self.client.log_batch(self.run_of(configuration), metrics=metrics)
        self.counted[configuration.key] = len(rows), 0  # what was not written is still due

    def child(self, seed: RecordedSeed) -> None:
        """The run of one grokked seed: curve as metrics, checkpoint as artifacts, additions decoded."""
        parent, result = self.run_of(seed.configuration), seed.result
        name, spec, recipe = str(result.pair.seed), seed.configuration.spec, seed.configuration.recipe
        run = self._find(f"tags.`{SEED_TAG}` = '{name}'", parent)
        if run and self.client.get_run(run).info.status == FINISHED:
            return
        tags = {PARENT_TAG: parent, SEED_TAG: name}
        run = run or self.client.create_run(self.experiment, tags=tags, run_name=f"seed {name}").info.run_id
        check_place(self.client, self.home, self.client.get_run(run))
        names = [*MEASURES, *(f"{PROBE}{name}" for name in spec.probes())]
        read = result.probes_ER.tolist() or [[]] * len(result.curve_EM)
        curve = {
            i * recipe.eval_every: dict(zip(names, [*row, *more], strict=False))
            for i, (row, more) in enumerate(zip(result.curve_EM.tolist(), read, strict=True), start=1)
        }
        self._log_once(run, MEASURES[0], curve)
        params = {"seed": name, "grok_step": result.grok_step, "held": result.held, "params": spec.params}
        self.client.log_batch(run, params=[Param(k, str(v)) for k, v in params.items()])
        self.checkpoint(run, CHECKPOINT, seed)
        if ADDERBOARD not in self.client.get_run(run).data.metrics:  # of a driver that died before the end
            self.client.log_metric(run, ADDERBOARD, verify(spec, result.theta_P).correct)
        self.client.set_terminated(run)

    def decoded(self, configuration: Configuration) -> dict[Seed, int]:
        """Of a configuration's child runs: right additions of AdderBoard's 10,010, by seed."""
        parent = self.run_of(configuration)
        runs = self.client.search_runs([self.experiment], f"tags.`{PARENT_TAG}` = '{parent}'")
        named = {Seed.named(r.data.tags[SEED_TAG]): r.data.metrics for r in runs if SEED_TAG in r.data.tags}
        return {seed: int(m[ADDERBOARD]) for seed, m in named.items() if ADDERBOARD in m}

    def checkpoint(self, run: str, name: str, seed: RecordedSeed) -> None:
        """A seed's checkpoint as a folder of a run's artifacts."""
        with tempfile.TemporaryDirectory() as folder:
            seed.checkpoint().save(Path(folder) / name)
            self.keep(run, Path(folder) / name, name)

    def end(self, configuration: Configuration, status: str = FINISHED) -> None:
        run = self.run_of(configuration)
        self.open[run] = False
        self.client.set_terminated(run, status=status)

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
        kept = self.client.get_run(run)
        check_place(self.client, self.home, kept)
        if kept.info.status != FINISHED:
            self.client.set_terminated(run)
        return run

    def reopen(self, configuration: Configuration) -> None:
        run = self.run_of(configuration)
        if not self.open[run]:
            self.client.update_run(run, status=RUNNING)
            self.open[run] = True
