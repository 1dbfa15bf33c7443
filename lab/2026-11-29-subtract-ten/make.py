"""What came of ten-digit subtraction: `python make.py HOME` writes subtract-10.csv from the study's home.

Each net that grokked is asked the 10,010 problems that verify one. The page's tables are made of that file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from lab.tables import beside, markdown, rate_of, read, with_interval
from model import trust, verify
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.kind import names_of

HERE = Path(__file__).parent
NAME, ARMS = "subtract-10", ("two heads", "one head", "as written")
NUMBERS = ("init_seed", "outcome", "steps", "grok_step", "best_token", "best_exact")


def collect(home: str) -> None:
    """Write one row per vector of each arm, in the plan's order."""
    trust.let_run((HERE / "net.py").read_text(encoding="utf-8"))
    records = StudyRecords(Ledger(Home(home)), NAME)
    names = names_of(records.get_recorded_study(), records.list_configurations().values())
    rows = []
    for row in records.list_seeds():
        found = {"arm": names[row.configuration]} | {name: row[name] for name in NUMBERS} | {"correct": None}
        if row.has_grokked:
            checkpoint = records.seed(row).checkpoint()
            found["correct"] = verify(checkpoint.spec, checkpoint.theta_P).correct
        rows.append(found)
    table = pd.DataFrame(rows).astype({"grok_step": "Int64", "correct": "Int64"})
    table["arm"] = pd.Categorical(table["arm"], ARMS)
    table.sort_values(["arm", "init_seed"]).to_csv(HERE / f"{NAME}.csv", index=False)


def rates() -> str:
    """Return of each arm how many vectors grok, how many of these are verified, and the others' median exact match."""
    rows, lines = read(f"{NAME}.csv"), []
    for arm in ARMS:
        its = rows[rows["arm"] == arm]
        grokked = its[its["outcome"] == "grokked"]
        others = its[its["outcome"] != "grokked"]
        verified = f"{(grokked['correct'] == 10_010).sum()} of {len(grokked)}"
        step = f"{grokked['grok_step'].median():,.0f}" if len(grokked) else ""
        middle = f"{others['best_exact'].median():.3f}" if len(others) else ""
        lines.append((arm, with_interval(rate_of(its)), verified, step, middle))
    head = ("arm", "grokked", "verified", "median step", "median exact match of the others")
    return markdown(head, lines)


def compared() -> str:
    """Return the two planned comparisons."""
    rows = read(f"{NAME}.csv")
    arms = {arm: rows[rows["arm"] == arm] for arm in ARMS}
    base = arms.pop("two heads")
    return beside(arms, base)


if __name__ == "__main__":
    collect(*sys.argv[1:])
