"""Records for MLflow, each written once: functions of the ledger, the tracker and the artifacts.

A driver calls them as its trials end, and in the same way for what an earlier driver left behind.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from model.adderboard import ADDITIONS
from model.verdict import is_right
from search.errors import UserError
from search.stats.counting import (
    PooledRate,
    Row,
    group_by,
    proof_counts,
    rank,
    seed_of,
    step_metrics,
)
from search.store.record import SeedRecord, is_final
from search.store.results import PARTS, curve_table
from search.store.study_records import StudyRecords
from search.study.trial import Configuration, Trial
from search.tracking.artifacts import ArtifactCache
from search.tracking.models import BEST as BEST_ALIAS
from search.tracking.tracker import Tracker, readings
from search.tracking.tracking import BEST, BEST_TAG, CURVES_PNG, FINISHED
from search.tracking.views import RATIO, ROLE_TAGS
from trainer import Outcome

BEST_CHILDREN = 3
"""Grokked seeds of a configuration that have a run of their own."""
ALL_DRAWN = 32
"""Configurations of a study up to which each has its picture; beyond, those that grokked have."""
MOST_DRAWN = 256
"""Seeds of a configuration whose curves are drawn."""
EVIDENCE_TAG = "adder.evidence"
TABLES = {"md": "table.md", "csv": "table.csv", "json": "table.json"}
ROLE_METRICS = (
    *RATIO, "rate_with", "rate_without", "ratio_finished", "ratio_finished_low", "ratio_finished_high",
)  # fmt: skip


def publish(records: StudyRecords, tracker: Tracker, trial: Trial, folder: Path) -> None:
    """Write a recorded trial: the files of its folder, and the counts so far of its configurations."""
    for configuration in trial.configurations:
        rows = records.list_seeds(configuration.key, trial.key)
        if tracker.note_rows(configuration, len(rows)):
            # The interval of a study that stops asks for single seeds.
            read = records.list_seeds if tracker.study.until_rule else records.list_grouped_seeds
            tracker.log_counts(configuration, read(configuration.key))
        if rows and all(r["published"] for r in rows):
            continue
        if any(map(is_final, rows)):  # or all of its seeds were cut
            tracker.log_part(configuration, trial.key, folder / PARTS / configuration.key)
        records.publish(trial, configuration, tracker.experiment, tracker.run_of(configuration))


def conclude(
    records: StudyRecords,
    tracker: Tracker,
    artifacts: ArtifactCache,
    configuration: Configuration,
    status: str | None = FINISHED,
) -> None:
    """Write a configuration's summary, picture, best checkpoint and child runs. status: of its run; None leaves it."""
    rows = records.list_seeds(configuration.key)
    if final := sorted(filter(is_final, rows), key=rank):
        _write_best(tracker, artifacts, configuration, final)
    has_grokked = any(r["outcome"] == Outcome.GROKKED for r in rows)  # others have no child runs
    decoded = tracker.list_decoded(configuration) if has_grokked else {}
    verified = sum(correct == ADDITIONS for correct in decoded.values())
    counts = {"verified": verified, "verify_tried": len(decoded), **proof_counts(rows)}
    tracker.log_counts(configuration, rows, counts)
    for row in rows:
        if row["proof"]:
            tracker.log_proof(configuration, seed_of(row), row["proof"])
    if decoded:
        records.record_verifications(configuration.key, decoded)
    if status:
        tracker.end(configuration, status)


def _write_best(tracker: Tracker, artifacts: ArtifactCache, configuration: Configuration, final: Sequence[Row]) -> None:
    """Write picture, best checkpoint and child runs. final: rows of the ended seeds, the best first."""
    run, study = tracker.run_of(configuration), tracker.study
    grokked = [r for r in final if r["outcome"] == Outcome.GROKKED]
    if study.proposer:  # of thousands of proposals those that matter are written at the end
        if grokked:
            tracker.log_checkpoint(run, BEST, artifacts.seed(final[0]))
        return
    if grokked or study.planned <= ALL_DRAWN:
        _write_picture(tracker, artifacts, configuration, final)
    best = artifacts.seed(final[0])
    tracker.log_checkpoint(run, BEST, best)
    tracker.client.set_tag(run, BEST_TAG, str(best.result.pair.seed))
    _write_curves(tracker, artifacts, configuration, final)
    for row in grokked[:BEST_CHILDREN]:
        tracker.log_seed(artifacts.seed(row))


