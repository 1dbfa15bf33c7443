"""Train the plan's four scales, one arm after the other: `python train.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and wide-constraints.csv have. Sixteen vectors of an arm are added when they have ended.
FIRST STEP: every STEP-th sixteen from FIRST on, so that several can train side by side.
"""

import sys
from pathlib import Path

import yaml

from lab import outcomes

HERE = Path(__file__).parent
SCALES = ("57p", "74p", "100p", "170p")


def arms(scale: str) -> list[outcomes.Part]:
    """Return a scale's arms, each in parts of a study of its own."""
    study = yaml.safe_load((HERE / f"wide-{scale}.yaml").read_text(encoding="utf-8"))
    found = []
    for number, arm in enumerate(study["configurations"]):
        one = study | {"name": f"wide-{scale}-{number}", "configurations": [arm]}
        found += outcomes.parts(one, 16, scale=scale, arm=arm["name"])
    return found


def main(*words: str) -> None:
    planned = [part for scale in SCALES for part in arms(scale)]
    outcomes.train(planned, HERE / "wide-constraints.csv", *words)


if __name__ == "__main__":
    main(*sys.argv[1:])
