"""Widths of the basins of a study's runs: `make.py HOME` completes basins.csv from its records.

A run that never began again has the same θ in each of the study's recipes: it counts once.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from scipy.stats import mannwhitneyu

from lab.landscape import Landscape
from lab.tables import markdown
from search.store.home import Home
from search.store.study_records import open_records

HERE = Path(__file__).parent
MEASURES = {
    "curvature": "largest eigenvalue of the Hessian", "sharpest": "step along the sharpest direction",
    "flattest": "along the flattest", "random": "along a random one",
}  # fmt: skip


def measure(home: Path, target: Path) -> None:
    """Append a row a seed to a CSV file, but for those that it has: configuration, seed, outcome, basin."""
    records = open_records(Home(home), "again")
    done = set(pd.read_csv(target)["name"]) if target.exists() else set()
    for row in sorted(records.list_seeds(), key=lambda r: (r["init_seed"] % 8, r["configuration"])):
        seed = records.seed(row)
        facts = {"again_at": seed.configuration.recipe.as_dict()["again_at"], "seed": row["init_seed"]}
        name = "{again_at} {seed}".format(**facts)
        if name in done:
            continue
        basin = Landscape(seed.configuration.spec, seed.result.theta_P).basin()
        facts |= {"name": name, "grokked": row["outcome"] == "grokked"} | asdict(basin)
        frame = pd.DataFrame([facts])
        frame.to_csv(target, mode="a", header=not target.exists(), index=False, float_format="%.5g")


def distinct(basins: pd.DataFrame) -> pd.DataFrame:
    """Return each θ once: of a seed the rows that differ in what was measured."""
    return basins.drop_duplicates(["seed", "loss", *MEASURES])


def compare(basins: pd.DataFrame) -> str:
    """Return the medians of winners and losers, and the rank test, as a table; steps in shares of θ's length."""
    basins = distinct(basins)
    groups = [basins[basins["grokked"] == grokked] for grokked in (True, False)]
    counts = [f"{len(group)}, of {group['seed'].nunique()} seeds" for group in groups]
    lines = []
    for name, words in MEASURES.items():
        medians = [float(group[name].median()) for group in groups]
        shown = [f"{m:,.0f}" if name == "curvature" else f"{100 * m:.2g} %" for m in medians]
        p = mannwhitneyu(*(group[name] for group in groups)).pvalue
        lines.append((words, *shown, f"{p:.2g}"))
    return markdown(("median", f"grokked ({counts[0]})", f"did not ({counts[1]})", "p"), lines)


def widths() -> str:
    return compare(pd.read_csv(HERE / "basins.csv"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]), HERE / "basins.csv")
    print(widths())
