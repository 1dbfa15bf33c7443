"""Train the plan's three studies, one after the other: `python train.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and least.csv have. Sixty-four runs of a size are added when they have ended. FIRST STEP:
every STEP-th sixty-four from FIRST on, so that several can train side by side.
"""

import sys
from pathlib import Path

from make import SIZES  # beside this file

from lab import outcomes

HERE = Path(__file__).parent


def main(*words: str) -> None:
    planned = []
    for size in SIZES:
        planned += outcomes.parts(HERE / f"least-{size}.yaml", 64, size=size)
    outcomes.train(planned, HERE / "least.csv", *words)


if __name__ == "__main__":
    main(*sys.argv[1:])
