"""Writing MLflow: one experiment per study, one run per configuration, a child run for each of its best seeds.

A run is looked up by its tag before it is created, so writing twice changes nothing. Only who has the study's lease
writes; search/analysis/projection.py says what is written when.
"""

import getpass
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
from mlflow.exceptions import MlflowException

from model import Spec, verify
from model.tasks import ADDITION
from model.verdict import VERDICT_FILE, is_right
from search.markup import escape
from search.stats.counting import COUNTED, FIRST_SEEDS, PooledRate, Row, final_metrics
from search.store.home import IDENTIFIER, Home, pull_command
from search.store.lease import Superseded
from search.store.recorded_seed import RecordedSeed
from search.study.naming import Names
from search.study.schema import Study, is_name
from search.study.start import describe_step, ties_beyond_parent
from search.study.trial import Configuration
from search.tracking.models import (
    PROVED_TAG,
    Facts,
    adderboard_dataset,
    log_dataset,
    log_model,
    register,
    training_dataset,
    word,
)
from search.tracking.tracking import (
    ADDERBOARD,
    ANCESTOR_TAGS,
    CHECKPOINT,
    CONFIGURATION_JSON,
    FINISHED,
    KEY_TAG,
    PARENT_TAG,
    RIGHT,
    SEED_TAG,
    SHOWN_TAG,
    STUDY_JSON,
    STUDY_TAG,
    TIED_TAG,
    FencedClient,
    answered,
    check_place,
    check_uri,
    find_experiment,
    open_experiment,
)
from trainer import MEASURES, Result, Seed
from trainer.recipe.screen import PROBE

RUNNING = "RUNNING"
MAY_BE_ZERO = {
    *(o.value for o in COUNTED if o.value != "grokked"), "censored", "spared", "spared_grokked", "screen_spared",
    "screen_spared_grokked", "stopped", "wrongly", "screened_wrongly", "confirmation_grokked", "confirmation_seeds",
    "confirmation_given_up", "confirmation_wrongly", "proofs_claimed",
}  # fmt: skip
"""Counts that are left out where they are 0 from the start."""
NOTE = "mlflow.note.content"
LONGEST_TAG = 4_000  # characters
MEANING = (
    "`first_seeds.*`: over steps, of its first seeds alone. `final.*`: of all its seeds, `final.confirmation_*` of "
    "those that confirm it; up to `wrongly` of those that rules ended might have grokked."
)
MOST_RUNS = 50_000  # of an experiment: MLflow's limit for one search
STEPS_AT_ONCE = 50  # of up to twenty metrics, probes among them: MLflow's limit for one call is 1,000


def readings(result: Result, spec: Spec) -> list[dict[str, float]]:
    """Return a seed's measures and probes by name, a row an evaluation."""
    names = [*MEASURES, *(f"{PROBE}{name}" for name in spec.probes())]
    probes = result.probes_ER.tolist() or [[]] * len(result.curve_EM)
    rows = zip(result.curve_EM.tolist(), probes, strict=True)
    return [dict(zip(names, [*row, *more], strict=False)) for row, more in rows]


