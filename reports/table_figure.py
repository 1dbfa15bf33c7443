"""The constraint table as a picture: columns scales, rows constraints, colour the ratio of the grok rates."""

from math import log2
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from model.fields import COUNT
from reports.plots import GRID, INK, SOFT, new_figure
from reports.table import Cell, Table
from reports.table_text import WORDS, agreements, count, discovered, interval, same_pairs, times
from reports.verdicts import Agreement

COLOURS = LinearSegmentedColormap.from_list("ratio", ["#d9822b", "#f3c99b", "#f4f4f2", "#a9c9ea", "#4a8fd1"])
"""Orange to blue, which all kinds of colour vision tell apart; dark ink is legible on all of it."""
NORM = Normalize(-2, 2)  # of the ratio's logarithm to base 2
UNKNOWN = "#e9e9e7"
MARKS = {"works": "✓", "fails": "✗"}
LEGEND = (
    "k/n: seeds that grokked, with the constraint vs without it. ×: the ratio of these rates on the same seeds and its "
    "95 % interval. Bold: left at a false discovery rate of 5 % over all ratios. Grey: no ratio."
)
OF_THE_PAPER = "✓: the 57p paper says that it works, ✗: that it fails; heavy frame: we see the opposite."
TICKS = {-2: "×¼ or less", -1: "×½", 0: "×1", 1: "×2", 2: "×4 or more"}
FEW = 3
"""Columns below which the colours' legend has room for its ends and its middle alone."""
# Inches of a cell.
WIDTH = 1.72
HEIGHT = 0.66


def table_figure(table: Table) -> Figure:
    """Draw the table, with what was published as marks where anything was."""
    columns = len(table.scales)
    all_cells = table.cells.values()
    width = 1.5 + WIDTH * columns
    figure = new_figure(width, 1.9 + HEIGHT * len(table.constraints))
    axes = figure.add_subplot()
    _draw_grid(axes, table)
    sentences = [LEGEND]
    if any(cell.published.verdict for cell in all_cells):
        title = fill(agreements(all_cells), round(11.5 * width))  # characters to the inch
        axes.set_title(title, loc="left", fontsize=11, color=INK, pad=10)
        sentences.append(OF_THE_PAPER)

    colours = ScalarMappable(NORM, COLOURS)
    bar = figure.colorbar(colours, ax=axes, orientation="horizontal", shrink=0.5, aspect=40, pad=0.01)
    labels = list(TICKS.values())
    if columns < FEW:
        labels[1::2] = ["", ""]
    bar.set_ticks([*TICKS], labels=labels)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=SOFT)
    bar.outline.set_visible(False)

    sentences += [f"{text}." for text in same_pairs(all_cells)]
    legend = fill(" ".join(sentences), round(17 * width))
    figure.supxlabel(legend, fontsize=8, color=SOFT, x=0.01, ha="left", parse_math=False)
    return figure


def _draw_grid(axes: Axes, table: Table) -> None:
    """Draw all cells, and their scales and constraints along the axes."""
    bold: list[Cell] = []
    for same in discovered(table.cells.values()):
        bold += same
    for y, (_, cells) in enumerate(table.rows()):
        for x, cell in enumerate(cells):
            if cell is not None:
                _draw(axes, x, y, cell, "bold" if cell in bold else "normal")

    columns = len(table.scales)
    rows = len(table.constraints)
    axes.set_xlim(-0.02, columns + 0.02)
    axes.set_ylim(rows + 0.03, -0.03)

    # 57p becomes 57 parameters. Names of other specs say theirs, and those that studies give are their own.
    heads = [f"{name[:-1]} parameters" if COUNT.fullmatch(name) else name for name in table.scales]
    axes.set_xticks([x + 0.5 for x in range(columns)], heads, parse_math=False)
    axes.set_yticks([y + 0.5 for y in range(rows)], table.constraints, parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=10, labelcolor=INK)
    axes.spines[:].set_visible(False)


def _draw(axes: Axes, x: int, y: int, cell: Cell, weight: str) -> None:
    """Draw a cell in the unit square right of x and below y, the first line of its text by a font's weight."""
    ratio = cell.paired.ratio if cell.paired else None
    box = Rectangle((x + 0.02, y + 0.03), 0.96, 0.94, linewidth=2.2, edgecolor="white")
    if cell.agreement == Agreement.CONTRADICTS:
        # Above its neighbours, which would else cover half of its frame.
        box.set(edgecolor=INK, zorder=3)
    else:
        box.set(zorder=2)
    if ratio is None:
        colour: Any = UNKNOWN if cell.with_it else "white"
        box.set(hatch="////", edgecolor=GRID, linewidth=0)
    else:
        colour = COLOURS(NORM(log2(max(ratio, 2**-2))))  # a ratio of 0 has no logarithm
    box.set(facecolor=colour)
    axes.add_patch(box)

    def write(down: float, text: str, size: float = 9, weight: str = "normal") -> None:
        axes.text(
            x + 0.5,
            y + down,
            text,
            fontsize=size,
            weight=weight,
            ha="center",
            va="center",
            color=INK if cell.with_it else SOFT,
            zorder=4,
        )

    words = WORDS[cell.trains] if cell.with_it else "not tried"
    if ratio:
        words += f", {times(cell)}"
    write(0.25, words, weight=weight)
    if cell.with_it:
        write(0.53, f"{count(cell.with_it)} vs {count(cell.without)}")
    if cell.paired:
        write(0.79, interval(cell, " to "), 7.5)
    if cell.published.verdict:
        mark = MARKS[cell.published.verdict]
        axes.text(x + 0.95, y + 0.2, mark, fontsize=10, ha="right", va="center", color=INK, zorder=4)
