"""Pictures: the curves of a configuration's seeds, and what all pictures share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

GREY, COLOURS = "#b9bec5", ("#1f5aa6", "#c4432b", "#2b8a57", "#8a4fbf", "#b8860b", "#0f8b8d")
INK, SOFT, GRID = "#22272e", "#6b737d", "#e6e8eb"
WIDEST, DPI = 11.0, 130  # inches; a page shows 96 pixels of its own to the inch
MOST_NAMED = len(COLOURS)  # grokked seeds that get a colour and a name each
SEED = ["init_seed", "data_seed"]
Pairs = Collection[tuple[int, int]]


def new_figure(width: float, height: float) -> Figure:
    """A figure in inches that draws without a display."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def quiet(axis: Axes, *, grid: Literal["both", "x", "y"] = "both") -> None:
    """A pale grid behind, no box around."""
    axis.grid(color=GRID, lw=0.8, axis=grid)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(GREY)
    axis.tick_params(color=GREY)


def in_thousands(axis: Axes) -> None:
    """Steps along x as 20,000."""
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def in_percent(axis: Axes) -> None:
    """Rates along y as 2.5%, at round values."""
    axis.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axis.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.3g}%")


def png(figure: Figure) -> bytes:
    """The picture's file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def grokking_curves(curves: pd.DataFrame, grokked: list[tuple[int, int]], title: str, path: Path) -> None:
    """Exact match and token accuracy against steps, one line a seed, grokked seeds in front.

    curves: rows as the Parquet artifacts have them; grokked: (init_seed, data_seed) pairs.
    """
    count = curves[SEED].drop_duplicates().shape[0]
    path.write_bytes(png(curves_figure(curves, grokked, f"{title}: {len(grokked)} of {count} seeds grokked")))


def curves_figure(curves: pd.DataFrame, grokked: Pairs, title: str) -> Figure:
    """The picture of `grokking_curves`, under a whole title."""
    figure = new_figure(9.5, 6.4)
    top, bottom = figure.subplots(2, 1, sharex=True)
    figure.suptitle(title, fontsize=13, parse_math=False)
    for axis, measure, name in ((top, "exact", "exact match"), (bottom, "token", "token accuracy")):
        _seed_lines(axis, curves, grokked, measure)
        axis.set_ylabel(f"{name}\n(5,000 selection problems)")
    bottom.set_xlabel("training step")
    in_thousands(bottom)
    if 0 < len(grokked) <= MOST_NAMED:
        top.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def small_multiples(panels: Sequence[tuple[str, pd.DataFrame, Pairs]]) -> Figure:
    """Exact match against steps, a panel a configuration: (title, its curves, its grokked seeds)."""
    columns = min(3, len(panels))
    rows = ceil(len(panels) / columns)
    figure = new_figure(max(6.0, 3.65 * columns), 2.6 * rows + 0.3)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axis in grid.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, curves, grokked) in zip(grid.flat, panels, strict=False):
        _seed_lines(axis, curves, grokked, "exact", named=False)
        axis.set_title(title, fontsize=10, loc="left", parse_math=False)
        axis.tick_params(labelsize=8, labelbottom=True)
        in_thousands(axis)
    figure.supxlabel("training step", fontsize=10)
    figure.supylabel("exact match", fontsize=10)
    return figure


def _seed_lines(
    axis: Axes, curves: pd.DataFrame, grokked: Pairs, measure: str, *, named: bool = True
) -> None:
    """One line a seed: the others grey behind; a few winners a colour each, many of them one colour."""
    lines: dict[tuple[int, int], Any] = {
        seed: curve.sort_values("step")[["step", measure]].to_numpy() for seed, curve in curves.groupby(SEED)
    }
    losers = [points for seed, points in lines.items() if seed not in grokked]
    winners = {seed: lines[seed] for seed in sorted(grokked) if seed in lines}
    axis.add_collection(_translucent(losers, GREY, 0.8, zorder=2))
    if named and len(winners) <= MOST_NAMED:
        for colour, (seed, points) in zip(COLOURS, winners.items(), strict=False):
            name = f"seed {seed[0]}" if seed[0] == seed[1] else f"seed {seed[0]}.{seed[1]}"
            axis.plot(*points.T, color=colour, lw=1.9, zorder=3, label=name)
    else:
        axis.add_collection(_translucent(list(winners.values()), COLOURS[0], 1.3, zorder=3))
    axis.autoscale_view()
    axis.set_ylim(-0.02, 1.03)
    quiet(axis)


def _translucent(lines: list[Any], colour: str, width: float, zorder: int) -> LineCollection:
    """Lines as one pixel image, the fainter the more there are."""
    faint = min(0.85, max(0.1, 40 / max(len(lines), 1)))
    return LineCollection(lines, colors=colour, lw=width, alpha=faint, zorder=zorder, rasterized=True)
