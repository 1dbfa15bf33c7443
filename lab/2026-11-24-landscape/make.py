"""Widths of the basins of a study's seeds: `make.py HOME` completes basins.csv from its records, and compares."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from scipy.stats import mannwhitneyu

from lab.landscape import Landscape
from search.store.home import Home
from search.store.study_records import open_records
from search.tracking.artifacts import ArtifactCache
from search.tracking.tracking import client_for

HERE = Path(__file__).parent
MEASURES = ("curvature", "sharpest", "flattest", "random")


def measure(home: Path, target: Path) -> None:
    """Append a row a seed to a CSV file, but for those that it has: configuration, seed, outcome, basin."""
    records = open_records(Home(home), "again")
    done = set(pd.read_csv(target)["name"]) if target.exists() else set()
    with ArtifactCache(client_for(records), records) as artifacts:
        for row in sorted(records.list_seeds(), key=lambda r: (r["init_seed"] % 8, r["configuration"])):
            seed = artifacts.seed(row)
            facts = {"again_at": seed.configuration.recipe.as_dict()["again_at"], "seed": row["init_seed"]}
            name = "{again_at} {seed}".format(**facts)
            if name in done:
                continue
            basin = Landscape(seed.configuration.spec, seed.result.theta_P).basin()
            facts |= {"name": name, "grokked": row["outcome"] == "grokked"} | asdict(basin)
            frame = pd.DataFrame([facts])
            frame.to_csv(target, mode="a", header=not target.exists(), index=False, float_format="%.5g")


def compare(basins: pd.DataFrame) -> str:
    """Return the medians of winners and losers, and the rank test, as a table."""
    winners, losers = (basins[basins["grokked"] == grokked] for grokked in (True, False))
    lines = [f"| | {len(winners)} that grokked | {len(losers)} that did not | p |", "|---|---|---|---|"]
    for name in MEASURES:
        p = mannwhitneyu(winners[name], losers[name]).pvalue
        lines.append(f"| {name} | {winners[name].median():.3g} | {losers[name].median():.3g} | {p:.2g} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]), HERE / "basins.csv")
    print(compare(pd.read_csv(HERE / "basins.csv")))
