"""Writing MLflow by difference: one experiment per study, one run per configuration, a child run for each best seed.

What MLflow has is listed once; only what differs from the ledger is written, so writing twice changes nothing. A run is
found by a tag, never by its name. Only who has the study's lease writes. What is written is declared in shown.py,
and when in tracking/projection.py.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunInfo, RunTag
from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
from mlflow.exceptions import MlflowException

from reports.markup import escape
from search.store.home import IDENTIFIER, Home
from search.store.lease import Superseded
from search.store.study_records import StudyRecords
from search.study.schema import Study, is_name
from search.study.trial import Configuration
from tracking.datasets import log_dataset, training_dataset
from tracking.shown import (
    CONFIGURATION_JSON,
    NOTE,
    ancestor_tags,
    describe_configuration,
    describes,
    main_params,
)
from tracking.store import (
    FINISHED,
    KEY_TAG,
    OUTCOME_TAG,
    PARENT_TAG,
    RUNNING,
    SEED_TAG,
    SHOWN_TAG,
    STUDY_TAG,
    FencedClient,
    answered,
    check_place,
    check_uri,
    find_experiment,
    open_experiment,
)
from trainer import Seed

MOST_RUNS = 50_000  # of an experiment: MLflow's limit for one search
STEPS_AT_ONCE = 50  # of up to twenty metrics, probes among them: MLflow's limit for one call is 1,000
Identity = tuple[str, str, str | None]
"""The tag by which a run is found, the tag's value, and of a seed's run its configuration's run."""


@dataclass
class ShownRun:
    """A run as MLflow has it."""

    info: RunInfo
    name: str
    status: str
    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, float]

    @classmethod
    def of(cls, run: Run) -> Self:
        info, data = run.info, run.data
        return cls(info, info.run_name, info.status, data.params, data.tags, data.metrics)

    @property
    def id(self) -> str:
        return str(self.info.run_id)

    @property
    def identity(self) -> Identity | None:
        """None for a run that is not ours."""
        tag = next((tag for tag in (KEY_TAG, SEED_TAG, STUDY_TAG) if tag in self.tags), None)
        parent = self.tags.get(PARENT_TAG) if tag == SEED_TAG else None
        return (tag, self.tags[tag], parent) if tag else None


