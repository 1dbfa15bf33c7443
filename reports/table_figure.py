"""The constraint table as a picture: columns scales, rows constraints, colour the ratio of the grok rates."""

from math import log2
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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
WIDTH, HEIGHT = 1.72, 0.66  # inches of a cell


def table_figure(table: Table) -> Figure:
    """Draw the table, with what was published as marks where anything was."""
    columns = len(table.scales)
    rows = len(table.constraints)
    width = 1.5 + WIDTH * columns
    figure = new_figure(width, 1.9 + HEIGHT * rows)
    axes = figure.add_subplot()
    has_verdicts = any(cell.published.verdict for cell in table.cells.values())

    bold: list[Cell] = []
    for same in discovered(table.cells.values()):
        bold += same
    for y, (_, cells) in enumerate(table.rows()):
        for x, cell in enumerate(cells):
            if cell is not None:
                _draw(axes, x, y, cell, "bold" if cell in bold else "normal")
    axes.set_xlim(-0.02, columns + 0.02)
    axes.set_ylim(rows + 0.03, -0.03)

    # 57p becomes 57 parameters; the name of a spec without one says its parameters.
    heads = []
    for name in table.scales:
        heads.append(name if "parameters" in name else f"{name} parameters".replace("p ", " "))
    axes.set_xticks([x + 0.5 for x in range(columns)], heads)
    axes.set_yticks([y + 0.5 for y in range(rows)], table.constraints)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=10, labelcolor=INK)
    axes.spines[:].set_visible(False)
    if has_verdicts:
        title = fill(agreements(table.cells.values()), round(11.5 * width))  # characters to the inch
        axes.set_title(title, loc="left", fontsize=11, color=INK, pad=10)

    bar = figure.colorbar(
        ScalarMappable(NORM, COLOURS), ax=axes, orientation="horizontal", shrink=0.5, aspect=40, pad=0.01
    )
    labels = list(TICKS.values())
    if columns < FEW:
        labels[1::2] = ["", ""]
    bar.set_ticks([*TICKS], labels=labels)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=SOFT)
    bar.outline.set_visible(False)

    sentences = [LEGEND]
    if has_verdicts:
        sentences.append(OF_THE_PAPER)
    sentences += [f"{text}." for text in same_pairs(table.cells.values())]
    legend = fill(" ".join(sentences), round(17 * width))
    figure.supxlabel(legend, fontsize=8, color=SOFT, x=0.01, ha="left")
    return figure


def _draw(axes: Axes, x: int, y: int, cell: Cell, weight: str) -> None:
    """Draw a cell in the unit square right of x and below y, the first line of its text by a font's weight."""
    tried = cell.with_it is not None
    ratio = cell.paired.ratio if cell.paired else None
    colour: Any = UNKNOWN if tried else "white"
    if ratio is not None:
        colour = COLOURS(NORM(log2(max(ratio, 2**-2))))  # a ratio of 0 has no logarithm
    differs = cell.agreement == Agreement.CONTRADICTS
    box = Rectangle((x + 0.02, y + 0.03), 0.96, 0.94, facecolor=colour, zorder=2 + differs)  # its frame over others
    box.set(edgecolor=INK if differs else "white", linewidth=2.2)
    axes.add_patch(box)
    if ratio is None:
        box.set(hatch="////", edgecolor=GRID, linewidth=0)

    def write(down: float, text: str, size: float = 9, **style: Any) -> None:
        style = {"ha": "center", "va": "center", "color": INK if tried else SOFT, "zorder": 4, **style}
        axes.text(x + 0.5, y + down, text, fontsize=size, **style)

    words = WORDS[cell.trains] if tried else "not tried"
    if ratio:
        words += f", {times(cell)}"
    write(0.25, words, weight=weight)
    if tried:
        write(0.53, f"{count(cell.with_it)} vs {count(cell.without)}")
    if cell.paired:
        write(0.79, interval(cell, " to "), 7.5)
    if cell.published.verdict:
        mark = MARKS[cell.published.verdict]
        axes.text(x + 0.95, y + 0.2, mark, fontsize=10, ha="right", va="center", color=INK, zorder=4)
