"""The runs that the law of size's screen ended, without it: `python make.py` writes the plan's studies.

The page's table is made of law-least.csv and of least.csv, which train.py writes.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lab.plans import write_plan
from lab.tables import GROKKED, markdown, read, with_interval
from search.stats.counting import GrokRate

HERE = Path(__file__).parent
LAW = HERE.parent / "2026-11-24-law-of-size" / "law-least.yaml"
SIZES = (32, 28, 22)
"""Numbers, in the order in which they are trained."""
RUNS = 1_024
"""Of a size in the law."""


def law_rows(size: int) -> pd.DataFrame:
    """Return the law of size's rows of a size."""
    return read("law-least.csv").query("params == @size")


def study(size: int) -> dict[str, Any]:
    """Return the study of a size's screened runs."""
    law = yaml.safe_load(LAW.read_text(encoding="utf-8"))
    rows = law_rows(size)
    is_ended = rows["outcome"].eq("screened")
    return {
        "name": f"least-{size}",
        "about": f"runs of {size} numbers that a screen had ended",
        "recipe": law["recipe"],
        "configurations": [arm for arm in law["configurations"] if arm["name"] == str(size)],
        "seeds": sorted(rows.loc[is_ended, "init_seed"].tolist()),
        "stop": {"hopeless": False},
        "resources": law["resources"],
    }


def write_studies() -> None:
    for size in SIZES:
        write_plan(HERE, study(size), f"Runs of {size} numbers that law-least's screen ended (README.md; by make.py).")


def to_the_end() -> str:
    """Return the shares that grok: of the runs that the screen had ended, and of all of a size that has ended."""
    lines = []
    for size in SIZES:
        trained, law = read("least.csv").query("size == @size"), law_rows(size)
        is_screened = law["outcome"].eq("screened")
        if set(trained["init_seed"]) != set(law.loc[is_screened, "init_seed"]):
            lines.append((size, "open", "open"))
            continue
        ended_alone = law[~is_screened]
        n = len(trained) + len(ended_alone)
        assert n == RUNS, f"{n} runs of {size} numbers"
        again, alone = (len(rows.query(GROKKED)) for rows in (trained, ended_alone))
        lines.append((size, f"{again} of {len(trained)}", with_interval(GrokRate(again + alone, n))))
    return markdown(("numbers", "of the runs that the screen ended", "of all runs"), lines)


if __name__ == "__main__":
    write_studies()