class Tracker:
    """One study's experiment."""

    def __init__(
        self,
        client: MlflowClient,
        home: Home,
        study: Study,
        verify: Callable[[], object] = lambda: None,
        records: StudyRecords | None = None,
    ):
        """Open the experiment, or create it.

        verify: raises Superseded once another driver has the study; called before anything is written. records: the
        study's; without them, any ledger's experiment of the study is its own.
        """
        self.unfenced, self.verify, self.home, self.study, self.records = client, verify, home, study, records
        self.client = FencedClient(client, verify)
        self.is_watching = False
        self._runs: dict[Identity, ShownRun] | None = None
        self._steps: dict[str, set[int]] = {}
        """By run: steps of which it has metrics."""
        with answered(client.tracking_uri):
            about = {NOTE: escape(study.about)} if study.about else {}
            self.experiment = open_experiment(self.client, home, study.name, records, about)

    # Runs

    @property
    def runs(self) -> dict[Identity, ShownRun]:
        """The experiment's runs, listed when they are first asked for: nobody else makes any."""
        if self._runs is None:
            listed = map(ShownRun.of, self.client.search_runs([self.experiment], max_results=MOST_RUNS))
            self._runs = {run.identity: run for run in listed if run.identity}
        return self._runs

    def find(self, tag: str, value: str, parent: ShownRun | None = None) -> ShownRun | None:
        """Return the run that has a tag with this value below a parent; None if there is none."""
        return self.runs.get((tag, value, parent.id if parent else None))

    def open_run(self, name: str, tag: str, value: str, parent: ShownRun | None = None) -> ShownRun:
        """Return the run that has a tag with this value below a parent, created if there is none."""
        run = self.find(tag, value, parent)
        if run is None:
            runs, self._runs = self.runs, None  # if the answer is lost, the store is asked again
            tags = {tag: value} | ({PARENT_TAG: parent.id} if parent else {})
            run = self._create_once(name, tags)
            assert run.identity
            runs[run.identity] = run
            self._runs = runs
        check_place(self.unfenced, self.home, run)
        return run

    def _create_once(self, name: str, tags: dict[str, str]) -> ShownRun:
        """Create a run, and look again for those with its tags: a driver may have been paused in this call.

        Of two drivers that create a run at once, one sees both, and leaves that of the driver that has the study.
        """
        run = ShownRun.of(self.client.create_run(self.experiment, tags=tags, run_name=name))
        condition = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in tags.items())
        alike = map(ShownRun.of, self.client.search_runs([self.experiment], condition))
        twins = [other for other in alike if other.identity == run.identity and other.id != run.id]
        try:
            if twins:
                self.verify()
        except Superseded:
            with suppress(MlflowException):  # the other one may have done it
                self.unfenced.delete_run(run.id)
            raise
        for twin in twins:
            self.client.delete_run(twin.id)
        return run

    def study_run(self) -> ShownRun:
        """Return the run of the study as a whole: what was asked, and what came of it."""
        run = self.open_run(f"study {self.study.name}", STUDY_TAG, "yes")
        if not self.is_watching:
            self.set_status(run, FINISHED)
        return run

    def run_of(self, configuration: Configuration) -> ShownRun:
        """Return a configuration's run with all that never changes, created if there is none."""
        run = self.open_run(self.study.kind.name_of(configuration), KEY_TAG, configuration.key)
        if not run.params:  # new, or what described it failed
            self.describe(run, configuration)
        check_place(self.unfenced, self.home, run)
        return run

    def seed_run(self, configuration: Configuration, seed: Seed) -> ShownRun:
        """Return the run of a configuration's seed, below the configuration's, created if there is none."""
        return self.open_run(f"seed {seed}", SEED_TAG, str(seed), self.run_of(configuration))

    def describe(self, run: ShownRun, configuration: Configuration) -> None:
        """Write what a configuration is: name and description, ancestors, parameters, its fields as a file, its data.

        The name that a user has given stays, and so does the description.
        """
        name = self.study.kind.name_of(configuration)
        tags = ancestor_tags(configuration)
        parent = self._parent_of(configuration)
        tags |= {PARENT_TAG: parent} if parent else {}
        note = run.tags.get(NOTE)
        is_named = note is None or describes(note, run.name)
        is_ours = is_named or describes(note or "", name)
        if is_named and run.name != name:  # before the description, which is what says whose name it is
            self.client.update_run(run.id, name=name)
            run.name = name
        if is_ours:
            tags |= describe_configuration(self.study.name, name, configuration)
        params = main_params(configuration, self.study.kind.varied)
        if params.keys() - run.params.keys():
            self.client.log_dict(run.id, configuration.as_params(), CONFIGURATION_JSON)
            log_dataset(
                self.client, run.id, training_dataset(configuration.spec.task, configuration.recipe), "training"
            )
        texts = {key: json.dumps(v) if isinstance(v, list) else str(v) for key, v in params.items()}
        self.write(run, tags=tags, params=texts)

    def _parent_of(self, configuration: Configuration) -> str | None:
        """Return the run of the configuration that this one's θ is of, in this study or another one of this store."""
        step = configuration.start.lineage[-1] if configuration.start and configuration.start.lineage else {}
        study, key = step.get("study"), step.get("configuration")
        if not (study and key and is_name(study) and IDENTIFIER.fullmatch(key)):
            return None
        if study == self.study.name:
            run = self.find(KEY_TAG, key)
            return run.id if run else None
        records = self.records and StudyRecords(self.records.ledger, study)
        experiment = find_experiment(self.unfenced, study, records)
        condition = f"tags.`{KEY_TAG}` = '{key}'"
        runs = self.client.search_runs([experiment.experiment_id], condition) if experiment else []
        return runs[0].info.run_id if runs else None

    def delete_orphans(self) -> None:
        """Delete runs of seeds whose configuration's run was deleted: it is written anew with runs of its own."""
        there = {run.id for run in self.runs.values()}
        for identity, run in list(self.runs.items()):
            if SEED_TAG in run.tags and run.tags.get(PARENT_TAG) not in there:
                self.client.delete_run(run.id)
                del self.runs[identity]

    def delete_seeds(self, parent: ShownRun, shown: Collection[Seed]) -> None:
        """Delete runs of a configuration's seeds that have nothing but a curve, unless they are to be shown."""
        kept = {str(seed) for seed in shown}
        for identity, run in list(self.runs.items()):
            tag, seed, of = identity
            is_only_curve = OUTCOME_TAG in run.tags and SHOWN_TAG not in run.tags
            if tag == SEED_TAG and of == parent.id and seed not in kept and is_only_curve:
                self.client.delete_run(run.id)
                del self.runs[identity]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Measure the driver's machine for the study's run, if MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING asks for it."""
        if not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
            yield
            return
        import ray  # noqa: F401  brings psutil
        from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

        with answered(self.unfenced.tracking_uri):
            run = self.study_run()
            self.set_status(run, RUNNING)  # of another one MLflow measures nothing
            monitor = SystemMetricsMonitor(run.id, resume_logging=True, tracking_uri=self.unfenced.tracking_uri)
        self.is_watching = True
        monitor.start()
        try:
            yield
        finally:
            self.is_watching = False
            monitor.finish()
            with suppress(Superseded, MlflowException):  # the next driver's `study_run` ends it
                self.set_status(run, FINISHED)

    # What a run has

    def write(
        self,
        run: ShownRun,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        """Write what a run does not have yet. A parameter that it has stays: MLflow lets none be changed."""
        now = int(time.time() * 1000)
        metrics = {name: v for name, v in (metrics or {}).items() if run.metrics.get(name) != v}
        tags = {name: text for name, text in (tags or {}).items() if run.tags.get(name) != text}
        params = {name: text for name, text in (params or {}).items() if name not in run.params}
        if metrics or tags or params:
            self.client.log_batch(
                run.id,
                metrics=[Metric(name, value, now, 0) for name, value in metrics.items()],
                params=[Param(name, text) for name, text in params.items()],
                tags=[RunTag(name, text) for name, text in tags.items()],
            )
        run.metrics |= metrics
        run.tags |= tags
        run.params |= params

    def set_status(self, run: ShownRun, status: str) -> None:
        """Show a run as running, or as ended."""
        if run.status == status:
            return
        if status == RUNNING:
            self.client.update_run(run.id, status=status)
        else:
            self.client.set_terminated(run.id, status=status)
        run.status = status

    def write_steps(self, run: ShownRun, mark: str, steps: Mapping[int, Mapping[str, float]]) -> None:
        """Write metrics by training step, those of a step together and once: MLflow keeps every value of a step.

        mark: the metric whose values say which steps are there. All have the time at which the run began: what
        a driver that was paused in this call writes again is the same to MLflow, which drops it.
        """
        start = run.info.start_time
        written = self._steps.pop(run.id, None)  # if an answer is lost, the store is asked again
        if written is None:
            written = {metric.step for metric in self.client.get_metric_history(run.id, mark)}
        new = [step for step in steps if step not in written]
        for i in range(0, len(new), STEPS_AT_ONCE):
            batch = new[i : i + STEPS_AT_ONCE]
            metrics = [Metric(name, v, start, step) for step in batch for name, v in steps[step].items()]
            self.client.log_batch(run.id, metrics=metrics)
        self._steps[run.id] = written.union(new)

    def write_folder(self, run: ShownRun, source: Path, name: str | None = None) -> None:
        """Write the files of a folder as artifacts of a run, below `name` if there is one."""
        self.client.log_artifacts(run.id, str(source), name)

    def check_place(self, location: str) -> None:
        """Raise Failure for a place of artifacts that is none of the store's."""
        check_uri(self.unfenced, self.home, location)
