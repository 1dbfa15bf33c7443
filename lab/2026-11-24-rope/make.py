"""The tables of README.md."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pandas as pd
from scipy.stats import permutation_test

from lab.tables import count, markdown, of_vectors, rate, read, with_interval
from reports.table import constraint_table
from search.analysis.frames import RecordSet

SIZES = {
    "122p": "none",
    "62p": "arc, K = V, O = Qᵀ",
    "52p": "62p's, one norm, query/key norm shared",
    "44p": "62p's, one norm, K = V = Q",
    "36p": "44p's, but K = rotation of Q; query/key norm shared, down = rotation of upᵀ",
}
STUDIES = ("rope-five", "rope-six")
RECORDS = [str(files("studies") / f"records/rope-constraints-{of}.parquet") for of in ("configurations", "seeds")]


def rates() -> str:
    """Return grok rates by size: of each plan's runs, and of the second's initial vectors."""
    rows = []
    for size, ties in SIZES.items():
        runs = [f"{study}.csv where arm == '{size}'" for study in STUDIES]
        shown = [with_interval(rate(r)) if (read(f"{s}.csv")["arm"] == size).any() else "–"
                 for r, s in zip(runs, STUDIES, strict=True)]  # fmt: skip
        near = count(runs[1], "best_exact >= 0.98 and outcome != 'grokked'")[0] if shown[1] != "–" else "–"
        rows.append([size, ties, *shown, of_vectors(runs[1]) if shown[1] != "–" else "–", near])
    head = ["size", "ties", "rope-five: runs", "rope-six: runs", "its vectors", "others at 0.98 or more"]
    return markdown(head, rows)


def listed(*names: str) -> str:
    """Return grok rates of lists of arms, in the order in which they were trained."""
    rows = []
    for name in names:
        table = read(f"{name}.csv")
        for arm in table["arm"].unique():
            best = table[table["arm"] == arm]["best_exact"].nlargest(3)
            share = with_interval(rate(f"{name}.csv where arm == '{arm}'"))
            rows.append([name, arm, share, ", ".join(f"{x:.3f}" for x in best)])
    return markdown(["list", "arm", "runs that grok", "best exact match"], rows)


def arms() -> str:
    """Return grok rates of the lists of arms."""
    return listed("rope-arms", "rope-arms-2", "rope-arms-3", "rope-arms-4")


def published() -> str:
    """Return grok rates of the published recipes."""
    return listed("rope-published")


def constraints() -> str:
    """Return each constraint at each scale: seeds that grok with it and without it, and the ratio of the rates."""
    records = RecordSet(RECORDS)
    rows = [
        (cell["constraint"], cell["scale"], cell["params_saved"], cell["grokked_with"], cell["grokked_without"],
         cell["verified_with"], f"×{cell['ratio']:.2f} ({cell['ratio_low']:.2f}–{cell['ratio_high']:.2f})")
        for cell in constraint_table(records.configurations(), seeds=records.seeds()).tidy()
    ]  # fmt: skip
    head = ("constraint", "scale", "saves", "with it", "without it", "verified with it", "ratio (95 %)")
    return markdown(head, rows)


def crossed() -> str:
    """Return of 137p's eight vectors the runs that grok and those that reach 0.99, and whether vectors differ."""
    runs = read("rope-137-crossed.csv")
    rows, lines = [], []
    for name, reached in (("grok", runs["outcome"] == "grokked"), ("0.99 exact match", runs["best_exact"] >= 0.99)):
        rows.append([name, *reached.groupby(runs["init_seed"]).sum(), f"{reached.sum()} of {len(runs)}"])
        lines.append(f"{name}: p = {_vectors_differ(reached, runs['init_seed']):.2g}")
    vectors = sorted(runs["init_seed"].unique())
    return f"{markdown(['runs that', *map(str, vectors), 'all'], rows)}\n\nVectors differ? {'; '.join(lines)}."


def _vectors_differ(reached: pd.Series, vector: pd.Series) -> float:
    """Return the p-value of the variance between vectors, by 10,000 permutations of the runs."""

    def variance(*groups: np.ndarray, axis: int) -> np.ndarray:
        return np.var([group.mean(axis=axis) for group in groups], axis=0)

    groups = [group.to_numpy(float) for _, group in reached.groupby(vector)]
    rng = np.random.default_rng(137)
    return float(permutation_test(groups, variance, n_resamples=10_000, alternative="greater", rng=rng).pvalue)
