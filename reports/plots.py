"""Pictures: seeds' curves, time to grok, parameters against grok rate; and what all pictures share."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from math import ceil
from textwrap import fill
from typing import Any, Literal

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from search.stats.counting import FEWEST_SEEDS, pareto
from search.stats.intervals import clustered
from trainer import Outcome

GREY = "#b9bec5"
COLOURS = ("#1f5aa6", "#c4432b", "#2b8a57", "#8a4fbf", "#b8860b", "#0f8b8d")
INK = "#22272e"
SOFT = "#6b737d"
GRID = "#e6e8eb"
WIDEST = 11.0  # inches; a page shows 96 pixels of its own to the inch
DPI = 130
LINE = 88
"""Characters of a title or label as wide as a picture."""
SEED = ["init_seed", "data_seed"]
Pairs = Collection[tuple[int, int]]
"""Seeds, by these two numbers."""


def new_figure(width: float, height: float) -> Figure:
    """Return a figure in inches that draws without a display."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def panels(count: int, columns: int, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels of a height in inches, in rows of `columns`, and their axes."""
    rows = ceil(count / columns)
    figure = new_figure(WIDEST, height * rows + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for axis in grid.flat[count:]:
        axis.set_visible(False)
    return figure, list(grid.flat[:count])


def quiet(axis: Axes, *, grid: Literal["both", "x", "y"] = "both") -> None:
    """Draw a pale grid behind what the axes show, and no box around it."""
    axis.grid(color=GRID, lw=0.8, axis=grid)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(GREY)
    axis.tick_params(color=GREY)


def in_thousands(axis: Axes) -> None:
    """Write steps along x as 20,000."""
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def in_percent(axis: Axis) -> None:
    """Write rates along an axis as 2.5%, at round values."""
    axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(lambda rate, _: f"{100 * rate:.3g}%")


def png(figure: Figure) -> bytes:
    """Return the picture as a .png file."""
    buffer = BytesIO()
    canvas = FigureCanvasAgg(figure)
    # `savefig` would draw twice where the layout is constrained.
    canvas.draw()
    image.imsave(buffer, np.asarray(canvas.buffer_rgba()), format="png", dpi=DPI)
    return buffer.getvalue()


def image_of(figure: Figure, suffix: str) -> bytes:
    """Return the picture as a .png or .svg file; the same figure makes the same bytes."""
    if suffix == ".png":
        return png(figure)
    buffer = BytesIO()
    # Without a salt the ids of elements are random.
    with matplotlib.rc_context({"svg.hashsalt": "adder-search"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


# Curves


def curves_figure(curves: pd.DataFrame, grokked: Pairs, title: str) -> Figure:
    """Draw exact match and token accuracy against steps, one line per seed, grokked seeds in front.

    curves: rows as the Parquet artifacts have them; grokked: (init_seed, data_seed) pairs.
    """
    figure = new_figure(WIDEST, 6.4)
    top, bottom = figure.subplots(2, 1, sharex=True)
    figure.suptitle(fill(title, LINE), fontsize=13, parse_math=False)

    _seed_lines(top, curves, grokked, "exact")
    top.set_ylabel("exact match\n(selection problems)")
    _seed_lines(bottom, curves, grokked, "token")
    bottom.set_ylabel("token accuracy\n(selection problems)")

    bottom.set_xlabel("training step")
    in_thousands(bottom)
    if 0 < len(grokked) <= len(COLOURS):
        top.legend(loc="upper left", edgecolor="none", framealpha=0.7)
    return figure


def small_multiples(groups: Sequence[tuple[str, pd.DataFrame, Pairs]]) -> Figure:
    """Draw exact match against steps, one panel per configuration: (title, its curves, its grokked seeds)."""
    columns = min(3, len(groups))
    characters = round(10.5 * WIDEST / columns) - 5
    titles = [fill(title, characters) for title, *_ in groups]
    # All panels are as high as the one with the longest title.
    most_breaks = max(title.count("\n") for title in titles)
    height = 2.6 + 0.17 * most_breaks
    figure, axes = panels(len(groups), columns, height, sharex=True, sharey=True)

    for axis, title, (_, curves, grokked) in zip(axes, titles, groups, strict=True):
        _seed_lines(axis, curves, grokked, "exact", named=False)
        axis.set_title(title, fontsize=10, loc="left", parse_math=False)
        axis.tick_params(labelsize=8, labelbottom=True)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        in_thousands(axis)
    figure.supxlabel("training step", fontsize=10)
    figure.supylabel("exact match", fontsize=10)
    return figure


def _seed_lines(axis: Axes, curves: pd.DataFrame, grokked: Pairs, measure: str, *, named: bool = True) -> None:
    """Draw a line per seed: losers grey behind; a few winners with a colour and a name each, many in one colour."""
    winners = []
    losers = []
    names = []
    for (init, data), curve in curves.groupby(SEED):  # in the order of the seeds' numbers
        points = curve.sort_values("step")[["step", measure]].to_numpy()
        if (init, data) in grokked:
            winners.append(points)
            names.append(f"seed {init}" if init == data else f"seed {init}.{data}")
        else:
            losers.append(points)

    axis.add_collection(_translucent(losers, GREY, 0.8, zorder=2))
    if named and len(winners) <= len(COLOURS):
        for points, name, colour in zip(winners, names, COLOURS, strict=False):
            axis.plot(*points.T, color=colour, lw=1.9, zorder=3, label=name)
    else:
        axis.add_collection(_translucent(winners, COLOURS[0], 1.3, zorder=3))
    # Collections, unlike `plot`, do not scale the axes.
    axis.autoscale_view()
    axis.set_ylim(-0.02, 1.03)
    quiet(axis)


def _translucent(lines: list[Any], colour: str, width: float, zorder: int) -> LineCollection:
    """Return lines as one pixel image, the fainter the more there are."""
    alpha = min(0.85, max(0.1, 40 / max(len(lines), 1)))
    return LineCollection(lines, colors=colour, lw=width, alpha=alpha, zorder=zorder, rasterized=True)


# Time to grok


@dataclass(frozen=True)
class TimeToGrok:
    """The share of seeds that have grokked by a step, with its 95 % band; arrays over `steps`, from 0 on.

    marks: last steps of the censored seeds. end: how far the curve goes.
    """

    steps: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    marks: np.ndarray
    end: float

    def at(self, steps: np.ndarray) -> np.ndarray:
        """Return the share at some steps."""
        return self.share[np.searchsorted(self.steps, steps, side="right") - 1]


def time_to_grok(seeds: pd.DataFrame) -> TimeToGrok:
    """Return Kaplan and Meier's estimate of when seeds grok (JASA 53, 1958), with the log-log band.

    Of several configurations, which share their seeds, the band is clustered by seed; NaN with fewer than FEWEST_SEEDS.
    Failed, diverged and stopped seeds stay at risk to their budgets: a seed that was stopped since it would
    not grok tells more than that it had not yet. Censored ones leave at their last steps.

    Axes: S seeds.
    """
    from scipy.stats import CensoredData, ecdf

    grokked = (seeds["outcome"] == Outcome.GROKKED).to_numpy()
    censored = (seeds["outcome"] == Outcome.CENSORED).to_numpy()
    ends = seeds["budget"].where(~censored, seeds["steps"])
    ends = ends.where(~grokked, seeds["grok_step"])
    ends_S = ends.to_numpy(dtype=float)

    survival = ecdf(CensoredData(uncensored=ends_S[grokked], right=ends_S[~grokked])).sf
    with warnings.catch_warnings():
        # Where the share is 0 or 1 there is no band: what it is there is said below.
        warnings.simplefilter("ignore", RuntimeWarning)
        band = survival.confidence_interval(method="log-log")

    # The band is one of survival, and turned upside down; there is none where no seed or every seed has grokked.
    none = survival.probabilities == 1
    every = survival.probabilities == 0
    low = np.where(none, 0.0, 1 - band.high.probabilities)
    # Once every seed at risk has grokked, the lower end stays what it was: more was not shown.
    known = pd.Series(np.where(every, np.nan, low))
    low = known.ffill().fillna(0.0).to_numpy()
    high = np.where(none, 0.0, 1 - band.low.probabilities)
    high = np.where(every, 1.0, high)

    # All begin with 0 at step 0, where SciPy has no point.
    columns = (survival.quantiles, 1 - survival.probabilities, low, high)
    steps, share, low, high = (np.concatenate(([0.0], column)) for column in columns)
    curve = TimeToGrok(steps, share, low, high, marks=ends_S[censored], end=float(ends_S.max()))
    if seeds["configuration"].nunique() > 1:
        low, high = _clustered_band(seeds, curve, ends_S, grokked, censored)
        return replace(curve, low=low, high=high)
    return curve


def _clustered_band(
    seeds: pd.DataFrame, curve: TimeToGrok, ends_S: np.ndarray, grokked_S: np.ndarray, censored_S: np.ndarray
) -> np.ndarray:
    """Return lower and upper ends at each step. A censored seed counts by its chance to have grokked since."""
    codes, names = pd.factorize(pd.MultiIndex.from_frame(seeds[SEED]))
    if len(names) < FEWEST_SEEDS:
        return np.full((2, len(curve.steps)), np.nan)

    # A seed's configurations rise and fall together, so they are one observation of so many tries.
    tries = np.bincount(codes).tolist()
    before_S = curve.at(ends_S)
    left_S = np.maximum(1 - before_S, 1e-12)  # no 0 / 0 where all have grokked
    ends = []
    for step, now in zip(curve.steps, curve.share, strict=True):
        # P(grokked by now | not by its end) = (F(now) - F(end)) / (1 - F(end))
        since_S = np.clip((now - before_S) / left_S, 0, 1)
        open_S = np.where(censored_S, since_S, 0.0)
        chances_S = np.where(grokked_S, ends_S <= step, open_S)
        successes = np.bincount(codes, chances_S).tolist()
        ends.append(clustered(successes, tries))
    return np.array(ends).T


def time_figure(groups: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw time-to-grok curves, one per group of seeds, with bands and the marks of censored seeds."""
    figure = new_figure(WIDEST, 4.4)
    axis = figure.subplots()
    # Bands lie over each other: the more there are, the fainter each.
    alpha = 0.14 if len(groups) <= 3 else 0.07
    top = 0.0
    for colour, (name, seeds) in zip(COLOURS, groups.items(), strict=False):
        curve = time_to_grok(seeds)
        # Every line goes on, as it is, to the end of the last seed.
        steps = np.append(curve.steps, curve.end)
        lines = (curve.share, curve.low, curve.high)
        share, low, high = (np.append(line, line[-1]) for line in lines)

        axis.step(steps, share, where="post", color=colour, lw=2, label=fill(name, LINE))
        axis.fill_between(steps, low, high, step="post", color=colour, alpha=alpha, lw=0)
        # For an empty line that is not clipped the layout would keep the figure's corner free.
        if len(curve.marks):
            shares = curve.at(curve.marks)
            axis.plot(curve.marks, shares, "|", color=colour, ms=10, mew=1.4, clip_on=False)
        top = max(top, share.max(), np.nan_to_num(high).max())

    axis.set(xlabel="training step", ylabel="share of seeds grokked", xlim=(0, None))
    # Room below for the line at 0, and above for the highest; where little grokked, no less than a tenth.
    ceiling = min(1.02, max(top * 1.08, 0.1))
    axis.set_ylim(-0.012 * max(top, 0.1), ceiling)
    in_percent(axis.yaxis)
    in_thousands(axis)
    quiet(axis)
    if len(groups) > 1:
        for text in axis.legend(loc="upper left", frameon=False).get_texts():
            text.set_parse_math(False)
    return figure


# Parameters against grok rate

BEHIND_LABELS = {"fc": "#ffffffb0", "ec": "none", "pad": 1}
"""A box, since labels lie over intervals."""


def front_figure(configurations: pd.DataFrame) -> Figure:
    """Draw parameters against grok rate, one interval per configuration; the Pareto front in front, labelled."""
    judged = configurations[configurations["seeds"] > 0]
    members = pareto(judged["params"].tolist(), judged["grok_rate"].tolist())
    on_front = np.array(members, dtype=bool)
    front = judged[on_front].sort_values("params")
    rest = judged[~on_front]

    figure = new_figure(WIDEST, 5)
    axis = figure.subplots()
    # Intervals hide each other in a large search.
    alpha = 0.9 if len(judged) <= 60 else 0.5
    _draw_rates(axis, rest, GREY, 22, alpha, zorder=2)
    _draw_rates(axis, front, COLOURS[0], 46, alpha, zorder=4)

    stairs = front.drop_duplicates("params")  # equals in size and rate have one label
    axis.step(stairs["params"], stairs["grok_rate"], where="post", color=COLOURS[0], lw=1.2, alpha=0.6, zorder=3)
    for row in stairs.itertuples():
        axis.annotate(
            _front_label(row, front),
            (row.params, row.grok_rate),
            xytext=(-7, 3),
            textcoords="offset points",
            ha="right",
            fontsize=9,
            color=INK,
            parse_math=False,
            bbox=BEHIND_LABELS,
            zorder=6,
        )

    axis.set(xlabel="parameters", ylabel="grok rate (95 % interval)")
    _scale_parameters(axis, judged["params"].min(), judged["params"].max())
    axis.set_ylim(-0.015, min(1.03, judged["grok_rate_high"].max() * 1.08))
    in_percent(axis.yaxis)
    quiet(axis)
    return figure


def _draw_rates(axis: Axes, rows: pd.DataFrame, colour: str, size: float, alpha: float, zorder: int) -> None:
    """Draw a point for each configuration, above its interval. size: of a point. alpha: of the intervals."""
    sizes = rows["params"]
    axis.vlines(sizes, rows["grok_rate_low"], rows["grok_rate_high"], color=colour, lw=1.2, alpha=alpha, zorder=zorder)
    axis.scatter(sizes, rows["grok_rate"], color=colour, s=size, lw=0, zorder=zorder + 1)


def _scale_parameters(axis: Axes, low: int, high: int) -> None:
    """Leave room for labels left of their points; logarithmic if sizes differ by a factor of 3 or more."""
    if high < 3 * low:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        span = high - low
        axis.set_xlim(low - 0.16 * span - 0.5, high + 0.04 * span + 0.5)
        return

    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    axis.xaxis.set_minor_locator(NullLocator())
    in_thousands(axis)
    axis.set_xlim(low * (low / high) ** 0.16, high * (high / low) ** 0.04)


def _front_label(row: Any, front: pd.DataFrame) -> str:
    """Return the preset's name, or a key, with counts, and how many on the front are as small."""
    # A spec without a name has words there, which are too long for a label.
    name = row.rung if " " not in row.rung else str(row.configuration)[:6]
    equals = int((front["params"] == row.params).sum())
    more = f" and {equals - 1} more" if equals > 1 else ""
    return f"{name}{more}: {row.grokked:,} of {row.seeds:,}"
