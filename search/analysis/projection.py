"""What MLflow shows: a function of the ledger. Nothing is read back from it, and writing twice changes nothing."""

import tempfile
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from model import verify
from model.tasks import ADDITION
from model.verdict import is_right
from search.errors import UserError
from search.stats.counting import (
    ENOUGH,
    PooledRate,
    Row,
    group_by,
    proof_counts,
    rank,
    seed_of,
    step_metrics,
)
from search.store.record import SeedRecord, is_final
from search.store.results import curve_table
from search.store.study_records import StudyRecords, key_of
from search.study.trial import Configuration
from search.tracking.models import BEST as BEST_ALIAS
from search.tracking.tracker import RUNNING, Tracker, readings
from search.tracking.tracking import BEST, BEST_TAG, CURVES_PNG, FINISHED, KILLED, SHOWN_TAG, answered
from search.tracking.views import RATIO, ROLE_TAGS, write_views
from trainer import Outcome

BEST_CHILDREN = 3
"""Grokked seeds of a configuration that have a run of their own."""
ALL_DRAWN = 32
"""Configurations of a study up to which each has its picture; beyond, those that grokked have."""
MOST_DRAWN = 256
"""Seeds of a configuration whose curves are drawn."""
TABLES = {"md": "table.md", "csv": "table.csv", "json": "table.json"}
ROLE_METRICS = (
    *RATIO, "rate_with", "rate_without", "ratio_finished", "ratio_finished_low", "ratio_finished_high",
)  # fmt: skip

StudyWriter = Callable[[StudyRecords, Tracker], None]


class Jobs(Protocol):
    """Calls to MLflow that are done in order (search/tracking/outbox.py)."""

    def put(self, call: Callable[..., Any], *args: Any, key: Hashable = None) -> None:
        """Have a job done. It may take the place of one that waits with the same key."""


class Projection:
    """What MLflow shows of a study. `run` has it written behind its back, `sync` at once.

    outbox: does what is put into it, later or at once. pages: writes the pages of a study that has ended.
    """

    def __init__(self, records: StudyRecords, tracker: Tracker, outbox: Jobs, pages: StudyWriter):
        self.records, self.tracker, self.outbox, self.pages = records, tracker, outbox, pages
        self.counted: dict[str, tuple[int, int]] = {}
        """By configuration: rows when it was counted, and how many came after."""

    def note_training(self, configuration: Configuration) -> None:
        """Show a configuration's run as running."""
        self.outbox.put(self.tracker.reopen, configuration, key=configuration.key)

    def note_ended(self, configuration: Configuration, new: int) -> None:
        """Have the counts of a configuration written if it has an eighth more rows than when it was counted.

        To count all of them after each trial would take a time that grows as their square. The first trial after
        a count waits for the second, or for the configuration's conclusion.
        """
        rows, more = self.counted.get(configuration.key, (0, 0))
        self.counted[configuration.key] = rows, more + new
        if more > 0 and 8 * (more + new) >= rows:
            self.counted[configuration.key] = rows + more + new, 0
            self.outbox.put(self._write_counts, configuration, key=(configuration.key, "counts"))

    def _write_counts(self, configuration: Configuration) -> None:
        # the interval of a study that stops asks for single seeds
        read = self.records.list_seeds if self.tracker.study.until_rule else self.records.list_grouped_seeds
        self.tracker.log_counts(configuration, read(configuration.key))

    def note(self, configuration: Configuration, status: str) -> None:
        """Have all written that is known of a configuration. status: of its run from now on."""
        self.outbox.put(write_configuration, self.records, self.tracker, configuration, status, key=configuration.key)

    def note_stale(self, rows: Sequence[SeedRecord]) -> None:
        """Have the configurations written whose runs do not show what the ledger has, as after a driver's death.

        rows: the study's.
        """
        with answered(self.tracker.unfenced.tracking_uri):
            shown = self.tracker.list_shown()
        of_key = group_by(rows, "configuration")
        written = {key for key, some in of_key.items() if shown.get(key) == (status_of(some), summary_of(some))}
        self._note_all(of_key, written)
        for key, (status, _) in shown.items():  # of which nothing was begun
            if key not in of_key and status == RUNNING:
                self.outbox.put(self.tracker.client.set_terminated, self.tracker.earlier_run(key), KILLED)

    def note_everything(self, rows: Sequence[SeedRecord]) -> None:
        """Have all written, whatever MLflow has. rows: the study's."""
        self._note_all(group_by(rows, "configuration"))
        if rows:
            self.outbox.put(self._write_study)

    def _note_all(self, rows: Mapping[str, Sequence[SeedRecord]], written: Collection[str] = ()) -> None:
        """Have the study written and its configurations, but for those that are. rows: by configuration."""
        tracker, configurations = self.tracker, self.records.list_configurations()
        self.outbox.put(tracker.delete_orphans)
        self.outbox.put(tracker.log_study)
        if tracker.study.space:  # to which a field may have been added
            self.outbox.put(tracker.rename, configurations)
        self.outbox.put(write_views, tracker.client, tracker.study, tracker.experiment)
        for key in rows.keys() - written:
            self.note(configurations[key], status_of(rows[key]))

    def note_study(self) -> None:
        """Have the pages of the whole study written, unless they show what the ledger has."""
        self.outbox.put(self._write_study, True)

    def _write_study(self, only_stale: bool = False) -> None:
        rows, run = self.records.list_seeds(), self.tracker.study_run()
        is_written = self.tracker.client.get_run(run).data.tags.get(SHOWN_TAG) == summary_of(rows)
        if not any(map(is_final, rows)) or (only_stale and is_written):
            return
        self.pages(self.records, self.tracker)
        self.tracker.end_study(PooledRate.of(rows))
        self.tracker.client.set_tag(run, SHOWN_TAG, summary_of(rows))


