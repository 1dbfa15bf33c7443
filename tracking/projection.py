"""What MLflow shows, and when: a function of the ledger. Nothing in it decides, and writing twice changes nothing.

One thing goes back into the ledger: how many answers of the best seeds are right. They are decoded here as the thread
has the time; those that no mirror has decoded, the driver decodes at the end.

Metrics, parameters and tags are declared in tracking/shown.py; here are pictures, checkpoints and pages.
"""

import json
import tempfile
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Protocol

from model.verdict import VERDICT_FILE
from reports.markup import escape
from search.errors import UserError
from search.run.verification import seeds_to_decode, verify_seed
from search.stats.counting import WORDS, Counts, PooledRate, by_phase, group_by, rank, state_of
from search.stats.metrics import MAY_BE_ZERO, count_checks, final_metrics
from search.stats.record import ENOUGH, SeedRecord
from search.store.curves import curve_table
from search.store.recorded_seed import RecordedSeed
from search.store.study_records import StudyRecords
from search.study.schema import Study
from search.study.start import digest_of
from search.study.trial import Configuration
from tracking import doors
from tracking.shown import (
    FINAL,
    FIRST_SEEDS,
    NOTE,
    PAGE_TAG,
    PROGRAM_TAG,
    PROVED_TAG,
    ROLE_METRICS,
    ROLE_TAGS,
    TABLE,
    readings,
    step_metrics,
    word,
)
from tracking.store import (
    ADDERBOARD,
    BEST,
    BEST_TAG,
    CHECKPOINT,
    CURVES_PNG,
    FINISHED,
    KEY_TAG,
    KILLED,
    OUTCOME_TAG,
    RIGHT,
    RUNNING,
    SEED_TAG,
    SHOWN_TAG,
    STUDY_JSON,
    answered,
)
from tracking.tracker import ShownRun, Tracker
from tracking.views import write_views
from trainer import MEASURES, Outcome, Result, Seed

ALL_DRAWN = 32
"""Up to this many configurations of a study, each has its picture, and runs of its first seeds; beyond, those that
grokked have pictures. As many that train at once have their curves written meanwhile.
"""
LIVE_S = 30.0
"""Seconds between two writings of the curves of seeds that train."""
MOST_DRAWN = 256
"""Seeds of a configuration whose curves are drawn."""
TABLES = {"md": "table.md", "csv": "table.csv", "json": "table.json"}

StudyWriter = Callable[[StudyRecords, Tracker], None]


class Jobs(Protocol):
    """Calls to MLflow that are done in order (tracking/outbox.py)."""

    def put(self, call: Callable[..., Any], *args: Any, key: Hashable = None) -> None:
        """Have a job done after those that wait. One of them with the same key may be dropped."""


