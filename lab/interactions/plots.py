"""Picture of combinations of constraints: the lattice from the largest to the smallest model, pairs, and effects."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from lab.interactions.model import Effect, Interactions, Lattice
from model import preset
from model.fields import spelt
from reports.plots import COLOURS, GREY, INK, SOFT, WIDEST, in_percent, new_figure, quiet
from reports.table_figure import COLOURS as RATIOS

PATHS = {
    "the 57p paper's path": (("170p", "133p", "100p", "90p", "80p", "67p", "57p"), COLOURS[0]),
    "and on, by folds of 57p": (("57p", "54p", "47p"), COLOURS[2]),
}
"""Presets in the order in which constraints came in (57p paper, section 4.1), and a colour."""
NORM = Normalize(-np.log(8), np.log(8))  # of the log odds ratio
SMALL_PANELS = 5  # in a row


def lattice_figure(model: Interactions) -> Figure:
    """Draw the combinations by size and grok rate, the effects and pairs, and each constraint with and without."""
    neighbours, count = model.lattice.neighbours, len(model.lattice.constraints)
    compared = [effect for effect in model.effects if neighbours[effect.name]]
    rows = -(-len(compared) // SMALL_PANELS)
    heights = [4.7, 1.2 + 0.4 * count] + [2.35 * rows + 0.5] * bool(rows)
    figure = new_figure(WIDEST, sum(heights))
    top, middle, *bottom = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_lattice(top.subplots(), model.lattice)
    _draw_pairs(middle.subplots(), model)
    if bottom:
        _draw_neighbours(bottom[0], model.lattice, compared, rows)
    return figure


def _draw_neighbours(figure: SubFigure, lattice: Lattice, effects: Sequence[Effect], rows: int) -> None:
    axes = figure.subplots(rows, SMALL_PANELS, squeeze=False, sharex=True, sharey=True)
    for axis in axes.flat[len(effects) :]:
        axis.set_visible(False)
    for axis, effect in zip(axes.flat, effects, strict=False):
        _draw_effect(axis, lattice, effect)
    figure.suptitle("Each constraint; a point: the others alike", fontsize=11, x=0.01, ha="left")
    figure.supxlabel("grok rate without the constraint", fontsize=10)
    figure.supylabel("with it", fontsize=10)


def _rates(lattice: Lattice) -> np.ndarray:
    return np.array([grokked / n for grokked, n in lattice.counts])


def _draw_lattice(axis: Axes, lattice: Lattice) -> None:
    """Draw a point a combination, a line where two differ in one constraint alone, and the published path."""
    places = np.column_stack([[arm.spec.params for arm in lattice.arms], _rates(lattice)])
    gap = np.full((1, 2), np.nan)  # one path draws all lines
    lines = [np.vstack([places[list(pair)], gap]) for pairs in lattice.neighbours.values() for pair in pairs]
    if lines:
        axis.plot(*np.vstack(lines).T, color=GREY, lw=0.4, alpha=0.6, zorder=1)
    axis.scatter(places[:, 0], places[:, 1], s=17, color=SOFT, alpha=0.6, lw=0, zorder=2)
    for label, (names, colour) in reversed(PATHS.items()):
        if len(steps := _path(lattice, names)) > 1:
            _draw_path(axis, lattice, steps, colour, label)
    axis.set_title(
        f"{len(lattice.arms)} combinations of {len(lattice.constraints)} constraints; a line: one constraint more",
        fontsize=11, loc="left",
    )  # fmt: skip
    axis.set(xlabel="parameters", ylabel="grok rate (95 % intervals along the path)")
    axis.invert_xaxis()
    axis.margins(x=0.07)
    axis.set_ylim(bottom=-0.02)
    in_percent(axis.yaxis)
    quiet(axis)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(frameon=False, fontsize=9, reverse=True)


def _draw_path(axis: Axes, lattice: Lattice, steps: Sequence[int], colour: str, label: str) -> None:
    """Draw combinations one after the other, with intervals, and what comes in at each at the interval's end."""
    x, y = [lattice.arms[i].spec.params for i in steps], _rates(lattice)[list(steps)]
    lows, highs = zip(*(lattice.arms[i].interval for i in steps), strict=True)
    axis.plot(x, y, "o-", color=colour, lw=2.6, ms=6.5, zorder=4, label=label)
    axis.vlines(x, lows, highs, color=colour, lw=1.4, zorder=3)
    is_first = colour == COLOURS[0]  # its labels are above, those of the other path below
    style: dict[str, Any] = {
        "va": "bottom" if is_first else "top",
        "ha": "center",
        "fontsize": 8.5,
        "color": INK,
    }
    style["bbox"] = {"fc": "#ffffffd0", "ec": "none", "pad": 0.8}
    for (before, after), *place in zip(pairwise(steps), x[1:], (highs if is_first else lows)[1:], strict=True):
        levels = zip(lattice.constraints, lattice.levels[before], lattice.levels[after], strict=True)
        text = "\n".join(f"+ {name}" for name, was, has in levels if has and not was)
        offset = (0, 3 if is_first else -3)
        axis.annotate(text, tuple(place), offset, textcoords="offset points", zorder=6, parse_math=False, **style)