class Tracker:
    """One study's experiment."""

    def __init__(
        self,
        client: MlflowClient,
        home: Home,
        study: Study,
        verify: Callable[[], object] = lambda: None,
    ):
        """Open the experiment, or create it.

        verify: raises Superseded once another driver has the study; called before anything is written.
        """
        self.unfenced, self.verify, self.home, self.study = client, verify, home, study
        self.client, self.names = FencedClient(client, verify), Names(study)
        self.is_watching = False
        self.runs: dict[str, str] = {}
        """Runs of configurations that this driver has opened, by key."""
        self.earlier: dict[str, str] | None = None
        """Runs of configurations that an earlier driver left, once the store was asked."""
        self.open: dict[str, bool] = {}
        """By run: True if it counts as running, as far as is known."""
        self.steps: dict[str, tuple[int, set[int] | None]] = {}
        """By run: when it began, in ms since 1970, and the steps whose metrics it has."""
        self.counts: dict[str, dict[str, float]] = {}
        """By run: the counts that it has, by name."""
        with answered(client.tracking_uri):
            existing = find_experiment(client, study.name)
            about = {NOTE: escape(study.about)} if study.about else {}
            self.experiment = open_experiment(self.client, home, study.name, existing, about)

    # Runs

    def run_of(self, configuration: Configuration) -> str:
        """Return the configuration's run, created with all its parameters if there is none."""
        if configuration.key not in self.runs:
            run_id = self.earlier_run(configuration.key)
            run = self.client.get_run(run_id) if run_id else self._create_run(configuration)
            check_place(self.client, self.home, run)
            self._describe(run, configuration)
            self.runs[configuration.key] = run.info.run_id
            self.counts[run.info.run_id] = {
                name.removeprefix("final."): value
                for name, value in run.data.metrics.items()
                if name.startswith("final.")
            }
            self.open[run.info.run_id] = run.info.status == RUNNING
        return self.runs[configuration.key]

    def _describe(self, run: Run, configuration: Configuration) -> None:
        """Write what matters of a configuration as parameters, all of it as an artifact, and its data, once."""
        params = configuration.main_params(self.names.searched).items()
        missing = {k: v for k, v in params if k not in run.data.params}  # MLflow lets nothing be changed
        if missing:
            texts = {k: json.dumps(v) if isinstance(v, list) else str(v) for k, v in missing.items()}
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, CONFIGURATION_JSON).write_text(
                    json.dumps(configuration.as_params(), indent=2), encoding="utf-8"
                )
                self.log_folder(run.info.run_id, Path(folder))
            log_dataset(
                self.client,
                run.info.run_id,
                training_dataset(configuration.spec.task, configuration.recipe),
                "training",
            )
            self.client.log_batch(run.info.run_id, params=[Param(k, text) for k, text in texts.items()])

    def earlier_run(self, key: str) -> str | None:
        """Return the run of a configuration that was there when the store was asked: nobody else makes any."""
        if self.earlier is None:
            self.earlier = {r.data.tags[KEY_TAG]: r.info.run_id for r in self._configuration_runs()}
        return self.earlier.get(key)

    def _configuration_runs(self) -> list[Run]:
        runs = self.client.search_runs([self.experiment], max_results=MOST_RUNS)
        return [r for r in runs if KEY_TAG in r.data.tags]

    def rename(self, configurations: Mapping[str, Configuration]) -> None:
        """Rename runs that have the name of a study that has since been extended by a field, unless a user named them.

        configurations: of the study, by key.
        """
        for run in self._configuration_runs():
            configuration, old = configurations.get(run.data.tags[KEY_TAG]), run.info.run_name
            if configuration is None or old == self.names[configuration]:
                continue
            if run.data.tags.get(NOTE, "").startswith((f"**{escape(old)}**", f"**{old}**")):
                self.client.update_run(run.info.run_id, name=self.names[configuration])
                self.client.set_tag(run.info.run_id, NOTE, self._about(configuration)[NOTE])
                self._describe(run, configuration)

    def _create_run(self, configuration: Configuration) -> Run:
        """Create a configuration's run. If the answer is lost, the store is asked again next time."""
        tags = {
            KEY_TAG: configuration.key,
            **self._about(configuration),
            **self._ancestor_tags(configuration),
        }
        earlier, self.earlier = self.earlier, None
        run = self._create_once(self.names[configuration], tags, f"tags.`{KEY_TAG}` = '{configuration.key}'")
        self.earlier = earlier
        return run

    def _about(self, configuration: Configuration) -> dict[str, str]:
        """Return MLflow's own tags of a run: its source, its user, and a description with the commands for it."""
        study = self.study.name
        params, whole = configuration.spec.params, f"whole model and recipe in `{CONFIGURATION_JSON}`"
        lines = [f"**{escape(self.names[configuration])}**, {params} parameters; {whole}", ""]
        lines += [
            f"    {pull_command(study, configuration.key)}",
            f"    adder-search report {study} -o {study}.html",
            "",
            MEANING,
        ]
        tags = {NOTE: "\n".join(lines), "mlflow.source.type": "LOCAL"}
        tags["mlflow.source.name"] = f"adder-search run {study}"
        with suppress(OSError, KeyError):  # a container's user may have no name
            tags["mlflow.user"] = getpass.getuser()
        return tags

    def _create_once(self, name: str, tags: Mapping[str, str], condition: str, parent: str | None = None) -> Run:
        """Create a run, and look again for those of the condition: a driver may have been paused in this call.

        Of two drivers that create a run at once, one sees both, and leaves that of the driver that has the study.
        """
        run = self.client.create_run(self.experiment, tags=dict(tags), run_name=name)
        found = self.client.search_runs([self.experiment], condition)
        twins = [r for r in found if r.data.tags.get(PARENT_TAG) == parent and r.info.run_id != run.info.run_id]
        try:
            if twins:
                self.verify()
        except Superseded:
            with suppress(MlflowException):  # the other one may have done it
                self.unfenced.delete_run(run.info.run_id)
            raise
        for twin in twins:
            self.client.delete_run(twin.info.run_id)
        return run

    def _ancestor_tags(self, configuration: Configuration) -> dict[str, str]:
        """Return tags of what led to the θ that a configuration starts from, and of its parent's run."""
        steps = configuration.start.lineage if configuration.start else ()
        if not steps:
            return {}
        tags = dict(zip(ANCESTOR_TAGS, map(describe_step, reversed(steps)), strict=False))
        run = self._parent_run(steps[-1].get("study"), steps[-1].get("configuration"))
        ties = ", ".join(ties_beyond_parent(steps[-1].get("spec"), configuration.spec))
        return tags | ({PARENT_TAG: run} if run else {}) | ({TIED_TAG: ties[:LONGEST_TAG]} if ties else {})

    def _parent_run(self, study: str | None, key: str | None) -> str | None:
        """Return the run of a configuration of this study or of another one, if this store has it."""
        if not (study and key and is_name(study) and IDENTIFIER.fullmatch(key)):
            return None
        if study == self.study.name:
            return self.runs.get(key) or self.earlier_run(key)
        experiment = find_experiment(self.unfenced, study)
        condition = f"tags.`{KEY_TAG}` = '{key}'"
        runs = self.client.search_runs([experiment.experiment_id], condition) if experiment else []
        return runs[0].info.run_id if runs else None

    def _upsert_run(self, name: str, tag: str, value: str, parent: str | None = None) -> Run:
        """Return the run that has a tag with this value below a parent, created if there is none."""
        condition = f"tags.`{tag}` = '{value}'" + (f" and tags.`{PARENT_TAG}` = '{parent}'" if parent else "")
        runs = self.client.search_runs([self.experiment], condition)
        run = next((r for r in runs if r.data.tags.get(PARENT_TAG) == parent), None)
        if run is None:
            tags = {tag: value} | ({PARENT_TAG: parent} if parent else {})
            run = self._create_once(name, tags, condition, parent)
        check_place(self.client, self.home, run)
        return run

    def study_run(self) -> str:
        """Return the run of the study as a whole: what was asked, and what came of it."""
        run = self._upsert_run(f"study {self.study.name}", STUDY_TAG, "yes")
        if run.info.status != FINISHED and not self.is_watching:
            self.client.set_terminated(run.info.run_id)
        return str(run.info.run_id)

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
            self.client.update_run(run, status=RUNNING)  # of another one MLflow measures nothing
            monitor = SystemMetricsMonitor(run, resume_logging=True, tracking_uri=self.unfenced.tracking_uri)
        self.is_watching = True
        monitor.start()
        try:
            yield
        finally:
            self.is_watching = False
            monitor.finish()
            with suppress(Superseded, MlflowException):  # the next driver's `study_run` ends it
                self.client.set_terminated(run)

    def list_shown(self) -> dict[str, tuple[str, str]]:
        """Return status of configurations' runs and what they show of the ledger (SHOWN_TAG), by key."""
        runs = self._configuration_runs()
        self.earlier = {r.data.tags[KEY_TAG]: r.info.run_id for r in runs}
        return {r.data.tags[KEY_TAG]: (r.info.status, r.data.tags.get(SHOWN_TAG, "")) for r in runs}

    def delete_orphans(self) -> None:
        """Delete runs of seeds whose configuration's run was deleted: it is written anew with runs of its own."""
        runs = self.client.search_runs([self.experiment], max_results=MOST_RUNS)
        there = {r.info.run_id for r in runs}
        for run in runs:
            if SEED_TAG in run.data.tags and run.data.tags.get(PARENT_TAG) not in there:
                self.client.delete_run(run.info.run_id)

    def reopen(self, configuration: Configuration) -> None:
        """Show a configuration's run as running."""
        run = self.run_of(configuration)
        if not self.open[run]:
            self.client.update_run(run, status=RUNNING)
            self.open[run] = True

    def end(self, configuration: Configuration, status: str, shown: str) -> None:
        """Show a configuration's run as ended. shown: what it shows of the ledger from now on."""
        run = self.run_of(configuration)
        self.open[run] = False
        self.client.set_terminated(run, status=status)
        self.client.set_tag(run, SHOWN_TAG, shown)

    # Metrics

    def log_steps(self, configuration: Configuration, steps: Mapping[int, dict[str, float]]) -> None:
        """Write metrics of a configuration by training step. Steps that are there stay as they are."""
        self._log_once(self.run_of(configuration), f"{FIRST_SEEDS}.grok_rate", steps)

    def _log_once(self, run: str, mark: str, steps: Mapping[int, dict[str, float]]) -> None:
        """Write metrics by step, those of a step together and once: MLflow keeps every value of a step.

        `mark`: the metric whose values say which steps are there. All have the time at which the run began: what
        a driver that was paused in this call writes again is the same to MLflow, which drops it.
        """
        # put back when all is written: else the server is asked
        start, written = self.steps.pop(run, (0, None))
        if written is None:
            start = self.client.get_run(run).info.start_time
            written = {m.step for m in self.client.get_metric_history(run, mark)}
        new = [step for step in steps if step not in written]
        for i in range(0, len(new), STEPS_AT_ONCE):
            batch = new[i : i + STEPS_AT_ONCE]
            metrics = [Metric(k, v, start, step) for step in batch for k, v in steps[step].items()]
            self.client.log_batch(run, metrics=metrics)
        self.steps[run] = start, written.union(new)

    def log_counts(
        self, configuration: Configuration, rows: Sequence[Row], more: Mapping[str, float] | None = None
    ) -> None:
        """Write what a configuration's rows come to so far, as `final.*` metrics."""
        run, now = self.run_of(configuration), int(time.time() * 1000)
        values = final_metrics(rows, self.study.until_rule) | dict(more or {})
        written = self.counts[run]
        kept = {name: v for name, v in values.items() if v or name not in MAY_BE_ZERO or name in written}
        new = {name: value for name, value in kept.items() if written.get(name) != value}
        self.client.log_batch(run, metrics=[Metric(f"final.{name}", value, now, 0) for name, value in new.items()])
        written |= new

    def log_role(
        self, run: str, params: Mapping[str, str], metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> None:
        """Write what a run is in the study's table. Parameters that it has stay: MLflow lets nothing be changed."""
        recorded, now = self.client.get_run(run).data.params, int(time.time() * 1000)
        self.client.log_batch(
            run,
            metrics=[Metric(name, value, now, 0) for name, value in metrics.items()],
            params=[Param(name, text) for name, text in params.items() if name not in recorded],
            tags=[RunTag(name, text) for name, text in tags.items()],
        )

    # Artifacts, and the runs of seeds

    def log_folder(self, run: str, source: Path, name: str = "") -> None:
        """Write the files of a folder as artifacts of a run below `name`."""
        self.client.log_artifacts(run, str(source), name or None)

    def log_checkpoint(self, run: str, name: str, seed: RecordedSeed) -> None:
        with tempfile.TemporaryDirectory() as folder:
            seed.checkpoint().save(Path(folder) / name)
            self.log_folder(run, Path(folder) / name, name)

    def log_study(self) -> None:
        """Write the study, as it is now, to its own run, to which the experiment's description leads."""
        run, name, about = self.study_run(), self.study.name, escape(self.study.about)
        self.client.log_dict(run, json.loads(self.study.model_dump_json(by_alias=True)), STUDY_JSON)
        note = f"{about or name}\n\n    adder-search report {name} -o {name}.html"
        self.client.set_tag(run, NOTE, note)
        is_ours = self.client.get_experiment(self.experiment).tags.get(NOTE, about) in (about, self.study.about)
        if is_ours:  # or a user edited it
            link = f"[pictures and files](#/experiments/{self.experiment}/runs/{run})"
            self.client.set_experiment_tag(self.experiment, NOTE, f"{about or name}: {link}")

    def end_study(self, rate: PooledRate) -> None:
        """Write what a study came to, to its own run, which ends now."""
        run, now = self.study_run(), int(time.time() * 1000)
        counts = {"configurations": rate.configurations, "seeds": rate.seeds, "runs": rate.n}
        counts["grokked"] = rate.grokked
        written = self.client.get_run(run).data.metrics  # by a driver that died before the end
        new = [Metric(name, n, now, 0) for name, n in counts.items() if written.get(name) != n]
        self.client.log_batch(run, metrics=new)
        if not self.is_watching:
            self.client.set_terminated(run, end_time=now)

    def log_seed(self, seed: RecordedSeed) -> int | None:
        """Write the run of one grokked seed: curve as metrics, checkpoint as artifacts, answers decoded.

        Returns how many problems of the task's verification are right; None if the run was there.
        """
        result, spec, eval_every = seed.result, seed.configuration.spec, seed.configuration.recipe.eval_every
        name = str(result.pair.seed)
        seed_run = self._upsert_run(f"seed {name}", SEED_TAG, name, self.run_of(seed.configuration))
        if seed_run.info.status == FINISHED:
            return None
        run = seed_run.info.run_id
        curve = enumerate(readings(result, spec), start=1)
        self._log_once(run, MEASURES[0], {i * eval_every: row for i, row in curve})
        params = {"seed": name, "grok_step": result.grok_step, "held": result.held, "params": spec.params}
        self.client.log_batch(run, params=[Param(k, str(v)) for k, v in params.items()])
        self.log_checkpoint(run, CHECKPOINT, seed)
        checkpoint = seed.checkpoint()
        decoded = verify(spec, result.theta_P)
        is_adder = spec.task == ADDITION  # datasets and logged models are theirs
        metric = ADDERBOARD if is_adder else RIGHT
        if metric not in seed_run.data.metrics:  # of a driver that died before the end
            if is_adder:
                log_dataset(self.client, run, adderboard_dataset())
            self.client.log_metric(run, metric, decoded.correct, seed_run.info.start_time)
        if is_adder:
            facts = Facts(decoded.correct, decoded.margin)
            log_model(self.client, self.experiment, run, checkpoint, facts, self._check_place)
        self.client.set_terminated(run)
        return int(decoded.correct)

    def log_proof(self, configuration: Configuration, seed: Seed, proof: Mapping[str, object]) -> None:
        """Write a verdict on all pairs to a seed's run, if it has one: beside its checkpoint, as metric and as tag."""
        parent = self.run_of(configuration)
        condition = f"tags.`{SEED_TAG}` = '{seed}' and tags.`{PARENT_TAG}` = '{parent}'"
        for run in self.client.search_runs([self.experiment], condition):
            proved = is_right(proof)
            if proved is None or run.data.tags.get(PROVED_TAG) == word(proved):
                continue
            self.client.log_dict(run.info.run_id, dict(proof), f"{CHECKPOINT}/{VERDICT_FILE}")
            self.client.log_metric(run.info.run_id, "proved", float(proved), run.info.start_time)
            self.client.set_tag(run.info.run_id, PROVED_TAG, word(proved))

    def register(self, seed: RecordedSeed, correct: int, proved: bool | None, aliases: Sequence[str]) -> None:
        """Make a seed's checkpoint a version of the registered model that has the study's name."""
        name, checkpoint = str(seed.result.pair.seed), seed.checkpoint()
        run = self._upsert_run(f"seed {name}", SEED_TAG, name, self.run_of(seed.configuration)).info.run_id
        facts = Facts(correct, proved=proved)
        place = log_model(self.client, self.experiment, run, checkpoint, facts, self._check_place)
        about = escape(f"seed {name} of {self.names[seed.configuration]}, study {self.study.name}")
        register(self.client, self.study.name, place, run, checkpoint, facts, aliases, about)

    def _check_place(self, location: str) -> None:
        check_uri(self.unfenced, self.home, location)
