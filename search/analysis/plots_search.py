"""Pictures of a search: the grok rate against what was searched, what mattered, all fields at once; of probes
over steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from textwrap import fill
from typing import Any

import numpy as np
import optuna
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from search.analysis.fields import Field, shown
from search.analysis.plots import (
    COLOURS,
    GREY,
    INK,
    SEED,
    SOFT,
    WIDEST,
    in_percent,
    in_thousands,
    new_figure,
    quiet,
)
from search.stats.counting import GrokRate
from trainer import MEASURES, Outcome

MOST_INTERVALS = 30  # configurations whose intervals are drawn each
FEWEST_IN_A_BIN = 4  # configurations
MOST_AXES = 12
SHUFFLES = 10
RATES = LinearSegmentedColormap.from_list("rates", ["#d3d8de", "#8fb3dc", COLOURS[0], "#0b2545"])


def rate_against_fields(fields: Sequence[Field], configurations: pd.DataFrame) -> Figure:
    """A panel a field: each configuration's rate, and that of all the seeds of like configurations."""
    columns = min(3 if len(fields) % 4 == 1 else 4, len(fields))  # no panel alone in a row
    rows = ceil(len(fields) / columns)
    figure = new_figure(max(6.0, WIDEST / 4 * columns), 2.5 * rows + 0.2)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axis in panels.flat[len(fields) :]:
        axis.set_visible(False)
    for axis, field in zip(panels.flat, fields, strict=False):
        _panel(axis, field, configurations)
        axis.tick_params(labelleft=True, labelsize=8)
    top = max(_highest(field, configurations) for field in fields)
    panels[0, 0].set_ylim(-0.03 * top, min(1.03, top * 1.06))
    in_percent(panels[0, 0])
    figure.supylabel("grok rate (95 % intervals)", fontsize=10)
    return figure


def _draws_intervals(configurations: pd.DataFrame) -> bool:
    return len(configurations) <= MOST_INTERVALS


def _highest(field: Field, configurations: pd.DataFrame) -> float:
    column = "grok_rate_high" if _draws_intervals(configurations) else "grok_rate"
    ends = [high for *_, high in pooled(field, configurations)]
    return max(0.05, float(configurations[column].max()), *ends)


def _panel(axis: Axes, field: Field, configurations: pd.DataFrame) -> None:
    x, rates = field.positions(), configurations["grok_rate"].to_numpy(dtype=float)
    if field.categories:  # left of the pooled rate
        x = x - _beside(x)
        axis.set_xlim(-0.5, len(field.categories) - 0.5)
    if _draws_intervals(configurations):
        ends = configurations[["grok_rate_low", "grok_rate_high"]].to_numpy(dtype=float)
        axis.vlines(x, *ends.T, color=GREY, lw=1, zorder=2)
    faint = min(0.9, max(0.3, 25 / len(x)))
    axis.scatter(x, rates, s=18, color=SOFT, alpha=faint, lw=0, zorder=3)
    bins = pooled(field, configurations)
    if len(bins) > 1:
        at, middle, low, high = np.array(bins).T
        style = "o" if field.categories else "o-"
        axis.errorbar(at, middle, (np.maximum(middle - low, 0), np.maximum(high - middle, 0)), fmt=style,
                      ms=4.5, lw=1.6, elinewidth=1.4, capsize=2.5, color=COLOURS[0], zorder=4)  # fmt: skip
    axis.set_xlabel(field.title, fontsize=9, parse_math=False)
    if field.log:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if np.nanmax(x) < 60 * np.nanmin(x) else (1,)))
        axis.xaxis.set_major_formatter(lambda value, _: shown(value))
        axis.xaxis.set_minor_formatter(NullFormatter())
    quiet(axis)
    if field.categories:
        _name_categories(axis, field)
    elif not field.log:
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(lambda value, _: shown(value))


def _beside(x: np.ndarray) -> np.ndarray:
    """How far left of their category the configurations are drawn, up to nine side by side."""
    found = np.zeros(len(x))
    for place in np.unique(x[~np.isnan(x)]):
        mine = np.flatnonzero(x == place)
        found[mine] = np.resize(np.linspace(0.36, 0.1, min(len(mine), 9)), len(mine))
    return found