class Projection:
    """What MLflow shows of a study, by its outbox. `run` has it written behind its back, `sync` at once.

    outbox: does what is put into it, later or at once. pages: writes the pages of a study that has ended.
    """

    def __init__(self, records: StudyRecords, tracker: Tracker, outbox: Jobs, pages: StudyWriter):
        self.records, self.tracker, self.outbox, self.pages = records, tracker, outbox, pages
        self.counted: dict[str, tuple[int, int]] = {}
        """By configuration: number of rows when it was counted, and when it was last heard of."""
        self.live_due = time.monotonic() + LIVE_S

    def note_training(self, configuration: Configuration) -> None:
        """Show a configuration's run as running."""
        self.outbox.put(self._show_training, configuration, key=configuration.key)

    def _show_training(self, configuration: Configuration) -> None:
        self.tracker.set_status(self.tracker.run_of(configuration), RUNNING)

    def note_counts(self, configuration: Configuration, rows: Collection[SeedRecord]) -> None:
        """Have the counts of a configuration written if it has an eighth more rows than when it was counted.

        To count all of them after each report would take a time that grows as their square. The first report after
        a count waits for the second, or for the configuration's conclusion. rows: the configuration's, as a plan has
        them.
        """
        key = configuration.key
        counted, seen = self.counted.get(key, (0, 0))
        has_waited, is_worth_it = seen > counted, 8 * (len(rows) - counted) >= counted
        if has_waited and is_worth_it:
            counted = len(rows)
            # the driver goes on with its own rows
            self.outbox.put(self._write_counts, configuration, list(rows), key=(key, "counts"))
        self.counted[key] = counted, len(rows)

    def _write_counts(self, configuration: Configuration, rows: Sequence[SeedRecord]) -> None:
        write_counts(self.tracker, self.tracker.run_of(configuration), rows)

    def note_curves(self, training: Callable[[], Iterable[Configuration]]) -> None:
        """Have the curves of seeds that train written, as far as they are saved, if it is time.

        training: returns the configurations of these seeds.
        """
        if time.monotonic() < self.live_due or not self.tracker.study.kind.is_compared:
            return
        self.live_due = time.monotonic() + LIVE_S
        for configuration in islice(training(), ALL_DRAWN):
            self.outbox.put(self._write_curves, configuration, key=(configuration.key, "curves"))

    def _write_curves(self, configuration: Configuration) -> None:
        rows = self.records.list_seeds(configuration.key)
        write_curves(self.records, self.tracker, configuration, rows)

    def note_configuration(self, configuration: Configuration, is_done: bool) -> None:
        """Have all written that is known of a configuration. is_done: no more of it is planned."""
        self._note(configuration, FINISHED if is_done else KILLED)

    def _note(self, configuration: Configuration, status: str) -> None:
        self.outbox.put(write_configuration, self.records, self.tracker, configuration, status, key=configuration.key)

    def note_stale(self, rows: Sequence[SeedRecord]) -> None:
        """Have the configurations written whose runs do not show what the ledger has, as after a driver's death.

        rows: the study's.
        """
        with answered(self.tracker.unfenced.tracking_uri):
            runs = {run.tags[KEY_TAG]: run for run in self.tracker.runs.values() if KEY_TAG in run.tags}
        of_key = group_by(rows, "configuration")
        written = {key for key, some in of_key.items() if key in runs and is_shown(runs[key], some)}
        self._note_all(of_key, written)
        for key, run in runs.items():
            if key not in of_key and run.status == RUNNING:  # nothing of it was begun
                self.outbox.put(self.tracker.set_status, run, KILLED)

    def note_everything(self, rows: Sequence[SeedRecord]) -> None:
        """Have all written, whatever MLflow has. rows: the study's."""
        self._note_all(group_by(rows, "configuration"))
        if rows:
            self.outbox.put(self._write_study)

    def _note_all(self, rows: Mapping[str, Sequence[SeedRecord]], written: Collection[str] = ()) -> None:
        """Have the study written and its configurations, but for those that are. rows: by configuration."""
        tracker, configurations = self.tracker, self.records.list_configurations()
        self.outbox.put(tracker.delete_orphans)
        self.outbox.put(describe_study, tracker)
        self.outbox.put(describe_again, tracker, configurations)
        self.outbox.put(write_views, tracker.client, tracker.study, tracker.experiment)
        for key in rows.keys() - written:
            self._note(configurations[key], status_of(rows[key]))

    def note_study(self) -> None:
        """Have the pages of the whole study written, unless they show what the ledger has."""
        self.outbox.put(self._write_study, True)

    def _write_study(self, only_stale: bool = False) -> None:
        tracker, rows = self.tracker, self.records.list_seeds()
        run, shown = tracker.study_run(), summary_of(rows)
        is_written = run.tags.get(SHOWN_TAG) == shown
        if not any(row.is_final for row in rows) or (only_stale and is_written):
            return
        self.pages(self.records, tracker)
        searched, _ = by_phase(rows)
        rate = PooledRate.of(searched)
        counts = {"configurations": rate.configurations, "seeds": rate.seeds, "runs": rate.n, "grokked": rate.grokked}
        tracker.write(run, metrics=counts)
        if not tracker.is_watching:
            tracker.client.set_terminated(run.id)  # which is when it ended
        tracker.write(run, tags={SHOWN_TAG: shown})


def pages_of(study: Study) -> StudyWriter:
    """Return what writes the pages of a study that has ended."""
    return write_study if study.kind.is_compared else study.kind.write_pages


def status_of(rows: Sequence[SeedRecord]) -> str:
    """Return the status of a configuration's run that nobody trains, by its seeds: are any left to train?"""
    is_whole = all(row.is_final or row.reason == ENOUGH for row in rows)
    return FINISHED if is_whole else KILLED


def summary_of(rows: Sequence[SeedRecord]) -> str:
    """Return the seeds and verdicts that a configuration has; while its run has this tag, it need not be written."""
    ended = sum(row.is_final for row in rows)
    proofs = sorted((row.key, row.proved, row.proof.get("program_sha256")) for row in rows if row.proof)
    which = f" ({digest_of(proofs)})" if proofs else ""  # one may have taken another's place
    return f"{ended} of {len(rows)} seeds, {len(proofs)} proofs{which}"


