"""The runs that the law of size's screen ended, without it: `python make.py` writes the plan's studies."""

from pathlib import Path
from typing import Any

import yaml

from lab.plans import write_plan
from lab.tables import read

HERE = Path(__file__).parent
LAW = HERE.parent / "2026-11-24-law-of-size" / "law-least.yaml"
SIZES = (32, 28, 22)
"""Numbers, in the order in which they are trained."""


def study(size: int) -> dict[str, Any]:
    """Return the study of a size's screened runs."""
    law = yaml.safe_load(LAW.read_text(encoding="utf-8"))
    rows = read("law-least.csv")
    is_ended = rows["outcome"].eq("screened") & rows["params"].eq(size)
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


if __name__ == "__main__":
    write_studies()
