"""Train the plan's four scales, one arm after the other: `python train.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and wide-constraints.csv have. An arm's rows are added to wide-constraints.csv when all its
vectors have ended. FIRST STEP: of the arms in the plan's order every STEP-th, from FIRST on, so that several can train
side by side.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from lab import outcomes

HERE = Path(__file__).parent
SCALES = ("57p", "74p", "100p", "170p")
OUTCOMES = HERE / "wide-constraints.csv"


def arms() -> list[tuple[str, dict[str, Any]]]:
    """Return each arm as a study of its own, with its scale."""
    found = []
    for scale in SCALES:
        study = yaml.safe_load((HERE / f"wide-{scale}.yaml").read_text(encoding="utf-8"))
        for number, configuration in enumerate(study["configurations"]):
            name = f"wide-{scale}-{number}"
            found.append((scale, study | {"name": name, "configurations": [configuration]}))
    return found


def main(folder: str, first: str = "0", step: str = "1") -> None:
    """Train every `step`-th arm from `first` on."""
    for scale, study in arms()[int(first) :: int(step)]:
        arm = study["configurations"][0]["name"]
        outcomes.train(study, Path(folder), OUTCOMES, scale=scale, arm=arm)


if __name__ == "__main__":
    main(*sys.argv[1:])
