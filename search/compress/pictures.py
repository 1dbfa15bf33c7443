"""Pictures of a study's descents: every set that was tried, and how the smallest came to be."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from model import Spec
from search.analysis.lineage import lineages, tree
from search.analysis.plots import COLOURS, GREY, INK, SOFT, WIDEST, new_figure, png, quiet
from search.stats.counting import PooledRate, seed_of
from search.store.candidates import DatabaseCandidates, TieCandidate, front, lineage_of, smallest
from search.store.study_records import StudyRecords
from search.study.start import ANY
from search.tracking.artifacts import ArtifactCache
from search.tracking.tracker import Tracker

TREE = "lineage.txt"
ALL_RIGHT = 1e-4
"""Where on the logarithmic axis nothing is wrong: one problem of 5,000 is at 2e-4."""
DARK = 0.65  # of its tensor's largest: on such an entry one writes in white
MOST_WRITTEN = 80  # entries whose numbers are written into the strip


def log_descents(records: StudyRecords, tracker: Tracker, cache: ArtifactCache) -> None:
    """Log a study's pictures and lineage to MLflow, and verify its smallest accepted candidate.

    The 10,010 are read of that one alone, and counted.
    """
    run, candidates = tracker.study_run(), DatabaseCandidates(records).read()
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in pictures(candidates).items():
            (Path(folder) / f"{name}.png").write_bytes(png(figure))
        tracker.log_folder(run, Path(folder), "pictures")
        (Path(folder) / TREE).write_text(tree(lineages(records, candidates, ())) + "\n", encoding="utf-8")
        tracker.client.log_artifact(run, str(Path(folder) / TREE))
    tracker.end_study(PooledRate.of(records.list_seeds()))
    best = smallest(candidates)
    if best is None or best.start is None or best.configuration is None:
        return
    name = best.start.lineage[-1]["seed"]
    row = next(r for r in records.list_seeds(best.configuration) if str(seed_of(r)) == name)
    seed = cache.seed(row)
    tracker.log_seed(seed)
    records.record_verifications(best.configuration, tracker.list_decoded(seed.configuration))


def pictures(candidates: Sequence[TieCandidate]) -> dict[str, Figure]:
    """Draw what there is to be drawn, by name."""
    judged = [c for c in candidates if c.reached is not None]
    if len(judged) < 2:
        return {}
    figures = {"sets-tried": sets_figure(judged)}
    best = smallest(candidates)
    if best and best.parent is not None:
        figures["descent"] = strip_figure(lineage_of(candidates, best.number))
    return figures


def sets_figure(judged: Sequence[TieCandidate]) -> Figure:
    """Draw numbers against exact match, a point a set; the Pareto front as a line."""
    figure = new_figure(WIDEST, 5.2)
    axis = figure.subplots()
    kinds = (
        ("failed", [t for t in judged if not t.start and (t.wrong is None)], GREY, "o", 2),
        (
            "right on the 5,000, not on the others",
            [t for t in judged if not t.start and t.wrong],
            COLOURS[1],
            "s",
            3,
        ),
        ("kept", [t for t in judged if t.start], COLOURS[0], "o", 4),
    )
    jitter = np.random.default_rng(0)
    for name, some, colour, marker, z in kinds:
        x = np.array([t.numbers for t in some]) + jitter.uniform(-0.22, 0.22, len(some))
        axis.scatter(x, [_errors(t) for t in some], s=20, color=colour, marker=marker, lw=0, alpha=0.6,
                     label=f"{name} ({len(some):,})", zorder=z)  # fmt: skip
    best = front(judged)
    at = [t.numbers for t in best], [_errors(t) for t in best]
    axis.step(*at, where="post", color=INK, lw=1.3, zorder=5)
    axis.plot(*at, "o", mfc="none", color=INK, ms=8, zorder=5, label="Pareto front")
    for t in best:
        axis.annotate(str(t.numbers), (t.numbers, _errors(t)), xytext=(0, 7), textcoords="offset points",
                      ha="center", fontsize=8, color=INK, zorder=6)  # fmt: skip
    axis.set_yscale("log")
    axis.set_ylim(1.3, ALL_RIGHT * 0.55)
    ticks = (1.0, 0.1, 0.01, 0.001, ALL_RIGHT)
    axis.yaxis.set_major_locator(FixedLocator(ticks))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_yticklabels(["0 %", "90 %", "99 %", "99.9 %", "100 %"])
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="numbers left", ylabel="exact match (5,000 selection problems)")
    quiet(axis)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncol=4, frameon=False, fontsize=9)
    return figure


def _errors(candidate: TieCandidate) -> float:
    return max(1.0 - (candidate.reached or 0.0), ALL_RIGHT)


def strip_figure(line: Sequence[TieCandidate]) -> Figure:
    """Draw a column a step of the descent, a row an entry of θ.

    Colour is the entry's value as a share of its tensor's largest; the text in it the number that it reads.
    Entries that a step tied or loosened are framed.
    """
    assert line[0].start
    base = line[0].start.spec
    theta = np.array([t.start.thetas[ANY] for t in line if t.start]).T
    names, sizes = base.layout.entries(), list(base.layout.budget().values())
    figure = new_figure(2.2 + 0.62 * len(line), 1.1 + max(0.2 * len(names), 3.0) * min(1.0, 110 / len(names)))
    axis = figure.subplots()
    scale = np.repeat([_largest(theta[a:b]) for a, b in _spans(sizes)], sizes)
    axis.imshow(theta / scale[:, None], cmap="RdBu", vmin=-1.15, vmax=1.15, aspect="auto")
    for column, candidate in enumerate(line):
        before = line[column - 1].ties if column else candidate.ties
        _write(axis, column, candidate.ties, before, np.abs(theta[:, column] / scale) > DARK)
    for _, end in _spans(sizes)[:-1]:
        axis.axhline(end - 0.5, color=INK, lw=0.8)
    axis.set_xticks(range(len(line)), [str(t.numbers) for t in line])
    axis.xaxis.tick_top()
    axis.set_xlabel("numbers left", labelpad=8)
    axis.xaxis.set_label_position("top")
    _name_entries(axis, base, names, sizes)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return figure


def _spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = list(accumulate(sizes))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _largest(theta: np.ndarray) -> float:
    return float(np.abs(theta).max()) or 1.0


def _write(
    axis: Axes, column: int, ties: Sequence[int], before: Sequence[int], is_dark: Sequence[bool]
) -> None:
    """Write the numbers that entries read, where they share one or it is zero; frame what changed."""
    shared = {abs(k) for k in ties if sum(abs(k) == abs(n) for n in ties) > 1}
    for row, k in enumerate(ties):
        if len(ties) <= MOST_WRITTEN and (k == 0 or abs(k) in shared):
            text = "0" if k == 0 else str(k).replace("-", "−")
            axis.text(column, row, text, ha="center", va="center", fontsize=6.5,
                      color="white" if is_dark[row] else INK)  # fmt: skip
        if _group(ties, row) != _group(before, row):
            axis.add_patch(_frame(column, row))


def _group(ties: Sequence[int], row: int) -> tuple[int, ...] | None:
    """Return the entries that read the same number as one does, None for zero."""
    k = ties[row]
    return tuple(p if n == k else -1 - p for p, n in enumerate(ties) if abs(n) == abs(k)) if k else None


def _frame(column: int, row: int) -> Rectangle:
    return Rectangle((column - 0.47, row - 0.44), 0.94, 0.88, fill=False, lw=0.9, ec=COLOURS[4])


def _name_entries(axis: Axes, base: Spec, names: Sequence[str], sizes: Sequence[int]) -> None:
    """Label each row; of many rows each tensor."""
    if len(names) <= MOST_WRITTEN:
        axis.set_yticks(range(len(names)), names, fontsize=6.5, color=SOFT)
        return
    middles = [(a + b - 1) / 2 for a, b in _spans(sizes)]
    axis.set_yticks(middles, list(base.layout.budget()), fontsize=8, color=SOFT)
