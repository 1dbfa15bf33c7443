"""Shares of the variance among runs of crossed vectors, data seeds and splits.

python lab/2026-11-29-luck-modular/make.py HOME    # writes luck-modular.csv from the study's home
python lab/2026-11-29-luck-modular/make.py         # draws the picture

An outcome of a vector v, a data seed d and a split s is a mean, an effect of each, of each pair, and a rest, all
random, fitted by moments: analysis of variance of a crossing in which each cell has one run. What comes out negative
is 0. Intervals: 2.5 and 97.5 % of what the same estimate finds in crossings that are simulated with normal effects of
the estimated variances. p: how often vectors differ as much among themselves when they are shuffled within each pair
of the other two; of data seeds and splits alike.

Axes: V vector, D data seed, S split.
"""

from __future__ import annotations

import sys
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np

import search
from lab.tables import BLUE, GREY, markdown, read
from reports.plots import new_figure, quiet
from search.stats.counting import GrokRate

HERE = Path(__file__).parent
NAME, STEPS = "luck-modular", 3_000
KEPT = ["init_seed", "data_seed", "split_seed", "outcome", "steps", "grok_step", "best_exact"]
AXES = ("init_seed", "data_seed", "split_seed")
SOURCES = ("initial vector", "data order", "split")
CROSSINGS, PERMUTATIONS = 2_000, 10_000


def collect(home: str) -> None:
    """Write one row per run of the study."""
    fields = search.records(NAME, "configurations", home=home).set_index("configuration")
    rows = search.records(NAME, "seeds", home=home)
    rows["split_seed"] = rows["configuration"].map(fields["task.split_seed"])
    whole = rows.astype({"grok_step": "Int64"}).sort_values([*AXES])
    whole[KEPT].to_csv(HERE / f"{NAME}.csv", index=False)


@cache
def outcomes() -> dict[str, np.ndarray]:
    """Return outcomes [V, D, S] by name."""
    rows = read(f"{NAME}.csv").sort_values([*AXES])
    shape = [rows[axis].nunique() for axis in AXES]
    assert len(rows) == np.prod(shape)
    grokked = rows["outcome"].eq("grokked")
    step = rows["grok_step"].where(grokked, STEPS).astype(float)
    return {
        "grokked": grokked.to_numpy(float).reshape(shape),
        "logarithm of the step": np.log(step.to_numpy()).reshape(shape),
    }


def variances(x_VDS: np.ndarray) -> dict[tuple[int, ...], float]:
    """Return estimated variances by the axes that decide together: of one, of two, and of all three, the rest."""
    squares = {}
    effects: dict[tuple[int, ...], np.ndarray] = {(): np.full_like(x_VDS, x_VDS.mean())}
    for count in (1, 2, 3):
        for axes in combinations(range(3), count):
            others = tuple(n for n in range(3) if n not in axes)
            mean = np.broadcast_to(x_VDS.mean(others, keepdims=True), x_VDS.shape)
            below = [effect for of, effect in effects.items() if set(of) < set(axes)]
            effects[axes] = mean - sum(below)
            free = np.prod([x_VDS.shape[n] - 1 for n in axes])
            squares[axes] = float((effects[axes] ** 2).sum() / free)
    rest = squares[0, 1, 2]
    found = {(0, 1, 2): rest}
    for axes in combinations(range(3), 2):
        (other,) = {0, 1, 2} - set(axes)
        found[axes] = (squares[axes] - rest) / x_VDS.shape[other]
    for n in range(3):
        with_others = sum(square for axes, square in squares.items() if len(axes) == 2 and n in axes)
        runs = x_VDS.size / x_VDS.shape[n]
        found[n,] = (squares[n,] - with_others + rest) / runs
    return {axes: max(value, 0.0) for axes, value in found.items()}


def shares(x_VDS: np.ndarray) -> dict[tuple[int, ...], float]:
    found = variances(x_VDS)
    total = sum(found.values()) or 1.0
    return {axes: value / total for axes, value in found.items()}


