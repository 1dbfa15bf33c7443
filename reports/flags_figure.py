"""Flags as a picture: a rate with its interval for each value of one flag, and for each pair of values of two."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.flags import MOST_GRIDS, Flag, Grid, Rate, rate_text
from reports.plots import COLOURS, SOFT, in_percent, new_figure, quiet
from search.study.described import shown

Row = tuple[str, Rate | None, str]
"""A line of a panel: its label, its rate, and the text beside the rate."""
# Inches.
WIDTH = 8.0
ROW_HEIGHT = 0.42
HEAD_HEIGHT = 0.7
"""Of a panel's title and axis."""
BESIDE = 1.04
"""Where texts begin along the axis of rates, which ends at 1."""


def flags_figure(flags: Sequence[Flag], grids: Sequence[Grid]) -> Figure:
    """Draw a panel for each flag and each grid, MOST_GRIDS at most: points with intervals, and their numbers."""
    panels = [*map(_of_flag, flags), *map(_of_grid, grids)]
    drawn = panels[:MOST_GRIDS]
    heights = [HEAD_HEIGHT + ROW_HEIGHT * len(rows) for _, rows in drawn]

    figure = new_figure(WIDTH, sum(heights))
    grid = figure.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)
    for axis, panel in zip(grid.flat, drawn, strict=True):
        _draw(axis, *panel)
    grid.flat[-1].set_xlabel("grok rate, 95 % interval", color=SOFT)
    if len(panels) > MOST_GRIDS:
        note = f"The first {MOST_GRIDS} of {len(panels)}"
        figure.supxlabel(note, fontsize=8, color=SOFT, x=0.01, ha="left")
    return figure


def _of_flag(flag: Flag) -> tuple[str, list[Row]]:
    rows: list[Row] = []
    for side in flag.sides:
        against = str(side.against or "")
        rows.append((side.text, side.rate, against))
    return f"{flag.study}: {flag.name}", rows


def _of_grid(grid: Grid) -> tuple[str, list[Row]]:
    rows: list[Row] = []
    first, second = grid.flags
    for (a, b), rate in grid.cells.items():
        label = f"{first} {shown(a)}, {second} {shown(b)}"
        rows.append((label, rate, ""))
    return f"{grid.study}: {first} × {second}", rows


def _draw(axis: Axes, title: str, rows: Sequence[Row]) -> None:
    """Draw one panel, its first row on top."""
    for y, (_, rate, beside) in enumerate(rows):
        text = f"{rate_text(rate)}\n{beside}".strip()
        axis.text(BESIDE, y, text, va="center", fontsize=8, parse_math=False)
        if rate and rate.rate is not None:
            axis.plot(rate.rate, y, "o", color=COLOURS[0], ms=6)
        if rate and rate.interval:
            axis.plot(rate.interval, [y, y], color=COLOURS[0], lw=5, alpha=0.35, solid_capstyle="butt")

    labels = [label for label, *_ in rows]
    axis.set_yticks(range(len(rows)), labels, parse_math=False)
    # Downwards, and beyond the outermost rates, whose points would else be cut in half.
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(-0.02, 1.02)
    axis.set_title(title, fontsize=11, loc="left", parse_math=False)
    quiet(axis, grid="x")
    in_percent(axis.xaxis)
