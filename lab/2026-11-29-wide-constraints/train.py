"""Train the plan's four scales, one arm after the other: `python train.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and outcomes.csv have. An arm's rows are added to outcomes.csv when all its vectors have
ended. FIRST STEP: of the arms in the plan's order every STEP-th, from FIRST on, so that several can train side by side.
"""

import fcntl
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import search

HERE = Path(__file__).parent
SCALES = ("57p", "74p", "100p", "170p")
OUTCOMES = HERE / "outcomes.csv"
COLUMNS = ["init_seed", "outcome", "stages", "steps", "grok_step", "params", "best_exact", "verified"]


def arms() -> list[tuple[str, dict[str, Any]]]:
    """Return each arm as a study of its own, with its scale."""
    found = []
    for scale in SCALES:
        study = yaml.safe_load((HERE / f"wide-{scale}.yaml").read_text(encoding="utf-8"))
        for number, configuration in enumerate(study["configurations"]):
            name = f"wide-{scale}-{number}"
            found.append((scale, study | {"name": name, "configurations": [configuration]}))
    return found


def is_done(scale: str, arm: str) -> bool:
    """True if the arm's rows are in outcomes.csv."""
    if not OUTCOMES.exists():
        return False
    rows = pd.read_csv(OUTCOMES)
    return bool(((rows.scale == scale) & (rows.arm == arm)).any())


def add(scale: str, arm: str, rows: pd.DataFrame) -> None:
    """Add an arm's rows to outcomes.csv; one process at a time."""
    found = rows.sort_values("init_seed")[COLUMNS]
    found.insert(0, "arm", arm)
    found.insert(0, "scale", scale)
    with OUTCOMES.open("a", encoding="utf-8", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0, 2)
        found.to_csv(file, index=False, header=file.tell() == 0, lineterminator="\n")


def main(folder: str, first: str = "0", step: str = "1") -> None:
    """Train every `step`-th arm from `first` on."""
    for scale, study in arms()[int(first) :: int(step)]:
        arm = study["configurations"][0]["name"]
        if is_done(scale, arm):
            continue
        trained = search.run(study, home=Path(folder) / study["name"])
        add(scale, arm, trained.seeds)


if __name__ == "__main__":
    main(*sys.argv[1:])