@cache
def intervals(name: str) -> dict[tuple[int, ...], tuple[float, float]]:
    """Return the intervals of an outcome's shares."""
    x_VDS = outcomes()[name]
    estimated = variances(x_VDS)
    draw = np.random.default_rng(0)
    drawn = []
    for _ in range(CROSSINGS):
        crossing = np.zeros(x_VDS.shape)
        for axes, variance in estimated.items():
            sizes = [size if n in axes else 1 for n, size in enumerate(x_VDS.shape)]
            crossing = crossing + variance**0.5 * draw.normal(size=sizes)
        drawn.append(shares(crossing))
    return {
        axes: tuple(np.quantile([its[axes] for its in drawn], (0.025, 0.975)))  # type: ignore[misc]
        for axes in drawn[0]
    }


def p_of(x_VDS: np.ndarray, axis: int) -> float:
    """Return how often an axis that is shuffled within the others' cells differs as much among its own entries."""
    rows = np.moveaxis(x_VDS, axis, 0).reshape(x_VDS.shape[axis], -1)
    draw = np.random.default_rng(axis)
    observed = rows.mean(1).var()
    shuffled = (draw.permuted(rows, axis=0).mean(1).var() for _ in range(PERMUTATIONS))
    return float((1 + sum(value >= observed - 1e-12 for value in shuffled)) / (1 + PERMUTATIONS))


def name_of(axes: tuple[int, ...]) -> str:
    return " × ".join(SOURCES[n] for n in axes) if len(axes) < 3 else "all three (the rest)"


def table() -> str:
    """Return each source's share of the variance of both outcomes, with intervals, and p of single sources."""
    lines = []
    for axes in shares(outcomes()["grokked"]):
        line = [name_of(axes)]
        for name, x_VDS in outcomes().items():
            low, high = intervals(name)[axes]
            p = f", p = {p_of(x_VDS, axes[0]):.4f}" if len(axes) == 1 else ""
            line.append(f"{shares(x_VDS)[axes]:.0%} ({low:.0%}–{high:.0%}){p}")
        lines.append((len(axes) == 3, len(axes), line))
    ordered = [line for *_, line in sorted(lines, key=lambda its: its[:2])]
    return markdown(("who decides", *outcomes()), ordered)


def rates() -> str:
    """Return how the rates of single vectors, data seeds and splits spread."""
    x_VDS = outcomes()["grokked"]
    lines = []
    for n, source in enumerate(SOURCES):
        rows = np.moveaxis(x_VDS, n, 0).reshape(x_VDS.shape[n], -1)
        spread = np.sort(rows.mean(1))
        lines.append((source, len(rows), f"{spread[0]:.0%}", f"{np.median(spread):.0%}", f"{spread[-1]:.0%}"))
    return markdown(("source", "how many", "least of its rates", "median", "most"), lines)


def whole() -> str:
    """Return how many runs grok of all."""
    x_VDS = outcomes()["grokked"]
    rate = GrokRate(int(x_VDS.sum()), x_VDS.size)
    return f"{rate.grokked} of {rate.n:,}"


def picture() -> None:
    """Draw the rate of each vector, data seed and split, sorted."""
    figure = new_figure(6.4, 3.0)
    axes = figure.add_subplot()
    x_VDS = outcomes()["grokked"]
    for n, (source, colour) in enumerate(zip(SOURCES, (BLUE, GREY, "#c2603b"), strict=True)):
        rows = np.moveaxis(x_VDS, n, 0).reshape(x_VDS.shape[n], -1)
        spread = np.sort(rows.mean(1))
        axes.plot(np.linspace(0, 1, len(spread)), spread, "o-", color=colour, label=source)
    axes.set_xticks([0, 1], ["least lucky", "luckiest"])
    axes.set_ylabel("share of runs that grok")
    axes.set_ylim(0, 1.03)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    quiet(axes)
    figure.savefig(HERE / "luck.svg", metadata={"Date": None})


if __name__ == "__main__":
    if sys.argv[1:]:
        collect(sys.argv[1])
    else:
        picture()
