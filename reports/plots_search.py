"""Pictures of a search: grok rate against each field, importance; and of probes."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill, shorten
from typing import Any

import numpy as np
import optuna
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from reports.fields import Field, shown
from reports.plots import (
    COLOURS,
    GREY,
    INK,
    SEED,
    SOFT,
    WIDEST,
    in_percent,
    in_thousands,
    new_figure,
    panels,
    quiet,
)
from search.analysis.frames import seeds_of
from search.stats.counting import PooledRate
from trainer import MEASURES, Outcome

MOST_INTERVALS = 30
"""Configurations whose intervals are drawn each."""
FEWEST_IN_A_BIN = 4
"""Configurations."""
MOST_AXES = 12
"""Fields that are drawn."""
SHUFFLES = 50
"""Of the objective, by which chance is known."""


def rate_against_fields(fields: Sequence[Field], configurations: pd.DataFrame, seeds: pd.DataFrame) -> Figure:
    """Draw one panel per field: each configuration's rate, and that of like configurations together.

    Like configurations have an interval where they have enough seeds to be pooled.
    """
    most = 3 if len(fields) % 4 == 1 else 4  # no panel alone in a row
    figure, axes = panels(len(fields), min(most, len(fields)), 2.5, sharey=True)
    for axis, field in zip(axes, fields, strict=True):
        _draw_rates(axis, field, configurations, seeds)
        _scale_field(axis, field)
        axis.tick_params(labelleft=True, labelsize=8)
    axes[0].set_ylim(bottom=0)
    in_percent(axes[0].yaxis)
    figure.supylabel("grok rate (95 % intervals)", fontsize=10)
    return figure


def _draw_rates(axis: Axes, field: Field, configurations: pd.DataFrame, seeds: pd.DataFrame) -> None:
    """Draw a point for each configuration and, in front, one for those with like values together."""
    x = field.positions()
    joined = "o-"
    if field.categories:
        x -= 0.15  # left of the pooled rate
        joined = "o"  # there is nothing between two categories

    if len(configurations) <= MOST_INTERVALS:
        axis.vlines(x, configurations["grok_rate_low"], configurations["grok_rate_high"], color=GREY, lw=1, zorder=2)
    alpha = min(0.9, max(0.3, 25 / len(x)))
    axis.scatter(x, configurations["grok_rate"], s=18, color=SOFT, alpha=alpha, lw=0, zorder=3)

    bins = pooled(field, configurations, seeds)
    if len(bins) < 2:  # one point says nothing of the field
        return
    place, rate, low, high = np.array(bins).T
    spread = np.nan_to_num(np.maximum([rate - low, high - rate], 0))
    axis.errorbar(
        place,
        rate,
        spread,
        fmt=joined,
        ms=4.5,
        lw=1.6,
        elinewidth=1.4,
        capsize=2.5,
        color=COLOURS[0],
        zorder=4,
    )


def _scale_field(axis: Axes, field: Field) -> None:
    """Label the axis of a field: its categories, or a few numbers."""
    quiet(axis)
    axis.set_xlabel(field.title, fontsize=9, parse_math=False)
    if field.categories:
        width = max(9, 36 // len(field.categories))  # characters
        names = []
        for name in field.categories:
            shortened = shorten(name, 3 * width, placeholder="…")
            names.append(fill(shortened, width))
        axis.set_xticks(range(len(names)), names, parse_math=False)
        axis.set_xlim(-0.5, len(names) - 0.5)
        axis.grid(False, axis="x")
        return

    positions = field.positions()
    low = np.nanmin(positions)
    high = np.nanmax(positions)
    if field.log:
        axis.set_xscale("log")
        axis.minorticks_off()
    # Within a factor of 5 there may be no power of ten, and beyond 60 powers alone are enough.
    if field.log and high > 5 * low:
        subs = (1, 2, 5) if high < 60 * low else (1,)
        axis.xaxis.set_major_locator(LogLocator(subs=subs))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(3))
    axis.xaxis.set_major_formatter(lambda value, _: shown(value))


def pooled(field: Field, configurations: pd.DataFrame, seeds: pd.DataFrame) -> list[tuple[float, float, float, float]]:
    """Return (position, rate, low, high) of like configurations together, clustered by seed.

    low, high: NaN where they have too few seeds to pool.
    Like configurations have the same category, or are in one of up to five bins of equal size. Those that
    lack the field, or in which it is not searched, are left out.
    """
    x = pd.Series(field.positions(), index=configurations.index)
    is_judged = x.notna() & (configurations["seeds"] > 0)
    judged = configurations[is_judged].assign(x=x)
    bins: Any = judged["x"]
    if not field.categories:
        count = min(5, len(judged) // FEWEST_IN_A_BIN, judged["x"].nunique())
        if count < 2:
            return []
        bins = pd.qcut(judged["x"], count, duplicates="drop")

    points = []
    for _, part in judged.groupby(bins, observed=True):
        is_own = seeds["configuration"].isin(part["configuration"])
        rate = PooledRate.of(seeds_of(seeds[is_own]))
        low, high = rate.interval or (np.nan, np.nan)
        position = float(part["x"].median())
        points.append((position, rate.rate, low, high))
    return points


# Optuna's importance, of a study in memory


@dataclass(frozen=True)
class Importances:
    """Share of each field in what the fields explain, greatest first.

    chance: above the greatest share of all fields in 95 % of shuffles. ends: the least and the greatest share of each,
    as it is and with seeds drawn anew, with replacement; empty if there are too few.
    """

    shares: list[tuple[Field, float]]
    chance: float
    ends: list[tuple[float, float]]


def importances(
    fields: Sequence[Field], objective: np.ndarray, redrawn: Sequence[np.ndarray] = ()
) -> Importances | None:
    """Return fANOVA's importances (Hutter et al., ICML 2014); None if all configurations did equally well.

    redrawn: the objective with seeds drawn anew, since all configurations share their seeds.
    """
    if np.ptp(objective) == 0:
        return None
    shares = _shares(fields, objective)
    ordered = sorted(fields, key=lambda field: -shares[field.path])

    # The forest finds shares in noise too: shuffled, the objective has nothing to do with any field.
    rng = np.random.default_rng(0)
    greatest = []
    for _ in range(SHUFFLES):
        by_chance = _shares(fields, rng.permutation(objective))
        greatest.append(max(by_chance.values()))
    chance = float(np.quantile(greatest, 0.95))

    # As it is too: the range of a share has the share.
    drawings = [shares]
    for values in redrawn:
        if np.ptp(values):
            drawings.append(_shares(fields, values))
    ends = []
    if len(drawings) > 1:
        for field in ordered:
            of_field = [drawing[field.path] for drawing in drawings]
            ends.append((min(of_field), max(of_field)))
    return Importances([(field, shares[field.path]) for field in ordered], chance, ends)


def _shares(fields: Sequence[Field], objective: np.ndarray) -> dict[str, float]:
    """Return each field's share by its path. The forest's seed is fixed, so that a page is the same every time."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    distributions = {field.path: _distribution(field) for field in fields}
    columns = [field.labels() if field.categories else field.numbers() for field in fields]
    for value, *numbers in zip(objective, *columns, strict=True):
        params = dict(zip(distributions, numbers, strict=True))
        trial = optuna.trial.create_trial(params=params, distributions=distributions, value=float(value))
        study.add_trial(trial)

    forest = optuna.importance.FanovaImportanceEvaluator(n_trees=32, max_depth=8, seed=0)
    return dict(optuna.importance.get_param_importances(study, evaluator=forest))