def _name_categories(axis: Axes, field: Field) -> None:
    room = max(9, 36 // len(field.categories))  # characters
    labels = [fill(_short(name, 3 * room), room) for name in field.categories]
    crowded = len(labels) > 4 and max(map(len, labels)) > 5
    axis.set_xticks(range(len(labels)), labels, rotation=25 if crowded else 0,
                    ha="right" if crowded else "center", parse_math=False)  # fmt: skip
    axis.grid(False, axis="x")


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def pooled(field: Field, configurations: pd.DataFrame) -> list[tuple[float, float, float, float]]:
    """(position, rate, low, high) of the seeds of like configurations together: a category, or one of up to
    five bins of equal size. Configurations where the field had no say are left out.
    """
    x = pd.Series(field.positions(), index=configurations.index)
    known = configurations[x.notna() & (configurations["seeds"] > 0)].assign(x=x)
    if field.categories:
        parts = [part for _, part in known.groupby("x")]
    else:
        count = min(5, len(known) // FEWEST_IN_A_BIN, known["x"].nunique())
        if count < 2:
            return []
        bins = pd.qcut(known["x"], count, duplicates="drop")
        parts = [part for _, part in known.groupby(bins, observed=True)]
    found = []
    for part in parts:
        counts = [int(part[column].sum()) for column in ("grokked", "seeds", "given_up")]
        rate = GrokRate(counts[0], counts[1], counts[2], missed=float(part["wrongly"].sum()))
        found.append((float(part["x"].median()), rate.rate, *rate.interval))
    return found


@dataclass(frozen=True)
class Importances:
    """Each field's share of what the fields explain, the greatest first; and what nine in ten are below when
    the objective is shuffled.
    """

    shares: list[tuple[Field, float]]
    chance: float


def importances(fields: Sequence[Field], objective: np.ndarray) -> Importances | None:
    """fANOVA (Hutter et al., ICML 2014) over the configurations; None if all of them did equally well."""
    if np.ptp(objective) == 0:
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = np.random.default_rng(0)
    shares = _shares(fields, objective)
    shuffled = [list(_shares(fields, rng.permutation(objective)).values()) for _ in range(SHUFFLES)]
    found = sorted(((f, shares[f.path]) for f in fields), key=lambda pair: -pair[1])
    return Importances(found, float(np.quantile(shuffled, 0.9)))


def _shares(fields: Sequence[Field], objective: np.ndarray) -> dict[str, float]:
    study = optuna.create_study(direction="maximize")
    distributions = {f.path: _distribution(f) for f in fields}
    columns = [_filled(f) for f in fields]
    for i, value in enumerate(objective):
        params = {f.path: column[i] for f, column in zip(fields, columns, strict=True)}
        trial = optuna.trial.create_trial(params=params, distributions=distributions, value=float(value))
        study.add_trial(trial)
    forest = optuna.importance.FanovaImportanceEvaluator(n_trees=32, max_depth=8, seed=0)
    return dict(optuna.importance.get_param_importances(study, evaluator=forest))


def _filled(field: Field) -> list[Any]:
    """The field's values; where it had no say, some of the others: not to stand for its condition."""
    values = np.array(field.labels() if field.categories else field.numbers(), dtype=object)
    if field.holds.any():
        drawn = np.random.default_rng(0).choice(values[field.holds], len(values))
        values = np.where(field.holds, values, drawn)
    return values.tolist()


def _distribution(field: Field) -> BaseDistribution:
    if field.categories:
        return CategoricalDistribution(field.categories)
    numbers = field.numbers()
    return FloatDistribution(min(numbers), max(numbers), log=field.log)


def importance_figure(found: Importances) -> Figure:
    """A bar a field, and a line at what chance gives."""
    fields, shares = zip(*found.shares, strict=True)
    figure = new_figure(8.5, 0.36 * len(fields) + 1.1)
    axis = figure.subplots()
    axis.barh(range(len(fields)), shares, height=0.6, zorder=2,
              color=[COLOURS[0] if share > found.chance else GREY for share in shares])  # fmt: skip
    axis.axvline(found.chance, color=INK, lw=1.2, ls=(0, (4, 3)), zorder=3)
    axis.annotate("nine in ten shares with shuffled rates are below", (found.chance, 1), (5, 3), fontsize=9,
                  xycoords=("data", "axes fraction"), textcoords="offset points", color=INK)  # fmt: skip
    axis.set_yticks(range(len(fields)), [field.name for field in fields], parse_math=False)
    axis.invert_yaxis()
    axis.set_xlabel("share of the variation that the fields explain")
    axis.set_xlim(0, max(1.05 * max(shares), 1.7 * found.chance))
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    quiet(axis, grid="x")
    return figure


def parallel_figure(fields: Sequence[Field], configurations: pd.DataFrame) -> Figure:
    """Every configuration as a line over the fields' axes, coloured by grok rate, high rates in front."""
    fields = fields[:MOST_AXES]
    rates = configurations["grok_rate"].to_numpy(dtype=float)
    y_CF = np.column_stack([_heights(f) for f in fields])
    figure = new_figure(max(6.0, min(WIDEST, 1.55 * len(fields) + 1.5)), 4.8)
    axis = figure.subplots()
    norm = Normalize(0, max(float(rates.max()), 1e-9))
    most = max(len(rates), 1)
    for i in np.argsort(rates, kind="stable"):
        high = norm(rates[i])
        axis.plot(range(len(fields)), y_CF[i], color=RATES(high), lw=0.7 + 1.3 * high, zorder=2 + high,
                  alpha=min(0.95, max(0.25, 60 / most) + high), rasterized=True)  # fmt: skip
    for place, field in enumerate(fields):
        _axis_of(axis, place, field, room=130 // len(fields))
    axis.set(xlim=(-0.35, len(fields) - 0.3), ylim=(-0.12, 1.06))
    axis.set_axis_off()
    bar = figure.colorbar(ScalarMappable(norm, RATES), ax=axis, pad=0.01, fraction=0.03)
    bar.set_label("grok rate")
    bar.ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    bar.outline.set_visible(False)
    return figure


def _heights(field: Field) -> np.ndarray:
    """The configurations' places on the field's axis, 0 to 1; equal categories side by side."""
    x = field.positions()
    if field.categories:
        spread = min(0.25, 0.01 * len(x)) / len(field.categories)
        return (x + 0.5) / len(field.categories) + np.linspace(-spread, spread, len(x))
    low, high = _ends(field)
    x = np.log(x) if field.log else x
    return (x - low) / (high - low)


def _ends(field: Field) -> tuple[float, float]:
    numbers = np.array(field.numbers())
    numbers = np.log(numbers) if field.log else numbers
    return float(np.nanmin(numbers)), float(np.nanmax(numbers))


def _axis_of(axis: Axes, place: int, field: Field, room: int) -> None:
    """A vertical line with the field's name below and real values beside it, of up to `room` characters."""
    axis.vlines(place, 0, 1, color=SOFT, lw=1, zorder=5)
    axis.text(place, -0.03, fill(field.title, 15, break_long_words=False), ha="center", va="top", fontsize=8,
              color=INK, parse_math=False)  # fmt: skip
    if field.categories:
        ticks = [((i + 0.5) / len(field.categories), name) for i, name in enumerate(field.categories)]
    else:
        low, high = _ends(field)
        values = low + (high - low) * np.linspace(0, 1, 5)
        real = np.exp(values) if field.log else values
        ticks = [(i / 4, shown(float(f"{value:.2g}"))) for i, value in enumerate(real)]
    for height, name in ticks:
        box = {"fc": "#ffffffc0", "ec": "none", "pad": 0.8}
        axis.text(place + 0.05, height, _short(name, room), fontsize=7.5, va="center", zorder=7, color=INK,
                  parse_math=False, bbox=box)  # fmt: skip


# Probes

KNOWN = {"study", "configuration", *SEED, "step", *MEASURES}
GROUPS = (("others", GREY), ("grokked", COLOURS[0]))


def probes_of(curves: pd.DataFrame) -> list[str]:
    """The columns of curves that are probes and say something."""
    return [name for name in curves if name not in KNOWN and curves[name].notna().any()]


def probes_figure(curves: pd.DataFrame, probes: list[str], seeds: pd.DataFrame) -> Figure:
    """A panel a probe: mean and middle half over seeds at each step, the grokked and the others apart."""
    key = ["configuration", *SEED]
    became = seeds.assign(grokked=seeds["outcome"] == Outcome.GROKKED)[[*key, "grokked"]]
    table = curves.merge(became, on=key)
    columns = min(2, len(probes))
    rows = ceil(len(probes) / columns)
    figure = new_figure(4.8 * columns, 2.7 * rows + 0.4)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axis in grid.flat[len(probes) :]:
        axis.set_visible(False)
    for axis, name in zip(grid.flat, probes, strict=False):
        for (label, colour), (_, some) in zip(GROUPS, _split(table), strict=True):
            steps = some.groupby("step")[name]
            if not len(some):
                continue
            low, high = steps.quantile(0.25), steps.quantile(0.75)
            count = len(some[key].drop_duplicates())
            axis.fill_between(low.index, low, high, color=colour, alpha=0.25, lw=0)
            axis.plot(steps.mean(), color=colour, lw=1.8, label=f"{label}: {count:,}")
        axis.set_title(name, fontsize=11, loc="left", parse_math=False)
        axis.tick_params(labelbottom=True)
        in_thousands(axis)
        quiet(axis)
    grid.flat[0].legend(frameon=False, fontsize=9)
    figure.supxlabel("training step", fontsize=10)
    return figure


def _split(table: pd.DataFrame) -> list[tuple[bool, pd.DataFrame]]:
    grokked = table["grokked"].to_numpy(dtype=bool)
    return [(which, table[np.equal(grokked, which)]) for which in (False, True)]
