"""Table of grok rates by the number of numbers.

python lab/2026-11-24-law-of-size/make.py STUDY HOME    writes STUDY.csv of what a home has recorded: a row a seed
"""

import sys
from pathlib import Path

import pandas as pd

from lab.tables import markdown, read, vectors, with_interval
from search.analysis.frames import RecordSet

FOLDER = Path(__file__).parent
BEGINS = (10_000, 20_000)
"""Ages at which a seed began anew that had not reached half of the tokens (again_at, again_most)."""
COLUMNS = (
    "params", "configuration", "init_seed", "data_seed", "outcome", "steps", "grok_step", "held", "best_exact",
    "best_token", "proved",
)  # fmt: skip


def law() -> str:
    """Return a line a size: seeds and vectors that grok, and how many of those are proved."""
    rows = pd.concat([read(path.name) for path in FOLDER.glob("law-*.csv")])
    lines = []
    for params, group in sorted(rows.groupby("params"), reverse=True):
        grokked = group[group["outcome"] == "grokked"]
        of_seeds = with_interval(len(grokked), len(group))
        proved = f"{grokked['proved'].eq(True).sum()} of {len(grokked)}"
        lines.append((params, of_seeds, with_interval(*vectors(group)), proved))
    return markdown(("numbers", "runs that grok", "of vectors", "proved right on all pairs"), lines)


def tries(curve: pd.DataFrame) -> int:
    """Return how many vectors a seed drew, by its curve."""
    begun = 1
    for step in BEGINS:
        seen = curve[curve["step"] <= step]
        if curve["step"].max() <= step or seen["token"].max() >= 0.5:
            break
        begun += 1
    return begun


def main(study: str, home: str) -> None:
    seeds = pd.DataFrame(RecordSet([study], home).seeds())
    files = Path(home).glob(f"artifacts/{study}/**/curves.parquet")
    curves = pd.concat(pd.read_parquet(file) for file in files)
    begun = {key: tries(curve) for key, curve in curves.groupby(["configuration", "init_seed"])}
    keys = zip(seeds["configuration"], seeds["init_seed"], strict=True)
    seeds["tries"] = pd.array([begun.get(key) for key in keys], dtype="Int64")
    ended = seeds.dropna(subset="tries")  # of the others nothing is recorded yet
    seeds = ended[[*COLUMNS, "tries"]].sort_values(["params", "init_seed"])
    seeds.to_csv(FOLDER / f"{study}.csv", index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