def is_shown(run: ShownRun, rows: Sequence[SeedRecord]) -> bool:
    """True if a configuration's run shows all that the ledger has of it. rows: the configuration's."""
    return run.status == status_of(rows) and run.tags.get(SHOWN_TAG) == summary_of(rows)


# The study, and its configurations


def describe_study(tracker: Tracker) -> None:
    """Write the study, as it is now, to its own run, whose address `ui` prints."""
    study, run = tracker.study, tracker.study_run()
    tracker.client.log_dict(run.id, json.loads(study.model_dump_json(by_alias=True)), STUDY_JSON)
    title, name = escape(study.about or study.name), study.name
    tracker.write(run, tags={NOTE: f"{title}\n\n    adder-search report {name} -o {name}.html"})
    if tracker.client.get_experiment(tracker.experiment).tags.get(PAGE_TAG) != run.id:
        tracker.client.set_experiment_tag(tracker.experiment, PAGE_TAG, run.id)


def describe_again(tracker: Tracker, configurations: Mapping[str, Configuration]) -> None:
    """Describe runs that a driver left half-made, or that were named before the study was extended by a field.

    configurations: the study's, by key.
    """
    for key, configuration in configurations.items():
        run = tracker.find(KEY_TAG, key)
        if run and not (run.params and run.name == tracker.study.kind.name_of(configuration)):
            tracker.describe(run, configuration)


def write_counts(
    tracker: Tracker, run: ShownRun, rows: Sequence[SeedRecord], checks: Mapping[str, float] | None = None
) -> None:
    """Write what a configuration's rows come to so far. A count of 0 is left out, unless it was something else.

    checks: what was checked of them (`count_checks`), once they have ended.
    """
    metrics = final_metrics(rows, tracker.study.until_rule) | dict(checks or {})
    for_mlflow = {f"{FINAL}{name}": value for name, value in metrics.items()}
    absent = {f"{FINAL}{name}" for name in MAY_BE_ZERO} - run.metrics.keys()
    tracker.write(run, {name: value for name, value in for_mlflow.items() if value or name not in absent})


def write_configuration(records: StudyRecords, tracker: Tracker, configuration: Configuration, status: str) -> None:
    """Write a configuration's counts, picture, best checkpoint and child runs. status: of its run from now on."""
    run, rows = tracker.run_of(configuration), records.list_seeds(configuration.key)
    if final := sorted((row for row in rows if row.is_final), key=rank):
        _write_best(records, tracker, configuration, final)
    if tracker.study.kind.is_compared:
        write_curves(records, tracker, configuration, rows)
        for row in seeds_to_decode(final):
            write_seed(records, tracker, row)
    rows = records.list_seeds(configuration.key)  # of which some are decoded now
    write_counts(tracker, run, rows, count_checks(rows, configuration.spec.task.problems))
    for row in rows:
        if row.proof:
            _write_proof(tracker, run, row)
    records.update_run(configuration.key, tracker.experiment, run.id)
    tracker.set_status(run, status)
    tracker.write(run, tags={SHOWN_TAG: summary_of(rows)})


def _write_best(
    records: StudyRecords, tracker: Tracker, configuration: Configuration, final: Sequence[SeedRecord]
) -> None:
    """Write picture and best checkpoint. final: rows of the ended seeds, the best first."""
    run, study = tracker.run_of(configuration), tracker.study
    grokked = final[0].has_grokked
    if not study.kind.is_compared:  # of thousands of proposals those that matter are written at the end
        if grokked:
            _write_checkpoint(tracker, run, BEST, records.seed(final[0]))
        return
    if grokked or study.planned <= ALL_DRAWN:
        _write_picture(records, tracker, configuration, final)
    best = records.seed(final[0])
    _write_checkpoint(tracker, run, BEST, best)
    tracker.write(run, tags={BEST_TAG: str(best.result.pair.seed)})


def _write_checkpoint(tracker: Tracker, run: ShownRun, name: str, seed: RecordedSeed) -> None:
    with tempfile.TemporaryDirectory() as folder:
        seed.checkpoint().save(Path(folder) / name)
        tracker.write_folder(run, Path(folder) / name, name)


# Seeds, while they train and when they have ended