def _write_picture(
    tracker: Tracker, artifacts: ArtifactCache, configuration: Configuration, final: Sequence[Row]
) -> None:
    from search.analysis.plots import curves_figure, png  # matplotlib takes longer to load than the rest

    rows = select_drawn(final)
    curves = curve_table(configuration, [artifacts.seed(r).result for r in rows])
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


def _write_curves(
    tracker: Tracker, artifacts: ArtifactCache, configuration: Configuration, final: Sequence[Row]
) -> None:
    """Write metrics of the first seeds over steps, which MLflow's charts show."""
    watched = set(tracker.study.watched)
    rows = [r for r in final if seed_of(r) in watched]
    grokked, enough = sum(r["outcome"] == Outcome.GROKKED for r in final), tracker.study.until.grokked
    if not rows or (len(rows) < len(watched) and not (enough and grokked >= enough)):
        return
    results = [artifacts.seed(r).result for r in rows]
    curves = [(readings(r, configuration.spec), {"grok_step": r.grok_step}) for r in results]
    steps = {}
    for i in range(max(len(curve) for curve, _ in curves)):
        step = (i + 1) * configuration.recipe.eval_every
        steps[step] = step_metrics(step, [curve[min(i, len(curve) - 1)] | grok for curve, grok in curves])
    tracker.log_steps(configuration, steps)


def log_evidence(records: StudyRecords, tracker: Tracker, artifacts: ArtifactCache) -> None:
    """Write the study's main pictures, its rates and, if it trained a constraint with and without, its table.

    They go to the study's own run, unless as many seeds had ended when they were last written.
    """
    rows = records.list_seeds()
    ended = str(sum(map(is_final, rows)))
    run = tracker.study_run()
    if ended == "0" or tracker.client.get_run(run).data.tags.get(EVIDENCE_TAG) == ended:
        return
    register_best(records, tracker, artifacts, rows)
    with tempfile.TemporaryDirectory() as folder:
        (pictures := Path(folder, "pictures")).mkdir()
        _draw(records, tracker, artifacts, pictures)
        _tabulate(records, tracker, Path(folder))
        tracker.log_folder(run, Path(folder))
    tracker.end_study(PooledRate.of(rows))
    tracker.client.set_tag(run, EVIDENCE_TAG, ended)


def register_best(
    records: StudyRecords, tracker: Tracker, artifacts: ArtifactCache, rows: Sequence[SeedRecord]
) -> None:
    """Register the best verified seed of the study's best configuration, and of its smallest."""
    from search.analysis.frames import configuration_rows
    from search.analysis.pareto import best_of

    verified = [r for r in rows if r["outcome"] == Outcome.GROKKED and r["verified"] == ADDITIONS]
    by_key = group_by(sorted(verified, key=rank), "configuration")
    configurations = [row for row in configuration_rows(records, rows) if row["configuration"] in by_key]
    if not configurations:
        return
    ranked_first = (best_of(configurations) or configurations[0])["configuration"]
    smallest = min(configurations, key=lambda row: (row["params"], row["configuration"] != ranked_first))
    for key, aliases in {smallest["configuration"]: (), ranked_first: (BEST_ALIAS,)}.items():
        best = by_key[key][0]
        tracker.register(artifacts.seed(best), ADDITIONS, is_right(best["proof"]), aliases)


def _draw(records: StudyRecords, tracker: Tracker, artifacts: ArtifactCache, folder: Path) -> None:
    from search.analysis.frames import configurations_frame, curves_frame, seeds_frame
    from search.analysis.report import pictures

    frames = configurations_frame(records), seeds_frame(records)
    pictures(tracker.study, *frames, curves_frame(artifacts, select_drawn), folder)


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
