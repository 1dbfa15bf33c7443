"""Train the plan's five studies, one after the other: `python train.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and size-or-ties.csv have. Sixteen seeds of a size, in all of its arms, are added when they
have ended. FIRST STEP: every STEP-th sixteen from FIRST on, so that several can train side by side.
"""

import sys
from pathlib import Path

from make import SIZES  # beside this file

from lab import outcomes

HERE = Path(__file__).parent


def main(*words: str) -> None:
    planned = []
    for size in SIZES:
        planned += outcomes.parts(HERE / f"ties-{size}.yaml", 16, size=size)
    outcomes.train(planned, HERE / "size-or-ties.csv", *words, titled="ties")


if __name__ == "__main__":
    main(*sys.argv[1:])
