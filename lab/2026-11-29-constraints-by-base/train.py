"""Train the plan's ten studies, one after the other: `python train.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and by-base.csv have. Twelve seeds of a study, in all of its arms, are added to by-base.csv
when they have ended. FIRST STEP: every STEP-th twelve from FIRST on, so that several can train side by side.
"""

import sys
from itertools import product
from pathlib import Path

from make import BASES, VECTORS  # beside this file

from lab import outcomes

HERE = Path(__file__).parent


def main(*words: str) -> None:
    planned = []
    for scale, base in product(VECTORS, BASES):
        planned += outcomes.parts(HERE / f"{scale}-base-{base}.yaml", 12, scale=scale, base=base)
    outcomes.train(planned, HERE / "by-base.csv", *words, titled="arm")


if __name__ == "__main__":
    main(*sys.argv[1:])
