"""Is a vector's luck shared between tasks?

python lab/2026-11-29-lucky-for-both/make.py HOME    # writes lucky-both.csv from the study's home

Axes: V vector, T task (adds, subtracts), D data seed.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

import search
from lab.tables import markdown, read
from search.stats.counting import GrokRate

HERE = Path(__file__).parent
NAME, LATER = "lucky-both", 30_500
"""LATER: than every step at which a run groks, for those that do not."""
KEPT = ["title", "init_seed", "data_seed", "outcome", "steps", "grok_step", "best_exact"]
TASKS = ("adds", "subtracts")
RESAMPLES, PERMUTATIONS = 10_000, 10_000
ANSWER = 2
ROWS = (
    "addition with addition, on other data",
    "subtraction with subtraction, on other data",
    "addition with subtraction, on other data",
    "addition with subtraction, on the same data",
    "mean of the first two, less the third",  # not planned
)


def collect(home: str) -> None:
    """Write one row per run of the study."""
    rows = search.records(NAME, "seeds", home=home).astype({"grok_step": "Int64"})
    rows.sort_values(["title", "init_seed", "data_seed"])[KEPT].to_csv(HERE / f"{NAME}.csv", index=False)


@cache
def steps() -> np.ndarray:
    """Return the step [V, T, D] at which each run groks."""
    rows = read(f"{NAME}.csv")
    step = rows["grok_step"].where(rows["outcome"].eq("grokked"), LATER).astype(float)
    table = rows.assign(step=step).pivot_table(index="init_seed", columns=["title", "data_seed"], values="step")
    return table.to_numpy().reshape(len(table), len(TASKS), -1)


def correlation(first_NV: np.ndarray, second_NV: np.ndarray) -> np.ndarray:
    """Return Spearman's of N samples of vectors [N]."""
    apart = [ranks - ranks.mean(-1, keepdims=True) for ranks in (rankdata(x, axis=-1) for x in (first_NV, second_NV))]
    first, second = apart
    product: np.ndarray = (first * second).sum(-1) / np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    return product


def across(adds_NVD: np.ndarray, subtracts_NVD: np.ndarray, shift: int) -> np.ndarray:
    """Return the mean correlation of addition with subtraction [N]. shift: 1 for different data, 0 for the same."""
    pairs = [correlation(adds_NVD[..., d], subtracts_NVD[..., (d + shift) % 2]) for d in range(2)]
    mean: np.ndarray = np.mean(pairs, axis=0)
    return mean


def estimates(steps_NVTD: np.ndarray) -> np.ndarray:
    """Return the correlations of ROWS [N, 5], of N samples of vectors."""
    own = [correlation(steps_NVTD[..., task, 0], steps_NVTD[..., task, 1]) for task in range(2)]
    adds_NVD, subtracts_NVD = steps_NVTD[..., 0, :], steps_NVTD[..., 1, :]
    other, same = (across(adds_NVD, subtracts_NVD, shift) for shift in (1, 0))
    return np.stack([*own, other, same, np.mean(own, axis=0) - other], axis=-1)


def correlations() -> str:
    """Return the correlations, with intervals and the planned p."""
    steps_VTD, draw = steps(), np.random.default_rng(0)
    vectors = len(steps_VTD)
    found = estimates(steps_VTD[None])[0]
    resampled = estimates(steps_VTD[draw.integers(vectors, size=(RESAMPLES, vectors))])
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)

    shuffled = np.stack([draw.permutation(vectors) for _ in range(PERMUTATIONS)])
    by_chance = across(steps_VTD[shuffled, 0], steps_VTD[None, :, 1], 1)
    beyond = (np.abs(by_chance) >= abs(found[ANSWER]) - 1e-12).sum()
    lines = []
    for n, name in enumerate(ROWS):
        p = f"{(beyond + 1) / (PERMUTATIONS + 1):.2g}" if n == ANSWER else ""
        lines.append((name, f"{found[n]:.2f}", f"{low[n]:.2f} to {high[n]:.2f}", p))
    return markdown(("correlation over vectors", "Spearman's", "95 %", "p"), lines)


def vectors() -> str:
    """Return in how many of their runs vectors grok, by task."""
    grokked_VT = (steps() < LATER).sum(axis=2)
    lines = []
    for adds in (2, 1, 0):
        counts = [int(((grokked_VT[:, 0] == adds) & (grokked_VT[:, 1] == subtracts)).sum()) for subtracts in (2, 1, 0)]
        lines.append((f"adds in {adds}", *counts))
    return markdown(("of two runs each", "subtracts in 2", "in 1", "in 0"), lines)


def rates() -> str:
    """Return the shares that grok by task and data seed."""
    rows = read(f"{NAME}.csv")
    lines = []
    for (task, data), its in rows.groupby(["title", "data_seed"]):
        rate = GrokRate(int(its["outcome"].eq("grokked").sum()), len(its))
        low, high = rate.interval
        lines.append((task, data, f"{rate.grokked} of {rate.n}", f"{low:.1%} to {high:.1%}"))
    return markdown(("task", "data seed", "grokked", "95 %"), lines)


if __name__ == "__main__":
    collect(*sys.argv[1:])