def status_of(rows: Sequence[Row]) -> str:
    """Return the status of a configuration's run that nobody trains, by its seeds: are any left to train?"""
    is_whole = all(is_final(row) or row["reason"] == ENOUGH for row in rows)
    return FINISHED if is_whole else KILLED


def summary_of(rows: Sequence[Row]) -> str:
    """Return the seeds and verdicts that a configuration has; while its run has this tag, it need not be written."""
    ended, proofs = sum(map(is_final, rows)), sum(bool(row["proof"]) for row in rows)
    return f"{ended} of {len(rows)} seeds, {proofs} proofs"


def write_configuration(records: StudyRecords, tracker: Tracker, configuration: Configuration, status: str) -> None:
    """Write a configuration's counts, picture, best checkpoint and child runs. status: of its run from now on."""
    rows = records.list_seeds(configuration.key)
    if final := sorted(filter(is_final, rows), key=rank):
        _write_best(records, tracker, configuration, final)
        rows = records.list_seeds(configuration.key)  # of which some are decoded now
    decoded = [row["verified"] for row in rows if row["verified"] is not None]
    counts = {
        "verified": decoded.count(configuration.spec.task.problems),
        "verify_tried": len(decoded),
        **proof_counts(rows),
    }
    tracker.log_counts(configuration, rows, counts)
    for row in rows:
        if row["proof"]:
            tracker.log_proof(configuration, seed_of(row), row["proof"])
    records.update_run(configuration.key, tracker.experiment, tracker.run_of(configuration))
    tracker.end(configuration, status, summary_of(rows))


def _write_best(
    records: StudyRecords, tracker: Tracker, configuration: Configuration, final: Sequence[SeedRecord]
) -> None:
    """Write picture, best checkpoint and child runs. final: rows of the ended seeds, the best first."""
    run, study = tracker.run_of(configuration), tracker.study
    grokked = [r for r in final if r["outcome"] == Outcome.GROKKED]
    if study.proposer:  # of thousands of proposals those that matter are written at the end
        if grokked:
            tracker.log_checkpoint(run, BEST, records.seed(final[0]))
        return
    if grokked or study.planned <= ALL_DRAWN:
        _write_picture(records, tracker, configuration, final)
    best = records.seed(final[0])
    tracker.log_checkpoint(run, BEST, best)
    tracker.client.set_tag(run, BEST_TAG, str(best.result.pair.seed))
    _write_curves(records, tracker, configuration, final)
    for row in grokked[:BEST_CHILDREN]:
        write_seed(records, tracker, row)


def write_seed(records: StudyRecords, tracker: Tracker, row: SeedRecord) -> None:
    """Write the run of one grokked seed, and what its decoded additions come to into the ledger."""
    seed = records.seed(row)
    correct = tracker.log_seed(seed)
    if row["verified"] is None:
        right = correct if correct is not None else verify(seed.configuration.spec, seed.result.theta_P).correct
        records.record_verification(key_of(row), right)


def _write_picture(records: StudyRecords, tracker: Tracker, configuration: Configuration, final: Sequence[Row]) -> None:
    from search.analysis.plots import curves_figure, png  # matplotlib takes longer to load than the rest

    rows = select_drawn(final)
    curves = curve_table(configuration, [seed.result for seed in records.seeds(rows)])
    grokked = [(r["init_seed"], r["data_seed"]) for r in rows if r["outcome"] == Outcome.GROKKED]
    some = f", {len(rows):,} of {len(final):,} seeds" if len(rows) < len(final) else ""
    name = f"study {tracker.study.name}, {tracker.names[configuration]}"
    title = f"{name}{some}: {len(grokked)} of {len(rows)} seeds grokked"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, CURVES_PNG)
        path.write_bytes(png(curves_figure(curves, grokked, title)))
        tracker.client.log_artifact(tracker.run_of(configuration), str(path))