def _distribution(field: Field) -> BaseDistribution:
    if field.categories:
        return CategoricalDistribution(field.categories)
    numbers = field.numbers()
    low = float(np.nanmin(numbers))
    high = float(np.nanmax(numbers))
    return FloatDistribution(low, high, log=field.log)


def importance_figure(importance: Importances, coloured: bool) -> Figure:
    """Draw one bar per field, and a line at what chance gives; coloured: bars beyond the line."""
    fields, shares = zip(*importance.shares, strict=True)
    rows = range(len(fields))
    figure = new_figure(WIDEST, 0.36 * len(fields) + 1.1)
    axis = figure.subplots()
    chance = importance.chance
    most = max(chance, *shares)
    colours = [COLOURS[0] if coloured and share > chance else GREY for share in shares]
    axis.barh(rows, shares, height=0.6, zorder=2, color=colours)
    if importance.ends:
        lows, highs = zip(*importance.ends, strict=True)
        axis.hlines(rows, lows, highs, color=INK, lw=1.2, zorder=4)
        most = max(most, *highs)
    most *= 1.05

    axis.axvline(chance, color=INK, lw=1.2, ls=(0, (4, 3)), zorder=3)
    # The text stands on the side of the line that has more room.
    side, ha = (-5, "right") if chance > most / 2 else (5, "left")
    axis.annotate(
        "95 % of shuffles have no share above",
        (chance, 1),
        (side, 3),
        fontsize=9,
        ha=ha,
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color=INK,
    )

    axis.set_yticks(rows, [field.name for field in fields], parse_math=False)
    axis.invert_yaxis()
    axis.set_xlabel("share of the variation that the fields explain")
    axis.set_xlim(0, most)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    quiet(axis, grid="x")
    return figure


# Probes

KNOWN_COLUMNS = {"study", "configuration", *SEED, "step", *MEASURES}


def probes_of(curves: pd.DataFrame) -> list[str]:
    """Return the columns of curves that are probes and not empty."""
    return [name for name in curves if name not in KNOWN_COLUMNS and curves[name].notna().any()]


def probes_figure(curves: pd.DataFrame, probes: list[str], seeds: pd.DataFrame) -> Figure:
    """Draw one panel per probe: mean and middle half of the seeds at each step, grokked seeds and others apart."""
    key = ["configuration", *SEED]
    outcomes = seeds[key].assign(grokked=seeds["outcome"] == Outcome.GROKKED)
    table = curves.merge(outcomes, on=key)
    figure, axes = panels(len(probes), min(2, len(probes)), 2.7, sharex=True)
    for axis, name in zip(axes, probes, strict=True):
        # Grokked seeds afterwards: they are drawn in front.
        for grokked, rows in table.groupby("grokked"):
            label, colour = ("grokked", COLOURS[0]) if grokked else ("others", GREY)
            count = len(rows[key].drop_duplicates())
            by_step = rows.groupby("step")[name]
            low = by_step.quantile(0.25)
            high = by_step.quantile(0.75)
            axis.fill_between(low.index, low, high, color=colour, alpha=0.25, lw=0)
            axis.plot(by_step.mean(), color=colour, lw=1.8, label=f"{label}: {count:,}")

        axis.set_title(name, fontsize=11, loc="left", parse_math=False)
        axis.tick_params(labelbottom=True)
        in_thousands(axis)
        quiet(axis)
    axes[0].legend(frameon=False, fontsize=9)
    figure.supxlabel("training step", fontsize=10)
    return figure