def write_curves(
    records: StudyRecords, tracker: Tracker, configuration: Configuration, rows: Sequence[SeedRecord]
) -> None:
    """Write the curves of a configuration's first seeds as far as they are recorded, and runs of some seeds.

    rows: the configuration's. Runs have the best seeds that grokked and, where a study has few configurations, the
    first seeds and the best one. What is written while seeds train is what is written in the end.
    """
    study, run = tracker.study, tracker.run_of(configuration)
    final = sorted((row for row in rows if row.is_final), key=rank)
    watched = set(study.watched)
    shown = {row.seed for row in seeds_to_decode(final)}
    if study.planned <= ALL_DRAWN:
        shown |= watched | {row.seed for row in final[:1]}
    ended = [row for row in final if row.seed in shown | watched]
    result_of = {seed.result.pair.seed: seed.result for seed in records.seeds(ended)}
    result_of |= records.results_so_far(configuration, watched - result_of.keys())
    row_of = {row.seed: row for row in rows}
    tracker.delete_seeds(run, shown)
    for seed in sorted(shown & result_of.keys() & row_of.keys()):
        _write_seed_curve(tracker, configuration, row_of[seed], result_of[seed])
    _write_first_seeds(tracker, configuration, row_of, {s: r for s, r in result_of.items() if s in watched})


def _write_seed_curve(tracker: Tracker, configuration: Configuration, row: SeedRecord, result: Result) -> None:
    """Write the run of a seed: its curve, and what became of it."""
    run = tracker.seed_run(configuration, row.seed)
    curve, every = readings(result, configuration.spec), configuration.recipe.eval_every
    tracker.write_steps(run, MEASURES[0], {i * every: values for i, values in enumerate(curve, start=1)})
    tracker.write(run, tags={OUTCOME_TAG: WORDS[state_of(row)]}, params={"seed": str(row.seed)})
    tracker.set_status(run, RUNNING if row.outcome == Outcome.RUNNING else status_of([row]))


def write_seed(records: StudyRecords, tracker: Tracker, row: SeedRecord) -> None:
    """Complete the run of a grokked seed: its checkpoint and decoded additions, which the ledger gets too."""
    seed = records.seed(row)
    result, configuration = seed.result, seed.configuration
    run = tracker.seed_run(configuration, result.pair.seed)
    is_whole = run.status == FINISHED and run.tags.get(SHOWN_TAG) == CHECKPOINT
    if is_whole and row.verified is not None:
        return
    decoded = verify_seed(records, row, seed)
    if is_whole:
        return
    params = {
        "grok_step": str(result.grok_step),
        "held": str(result.held),
        "params": str(configuration.spec.params),
    }
    tracker.write(run, {ADDERBOARD if configuration.spec.adds else RIGHT: decoded.correct}, params=params)
    _write_checkpoint(tracker, run, CHECKPOINT, seed)
    for models in doors.models():
        models.write_seed(tracker, run, seed, decoded)
    tracker.write(run, tags={SHOWN_TAG: CHECKPOINT})
    tracker.set_status(run, FINISHED)


def _write_proof(tracker: Tracker, parent: ShownRun, row: SeedRecord) -> None:
    """Write a verdict on all pairs to a seed's run, if it has one: beside its checkpoint, as metric and as tags.

    One that decides nothing is written where it takes the place of another.
    """
    run, proof = tracker.find(SEED_TAG, str(row.seed), parent), row.proof or {}
    if run is None or (row.proved is None and PROVED_TAG not in run.tags):
        return
    tags = {PROVED_TAG: word(row.proved), PROGRAM_TAG: proof.get("program_sha256", "unknown")}
    if not tags.items() <= run.tags.items():
        tracker.client.log_dict(run.id, dict(proof), f"{CHECKPOINT}/{VERDICT_FILE}")
        tracker.write(run, {"proved": float(row.proved is True)}, tags)


def _write_picture(
    records: StudyRecords, tracker: Tracker, configuration: Configuration, final: Sequence[SeedRecord]
) -> None:
    from reports.plots import curves_figure, png  # matplotlib takes longer to load than the rest

    rows = select_drawn(final)
    curves = curve_table(configuration, [seed.result for seed in records.seeds(rows)])
    grokked = [(r.init_seed, r.data_seed) for r in rows if r.has_grokked]
    some = f" (drawn: {len(rows):,})" if len(rows) < len(final) else ""
    name = f"study {tracker.study.name}, {tracker.study.kind.name_of(configuration)}"
    winners = sum(row.has_grokked for row in final)
    title = f"{name}: {winners:,} of {len(final):,} seeds grokked{some}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, CURVES_PNG)
        path.write_bytes(png(curves_figure(curves, grokked, title)))
        tracker.client.log_artifact(tracker.run_of(configuration).id, str(path))