def select_drawn(final: Sequence[Row]) -> list[Row]:
    """Return the rows of a configuration whose curves are drawn: of many, the first winners and losers."""
    if len(final) <= MOST_DRAWN:
        return list(final)
    ordered = sorted(final, key=seed_of)
    winners = [r for r in ordered if r["outcome"] == Outcome.GROKKED][: MOST_DRAWN // 2]
    losers = [r for r in ordered if r["outcome"] != Outcome.GROKKED]
    return winners + losers[: MOST_DRAWN - len(winners)]


def _write_curves(records: StudyRecords, tracker: Tracker, configuration: Configuration, final: Sequence[Row]) -> None:
    """Write metrics of the first seeds over steps, which MLflow's charts show."""
    watched = set(tracker.study.watched)
    rows = [r for r in final if seed_of(r) in watched]
    grokked, enough = sum(r["outcome"] == Outcome.GROKKED for r in final), tracker.study.until.grokked
    if not rows or (len(rows) < len(watched) and not (enough and grokked >= enough)):
        return
    results = [seed.result for seed in records.seeds(rows)]
    curves = [(readings(r, configuration.spec), {"grok_step": r.grok_step}) for r in results]
    steps = {}
    for i in range(max(len(curve) for curve, _ in curves)):
        step = (i + 1) * configuration.recipe.eval_every
        steps[step] = step_metrics(step, [curve[min(i, len(curve) - 1)] | grok for curve, grok in curves])
    tracker.log_steps(configuration, steps)


def write_study(records: StudyRecords, tracker: Tracker) -> None:
    """Write the study's main pictures and, if it trained a constraint with and without, its table, to its own run."""
    register_best(records, tracker, records.list_seeds())
    with tempfile.TemporaryDirectory() as folder:
        (pictures := Path(folder, "pictures")).mkdir()
        _draw(records, tracker, pictures)
        _tabulate(records, tracker, Path(folder))
        tracker.log_folder(tracker.study_run(), Path(folder))


def register_best(records: StudyRecords, tracker: Tracker, rows: Sequence[SeedRecord]) -> None:
    """Register the best verified seed of the study's best configuration, and of its smallest: of those that add."""
    from search.analysis.frames import configuration_rows
    from search.analysis.pareto import best_of

    adders = {key for key, c in records.list_configurations().items() if c.spec.task == ADDITION}
    grokked = [r for r in rows if r["outcome"] == Outcome.GROKKED and r["configuration"] in adders]
    verified = [r for r in grokked if r["verified"] == ADDITION.problems]
    by_key = group_by(sorted(verified, key=rank), "configuration")
    configurations = [row for row in configuration_rows(records, rows) if row["configuration"] in by_key]
    if not configurations:
        return
    ranked_first = (best_of(configurations) or configurations[0])["configuration"]
    smallest = min(configurations, key=lambda row: (row["params"], row["configuration"] != ranked_first))
    for key, aliases in {smallest["configuration"]: (), ranked_first: (BEST_ALIAS,)}.items():
        best = by_key[key][0]
        tracker.register(records.seed(best), ADDITION.problems, is_right(best["proof"]), aliases)


def _draw(records: StudyRecords, tracker: Tracker, folder: Path) -> None:
    from search.analysis.frames import configurations_frame, curves_frame, seeds_frame
    from search.analysis.report import pictures

    frames = configurations_frame(records), seeds_frame(records)
    pictures(tracker.study, *frames, curves_frame(records, select_drawn), folder)


def _tabulate(records: StudyRecords, tracker: Tracker, folder: Path) -> None:
    """Write the table, and its numbers to the runs of its arms."""
    from search.analysis.frames import configuration_rows, seed_rows
    from search.analysis.table import constraint_table
    from search.analysis.table_text import write_table

    try:
        table = constraint_table(configuration_rows(records), seeds=seed_rows(records))
    except UserError:
        return
    for style, name in TABLES.items():
        (folder / name).write_text(write_table(table, style), encoding="utf-8")
    for run, (words, cell) in table.roles().items():
        values = cell.as_dict() if cell else {}
        metrics = {f"table.{n}": float(values[n]) for n in ROLE_METRICS if values.get(n) is not None}
        tags = {f"table.{n}": values[n] for n in ROLE_TAGS if values.get(n)}
        tracker.log_role(run, words, metrics, tags)
