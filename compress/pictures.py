"""A picture of a study's descents: every set that was tried."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from compress.candidates import DatabaseCandidates, TieCandidate, front, lineages, smallest
from reports.plots import COLOURS, GREY, INK, WIDEST, new_figure, png, quiet
from search.analysis.lineage import tree
from search.store.study_records import StudyRecords
from tracking.projection import write_seed
from tracking.tracker import Tracker

TREE = "lineage.txt"
ALL_RIGHT = 1e-4
"""Where on the logarithmic axis nothing is wrong: one problem of 5,000 is at 2e-4."""


def log_descents(records: StudyRecords, tracker: Tracker) -> None:
    """Log a study's pictures and lineage to MLflow, and verify its smallest accepted candidate.

    The 10,010 are read of that one alone, and counted.
    """
    run = tracker.study_run()
    candidates = DatabaseCandidates(records).read()
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in pictures(candidates).items():
            (Path(folder) / f"{name}.png").write_bytes(png(figure))
        tracker.write_folder(run, Path(folder), "pictures")
        lines = tree(lineages(candidates))
        (Path(folder) / TREE).write_text(lines + "\n", encoding="utf-8")
        tracker.client.log_artifact(run.id, str(Path(folder) / TREE))
    best = smallest(candidates)
    if best is None or best.start is None or best.configuration is None:
        return
    name = best.start.lineage[-1]["seed"]
    seeds = records.list_seeds(best.configuration)
    row = next(row for row in seeds if str(row.seed) == name)
    write_seed(records, tracker, row)


def pictures(candidates: Sequence[TieCandidate]) -> dict[str, Figure]:
    """Return the figures of some candidates by name: none of fewer than two that are judged."""
    judged = [c for c in candidates if c.reached is not None]
    return {"sets-tried": sets_figure(judged)} if len(judged) > 1 else {}


def sets_figure(judged: Sequence[TieCandidate]) -> Figure:
    """Draw numbers against exact match, one point per set, and the Pareto front as a line."""
    figure = new_figure(WIDEST, 5.2)
    axis = figure.subplots()
    others = [t for t in judged if not t.start]
    near = [t for t in others if t.wrong is not None]
    kinds = (
        ("not grokked", [t for t in others if t.wrong is None], GREY, "o", 2),
        ("right on the selection problems, not accepted", near, COLOURS[1], "s", 3),
        ("kept", [t for t in judged if t.start], COLOURS[0], "o", 4),
    )
    jitter = np.random.default_rng(0)
    for name, some, colour, marker, z in kinds:
        numbers = np.array([t.numbers for t in some])
        axis.scatter(
            numbers + jitter.uniform(-0.22, 0.22, len(some)),  # so that equal ones are seen apart
            [_errors(t) for t in some],
            s=20,
            color=colour,
            marker=marker,
            lw=0,
            alpha=0.6,
            label=f"{name} ({len(some):,})",
            zorder=z,
        )
    best = front(judged)
    at = [t.numbers for t in best], [_errors(t) for t in best]
    axis.step(*at, where="post", color=INK, lw=1.3, zorder=5)
    axis.plot(*at, "o", mfc="none", color=INK, ms=8, zorder=5, label="Pareto front")
    for t in best:
        axis.annotate(
            str(t.numbers),
            (t.numbers, _errors(t)),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=INK,
            zorder=6,
        )
    axis.set_yscale("log")
    axis.set_ylim(1.3, ALL_RIGHT * 0.55)
    ticks = (1.0, 0.1, 0.01, 0.001, ALL_RIGHT)
    axis.yaxis.set_major_locator(FixedLocator(ticks))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_yticklabels(["0 %", "90 %", "99 %", "99.9 %", "100 %"])
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="numbers left", ylabel="exact match (5,000 selection problems)")
    quiet(axis)
    axis.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        ncol=4,
        frameon=False,
        fontsize=9,
    )
    return figure


def _errors(candidate: TieCandidate) -> float:
    return max(1.0 - (candidate.reached or 0.0), ALL_RIGHT)