def select_drawn(final: Sequence[SeedRecord]) -> list[SeedRecord]:
    """Return the rows of a configuration whose curves are drawn: of many, the first winners and losers."""
    if len(final) <= MOST_DRAWN:
        return list(final)
    ordered = sorted(final, key=lambda row: row.seed)
    winners = [r for r in ordered if r.has_grokked]
    losers = [r for r in ordered if not r.has_grokked]
    room = max(MOST_DRAWN // 2, MOST_DRAWN - len(losers))  # half, or what the losers leave
    drawn = winners[:room]
    return drawn + losers[: MOST_DRAWN - len(drawn)]


def _write_first_seeds(
    tracker: Tracker, configuration: Configuration, row_of: Mapping[Seed, SeedRecord], result_of: Mapping[Seed, Result]
) -> None:
    """Write metrics of the first seeds over steps, up to the first step that one of them has still to reach.

    row_of: the configuration's rows. result_of: the first seeds', as far as they got. A seed that has ended, or was cut
    off because there was enough, counts with its last values; then those that had not begun count nowhere.
    """
    study, recipe = tracker.study, configuration.recipe
    grokked, enough = sum(row.has_grokked for row in row_of.values()), study.until.grokked or inf
    open_until = []
    for seed in study.watched:
        row, result = row_of.get(seed), result_of.get(seed)
        if row is None and grokked < enough:
            return
        if row is not None and not (row.is_final or row.reason == ENOUGH):
            # its last evaluation may be followed by a finish, by which it groks
            reached = len(result.curve_EM) if result else 0
            open_until.append(min(reached, recipe.steps // recipe.eval_every - 1))
    curves = [(readings(r, configuration.spec), {"grok_step": r.grok_step}) for r in result_of.values()]
    curves = [(curve, grok) for curve, grok in curves if curve]
    longest = max((len(curve) for curve, _ in curves), default=0)
    steps = {}
    for i in range(min([longest, *open_until])):
        step = (i + 1) * recipe.eval_every
        steps[step] = step_metrics(step, [curve[min(i, len(curve) - 1)] | grok for curve, grok in curves])
    tracker.write_steps(tracker.run_of(configuration), f"{FIRST_SEEDS}grok_rate", steps)


def write_study(records: StudyRecords, tracker: Tracker) -> None:
    """Write the study's main pictures and, if it trained a constraint with and without, its table, to its own run."""
    from search.analysis.frames import configuration_rows

    rows = records.list_seeds()
    configurations = configuration_rows(records, rows)
    for models in doors.models():
        models.write_study(records, tracker, rows, configurations)
    with tempfile.TemporaryDirectory() as folder:
        (pictures := Path(folder, "pictures")).mkdir()
        _draw(records, tracker, configurations, rows, pictures)
        _tabulate(tracker, configurations, rows, Path(folder))
        tracker.write_folder(tracker.study_run(), Path(folder))


def _draw(
    records: StudyRecords, tracker: Tracker, configurations: Sequence[Counts], seeds: Sequence[SeedRecord], folder: Path
) -> None:
    import pandas as pd

    from reports.report import pictures
    from search.analysis.frames import curves_frame, seed_rows

    frames = pd.DataFrame(configurations), pd.DataFrame(seed_rows(records, seeds))
    pictures(tracker.study, *frames, curves_frame(records, select_drawn), folder)


def _tabulate(tracker: Tracker, configurations: Sequence[Counts], seeds: Sequence[SeedRecord], folder: Path) -> None:
    """Write the table, and its numbers to the runs of its arms."""
    from reports.table import constraint_table
    from reports.table_text import write_table

    try:
        table = constraint_table(configurations, seeds=seeds)
    except UserError:
        return
    for style, name in TABLES.items():
        (folder / name).write_text(write_table(table, style), encoding="utf-8")
    for key, (params, cell) in table.roles().items():
        if run := tracker.find(KEY_TAG, key):  # unless MLflow lacks the arm
            values = cell.as_dict() if cell else {}
            metrics = {f"{TABLE}{n}": float(values[n]) for n in ROLE_METRICS if values.get(n) is not None}
            tags = {f"{TABLE}{n}": values[n] for n in ROLE_TAGS if values.get(n)}
            tracker.write(run, metrics, tags, params)
