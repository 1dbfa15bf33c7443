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
SAME_TASK = {"addition with addition, on other data": 0, "subtraction with subtraction, on other data": 1}


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


def correlation(first_V: np.ndarray, second_V: np.ndarray) -> float:
    """Return Spearman's."""
    return float(np.corrcoef(rankdata(first_V), rankdata(second_V))[0, 1])


def across(adds_VD: np.ndarray, subtracts_VD: np.ndarray, shift: int) -> float:
    """Return the mean correlation of addition with subtraction. shift: 1 for different data, 0 for the same."""
    pairs = [correlation(adds_VD[:, d], subtracts_VD[:, (d + shift) % 2]) for d in range(2)]
    return float(np.mean(pairs))


def estimates(steps_VTD: np.ndarray) -> list[float]:
    """Return the plan's four correlations."""
    own = [correlation(steps_VTD[:, task, 0], steps_VTD[:, task, 1]) for task in SAME_TASK.values()]
    adds_VD, subtracts_VD = steps_VTD[:, 0], steps_VTD[:, 1]
    return [*own, across(adds_VD, subtracts_VD, 1), across(adds_VD, subtracts_VD, 0)]


@cache
def correlations() -> str:
    """Return the four correlations, with intervals and p."""
    steps_VTD, draw = steps(), np.random.default_rng(0)
    vectors = len(steps_VTD)
    found = estimates(steps_VTD)
    resampled = [estimates(steps_VTD[draw.integers(vectors, size=vectors)]) for _ in range(RESAMPLES)]
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)

    shuffled = [across(steps_VTD[draw.permutation(vectors), 0], steps_VTD[:, 1], 1) for _ in range(PERMUTATIONS)]
    beyond = sum(abs(value) >= abs(found[2]) - 1e-12 for value in shuffled)
    p = (beyond + 1) / (PERMUTATIONS + 1)
    names = [*SAME_TASK, "addition with subtraction, on other data", "addition with subtraction, on the same data"]
    lines = []
    for n, name in enumerate(names):
        interval = f"{low[n]:.2f} to {high[n]:.2f}"
        lines.append((name, f"{found[n]:.2f}", interval, f"{p:.2g}" if n == 2 else ""))

    # Not planned.
    own_less_across = np.mean([*resampled, found], axis=1, where=[True, True, False, False]) - [
        each[2] for each in [*resampled, found]
    ]
    low_less, high_less = np.quantile(own_less_across[:-1], (0.025, 0.975))
    name = "mean of the first two, less the third"
    lines.append((name, f"{own_less_across[-1]:.2f}", f"{low_less:.2f} to {high_less:.2f}", ""))
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