def _path(lattice: Lattice, names: Sequence[str]) -> list[int]:
    """Return the combinations of presets' constraints, in order, each once, whatever else the presets are."""
    places = {levels: place for place, levels in enumerate(lattice.levels)}
    applied = [{spelt(*constraint) for constraint in preset(name).applied().items()} for name in names]
    levels = (tuple(name in constraints for name in lattice.constraints) for constraints in applied)
    return list(dict.fromkeys(places[some] for some in levels if some in places))


def _draw_pairs(axis: Axes, model: Interactions) -> None:
    """Draw a triangle of cells: the ratios of odds, of each constraint on the edge, of pairs below."""
    names = model.lattice.constraints
    for effect in (*model.effects, *model.pairs):
        x, y = names.index(effect.constraints[0]), names.index(effect.constraints[-1])
        shade = RATIOS(NORM(effect.coefficient.estimate if effect.coefficient else 0.0))
        edge = INK if x == y else GREY
        axis.add_patch(Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, facecolor=shade, edgecolor=edge, lw=0.7))
        weight, colour = ("bold", INK) if effect.is_discovery else ("normal", SOFT)
        axis.text(x, y, _times(effect) or "–", ha="center", va="center", fontsize=9, weight=weight, color=colour)
    axis.set_xticks(range(len(names)), names, fontsize=9, parse_math=False)
    axis.set_yticks(range(len(names)), names, fontsize=9, parse_math=False)
    axis.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5))
    axis.set_title(
        "Ratio of the odds to grok: framed, each constraint by itself; else two together, beyond both.\n"
        "Orange: worse, blue: better; bold: believed, at a false discovery rate of 5 %; –: cannot be estimated",
        fontsize=11, loc="left",
    )  # fmt: skip
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


def _draw_effect(axis: Axes, lattice: Lattice, effect: Effect) -> None:
    """Draw the grok rate with a constraint against that without it, a point a combination of the others."""
    pairs, rates = lattice.neighbours[effect.name], _rates(lattice)
    axis.axline((0, 0), slope=1, color=GREY, lw=1, zorder=1)
    if pairs:
        without, with_it = rates[np.array(pairs)].T
        alpha = min(0.8, max(0.4, 12 / len(pairs)))
        axis.scatter(without, with_it, s=12, color=COLOURS[0], alpha=alpha, lw=0, zorder=2)
    weight = "bold" if effect.is_discovery else "normal"
    axis.set_title(f"{effect.name}  {_times(effect)}", fontsize=9.5, loc="left", parse_math=False, weight=weight)
    axis.set(aspect="equal", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axis.set_xticks((0, 0.5, 1), ("0", "50%", "100%"))
    axis.set_yticks((0, 0.5, 1), ("0", "50%", "100%"))
    axis.tick_params(labelsize=8)
    quiet(axis)


def _times(effect: Effect) -> str:
    """Return the ratio of odds as text; empty where it cannot be estimated."""
    return f"×{effect.coefficient.odds_ratio[0]:.2f}" if effect.coefficient else ""
