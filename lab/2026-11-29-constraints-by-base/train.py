"""Train the plan's ten studies, one after the other: `python train.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and by-base.csv have. A study's rows are added to by-base.csv at once, when all its vectors
have ended. FIRST STEP: every STEP-th study from FIRST on, so that several can train side by side.
"""

import sys
from itertools import product
from pathlib import Path

from make import BASES, VECTORS  # beside this file

from lab import outcomes

HERE = Path(__file__).parent
OUTCOMES = HERE / "by-base.csv"
STUDIES = list(product(VECTORS, BASES))


def main(folder: str, first: str = "0", step: str = "1") -> None:
    """Train every `step`-th study from `first` on."""
    for scale, base in STUDIES[int(first) :: int(step)]:
        plan = HERE / f"{scale}-base-{base}.yaml"
        outcomes.train(plan, Path(folder), OUTCOMES, "arm", scale=scale, base=base)


if __name__ == "__main__":
    main(*sys.argv[1:])
