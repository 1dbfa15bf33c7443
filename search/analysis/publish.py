"""What is written to MLflow when: each once, as functions of ledger, tracker and parts.

A driver calls them as its trials end, and in the same way for what an earlier one left behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from model.adderboard import ADDITIONS
from search.errors import UserError
from search.stats.counting import rank, seed_of, step_metrics
from search.store.ledger import Ledger, Row, is_final
from search.store.results import PARTS, curve_table
from search.study.file import stopping_rule
from search.study.trial import Configuration, Trial
from search.tracking.artifacts import ArtifactCache, RecordedSeed, alike
from search.tracking.tracker import Tracker
from search.tracking.tracking import BEST, BEST_TAG, CURVES_PNG, FINISHED
from trainer import MEASURES, Outcome, Result
from trainer.recipe.screen import PROBE

BEST_CHILDREN = 3
ALL_DRAWN = 32
"""Configurations of a study up to which each has its picture; of more, those that grokked have."""
MOST_DRAWN = 256
"""Seeds of a configuration whose curves are drawn."""
EVIDENCE_TAG = "adder.evidence"
TABLES = {"md": "table.md", "csv": "table.csv"}


def publish(ledger: Ledger, tracker: Tracker, trial: Trial, folder: Path) -> None:
    """Write a recorded trial to MLflow: its parts as they are in its folder, and what is counted so far."""
    for configuration in trial.configurations:
        mine = ledger.list_seeds(trial.study, configuration.key, trial.key)
        if tracker.is_count_due(configuration, len(mine)):
            rows = (
                ledger.list_seeds if stopping_rule(tracker.study) else partial(alike, ledger)
            )  # a stop asks for seeds
            tracker.counts(configuration, rows(trial.study, configuration.key))
        if mine and all(r["published"] for r in mine):  # what is there is not touched
            continue
        if any(map(is_final, mine)):  # or all of its seeds were cut
            tracker.part(configuration, trial.key, folder / PARTS / configuration.key)
        ledger.publish(trial, configuration, tracker.experiment, tracker.run_of(configuration))


def conclude(
    ledger: Ledger,
    tracker: Tracker,
    shelf: ArtifactCache,
    configuration: Configuration,
    status: str = FINISHED,
) -> None:
    """Write a configuration's summary, picture, best checkpoint and child runs to MLflow."""
    study = tracker.study.name
    rows = ledger.list_seeds(study, configuration.key)
    if final := sorted(filter(is_final, rows), key=rank):
        _best(tracker, shelf, configuration, final)
    has_grokked = any(r["outcome"] == Outcome.GROKKED for r in rows)  # others have no child runs
    decoded = tracker.decoded(configuration) if has_grokked else {}
    right = sum(correct == ADDITIONS for correct in decoded.values())
    tracker.counts(configuration, rows, {"verified": right, "verify_tried": len(decoded)})
    if decoded:
        ledger.record_verifications(study, configuration.key, decoded)
    tracker.end(configuration, status)


def _best(tracker: Tracker, shelf: ArtifactCache, configuration: Configuration, final: Sequence[Row]) -> None:
    """Picture, best checkpoint and child runs. final: rows of the seeds that have ended, the best first."""
    run = tracker.run_of(configuration)
    grokked = [r for r in final if r["outcome"] == Outcome.GROKKED]
    if tracker.study.compress:  # thousands of sets: of those that matter all is written at the end
        if grokked:
            tracker.checkpoint(run, BEST, shelf.seed(final[0]))
        return
    if grokked or tracker.study.planned <= ALL_DRAWN:
        _picture(tracker, shelf, configuration, final)
    best = shelf.seed(final[0])
    tracker.checkpoint(run, BEST, best)
    tracker.client.set_tag(run, BEST_TAG, str(best.result.pair.seed))
    _curves(tracker, shelf, configuration, final)
    for row in grokked[:BEST_CHILDREN]:
        tracker.child(shelf.seed(row))


