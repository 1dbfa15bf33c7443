"""Table and picture of the grok rate by weight decay and train fraction.

python lab/2026-11-29-decay-fraction/make.py HOME    # writes decay-fraction.csv from the study's home
python lab/2026-11-29-decay-fraction/make.py         # draws the picture
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

import search
from lab.tables import BLUE, GREY, GROKKED, markdown, read
from reports.plots import new_figure, quiet
from search.stats.counting import GrokRate

HERE = Path(__file__).parent
NAME, SEEDS, DRAWS = "decay-fraction", 64, 2_000
KEPT = ["decay", "train", "init_seed", "data_seed", "outcome", "steps", "grok_step", "best_exact"]


def collect(home: str) -> None:
    """Write one row per seed of the study."""
    fields = search.records(NAME, "configurations", home=home).set_index("configuration")
    rows = search.records(NAME, "seeds", home=home)
    rows["decay"] = rows["configuration"].map(fields["recipe.weight_decay"])
    rows["train"] = rows["configuration"].map(fields["task.train"])
    whole = rows.astype({"grok_step": "Int64"}).sort_values(["train", "decay", "init_seed"])
    whole[KEPT].to_csv(HERE / f"{NAME}.csv", index=False)


@cache
def rows() -> pd.DataFrame:
    return read(f"{NAME}.csv")


def grid() -> tuple[list[float], list[float]]:
    """Return the decays and the fractions."""
    return sorted(rows()["decay"].unique()), sorted(rows()["train"].unique())


def won(decay: float, train: float) -> np.ndarray:
    """Return whether each seed grokked in a cell, in the order of seeds."""
    its = rows()[(rows()["decay"] == decay) & (rows()["train"] == train)].sort_values("init_seed")
    return its["outcome"].eq("grokked").to_numpy()


def cell(decay: float, train: float) -> str:
    its = won(decay, train)
    low, high = GrokRate(int(its.sum()), len(its)).interval
    return f"{int(its.sum())} ({low:.0%}–{high:.0%})" if len(its) else "–"


def surface() -> str:
    """Return seeds of 64 that grok, with intervals: one line per decay."""
    decays, fractions = grid()
    lines = [(f"{decay:g}", *(cell(decay, train) for train in fractions)) for decay in decays]
    return markdown(("weight decay", *(f"train {train:g}" for train in fractions)), lines)


def halves_of(decays: np.ndarray, rates_ND: np.ndarray) -> np.ndarray:
    """Return the decays [N] at which logistic curves, fitted to rates by the logarithm of decay, are at a half."""
    x = np.log(decays)
    slope_N = np.full(len(rates_ND), 1.6)
    height_N = -slope_N * x.mean()
    for _ in range(30):  # Newton's method, all curves at once
        p_ND = 1 / (1 + np.exp(-(height_N[:, None] + slope_N[:, None] * x)))
        weight_ND = p_ND * (1 - p_ND)
        left_ND = rates_ND - p_ND
        g0, g1 = left_ND.sum(1), left_ND @ x
        w0, w1, w2 = weight_ND.sum(1), weight_ND @ x, weight_ND @ x**2
        determinant = w0 * w2 - w1**2
        by_height = (w2 * g0 - w1 * g1) / determinant
        by_slope = (w0 * g1 - w1 * g0) / determinant
        too_far = np.maximum(1, np.maximum(abs(by_height), abs(by_slope)) / 5)
        height_N += by_height / too_far
        slope_N += by_slope / too_far
    return np.exp(-height_N / slope_N)


def critical() -> str:
    """Return, by fraction, the decay at which half of the seeds grok on the rising side, with its interval."""
    decays, fractions = grid()
    lines = []
    for train in fractions:
        table = np.stack([won(decay, train) for decay in decays], axis=1).astype(float)
        rates = table.mean(0)
        top = int(rates.argmax())
        if rates[0] > 0.5:
            said = f"none: {rates[0]:.0%} grok at {decays[0]:g}"
        elif rates.max() < 0.5:
            said = f"none: at most {rates.max():.0%} grok, at {decays[top]:g}"
        else:
            rising = np.array(decays[: top + 1])
            draw = np.random.default_rng(0)
            picks = [table[draw.integers(len(table), size=len(table)), : top + 1].mean(0) for _ in range(DRAWS)]
            low, high = np.percentile(halves_of(rising, np.array(picks)), [2.5, 97.5])
            (half,) = halves_of(rising, rates[None, : top + 1])
            said = f"{half:.3f} ({low:.3f}–{high:.3f})"
        lines.append((f"{train:g}", said, f"{decays[top]:g}"))
    return markdown(("train", "decay at which half of the seeds grok", "decay with most"), lines)


def steps() -> str:
    """Return the median step at which seeds grok, where at least half of a cell's do."""
    decays, fractions = grid()
    lines = []
    for decay in decays:
        its = rows()[rows()["decay"] == decay].query(GROKKED)
        counts = its.groupby("train")["grok_step"].agg(["median", "size"])
        told = counts[counts["size"] >= SEEDS / 2]["median"]
        lines.append((f"{decay:g}", *(f"{told[train]:,.0f}" if train in told else "–" for train in fractions)))
    return markdown(("weight decay", *(f"train {train:g}" for train in fractions)), lines)


def picture() -> None:
    """Draw the rate by decay, one line per fraction."""
    figure = new_figure(6.4, 3.4)
    axes = figure.add_subplot()
    decays, fractions = grid()
    for n, train in enumerate(fractions):
        rates = [GrokRate(int(won(decay, train).sum()), SEEDS) for decay in decays]
        at = np.array([rate.grokked / rate.n for rate in rates])
        low, high = np.array([rate.interval for rate in rates]).T
        shade = 0.25 + 0.75 * n / (len(fractions) - 1)
        colour = (*BLUE_RGB, shade) if n else GREY
        axes.errorbar(decays, at, yerr=[at - low, high - at], fmt="o-", color=colour, capsize=2, label=f"{train:g}")
    axes.set_xscale("log")
    axes.set_xlabel("weight decay")
    axes.set_ylabel("share of 64 seeds that grok")
    axes.set_ylim(0, 1.03)
    axes.legend(title="train fraction", frameon=False, fontsize=8, title_fontsize=8, loc="upper right")
    quiet(axes)
    figure.savefig(HERE / "surface.svg", metadata={"Date": None})


BLUE_RGB = tuple(int(BLUE[n : n + 2], 16) / 255 for n in (1, 3, 5))


if __name__ == "__main__":
    if sys.argv[1:]:
        collect(sys.argv[1])
    else:
        picture()