def _picture(
    tracker: Tracker, shelf: ArtifactCache, configuration: Configuration, final: Sequence[Row]
) -> None:
    from search.analysis.plots import grokking_curves  # matplotlib takes longer to load than the rest

    seeds = [shelf.seed(r) for r in drawn(final)]
    winners = [_numbers(s) for s in seeds if s.result.outcome == Outcome.GROKKED]
    curves = curve_table(configuration, [s.result for s in seeds])
    with tempfile.TemporaryDirectory() as folder:
        title = f"study {tracker.study.name}, {configuration.title}"
        if len(seeds) < len(final):
            title += f", {len(seeds):,} of {len(final):,} seeds"
        grokking_curves(curves, winners, title, Path(folder) / CURVES_PNG)
        tracker.client.log_artifact(tracker.run_of(configuration), str(Path(folder) / CURVES_PNG))


def drawn(final: Sequence[Row]) -> list[Row]:
    """Of a configuration's rows those whose curves are drawn: of many, the first winners and others."""
    if len(final) <= MOST_DRAWN:
        return list(final)
    numbered = sorted(final, key=seed_of)
    winners = [r for r in numbered if r["outcome"] == Outcome.GROKKED][: MOST_DRAWN // 2]
    others = [r for r in numbered if r["outcome"] != Outcome.GROKKED]
    return winners + others[: MOST_DRAWN - len(winners)]


def _numbers(seed: RecordedSeed) -> tuple[int, int]:
    return seed.result.pair.seed.init_seed, seed.result.pair.seed.data_seed


def _curves(
    tracker: Tracker, shelf: ArtifactCache, configuration: Configuration, final: Sequence[Row]
) -> None:
    """Metrics of the first seeds over steps, which MLflow's charts show."""
    watched = set(tracker.study.watched())
    mine = [r for r in final if seed_of(r) in watched]
    if len(mine) < len(watched):
        return
    results = [shelf.seed(r).result for r in mine]
    steps = {}
    for i in range(max(len(r.curve_EM) for r in results)):
        rows = [_at(r, configuration, min(i, len(r.curve_EM) - 1)) for r in results]
        step = (i + 1) * configuration.recipe.eval_every
        steps[step] = step_metrics(step, rows)
    tracker.log_steps(configuration, steps)


def _at(result: Result, configuration: Configuration, i: int) -> Row:
    """A seed's measures and probes at an evaluation, as `step_metrics` wants them."""
    names = [*MEASURES, *(f"{PROBE}{name}" for name in configuration.spec.probes())]
    read = result.probes_ER[i].tolist() if len(result.probes_ER) else []
    return dict(zip(names, [*result.curve_EM[i].tolist(), *read], strict=False)) | {
        "grok_step": result.grok_step
    }


def log_evidence(ledger: Ledger, tracker: Tracker, shelf: ArtifactCache) -> None:
    """What the study says as a whole, to its own run: the constraint table, where it has one constraint with
    and without, and the main pictures. With as many seeds as last time there is nothing new to say.
    """
    final = str(sum(map(is_final, ledger.list_seeds(tracker.study.name))))
    run = tracker.own_run()
    if final == "0" or tracker.client.get_run(run).data.tags.get(EVIDENCE_TAG) == final:
        return
    _pictures(ledger, tracker, shelf, run)
    _tables(ledger, tracker, run)
    tracker.client.set_tag(run, EVIDENCE_TAG, final)


def _pictures(ledger: Ledger, tracker: Tracker, shelf: ArtifactCache, run: str) -> None:
    from search.analysis.frames import configurations_frame, curves_frame, seeds_frame
    from search.analysis.report import pictures

    study = tracker.study
    frames = configurations_frame(ledger, study.name), seeds_frame(ledger, study.name)
    with tempfile.TemporaryDirectory() as folder:
        pictures(study, *frames, curves_frame(shelf, drawn), Path(folder))
        tracker.keep(run, Path(folder), "pictures")


def _tables(ledger: Ledger, tracker: Tracker, run: str) -> None:
    from search.analysis.frames import configuration_rows, seed_rows
    from search.analysis.table import constraint_table
    from search.analysis.table_text import write_table

    try:
        name = tracker.study.name
        table = constraint_table(configuration_rows(ledger, name), seeds=seed_rows(ledger, name))
    except UserError:
        return
    with tempfile.TemporaryDirectory() as folder:
        for style, name in TABLES.items():
            (Path(folder) / name).write_text(write_table(table, style), encoding="utf-8")
        tracker.keep(run, Path(folder))
