"""Train the plan's ten studies, one after the other: `python train.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and by-base.csv have. A study's rows are added to by-base.csv, arm by arm, when all its
vectors have ended. FIRST STEP: every STEP-th study from FIRST on, so that several can train side by side.
"""

import sys
from pathlib import Path

import search
from lab import outcomes

HERE = Path(__file__).parent
OUTCOMES = HERE / "by-base.csv"
SCALES, BASES = ("67p", "170p"), (10, 2, 3, 5, 7)
STUDIES = [(scale, base) for scale in SCALES for base in BASES]


def main(folder: str, first: str = "0", step: str = "1") -> None:
    """Train every `step`-th study from `first` on."""
    for scale, base in STUDIES[int(first) :: int(step)]:
        if outcomes.has(OUTCOMES, scale=scale, base=base):
            continue
        name = f"{scale}-base-{base}"
        trained = search.run(HERE / f"{name}.yaml", home=Path(folder) / name)
        for arm, seeds in trained.seeds.groupby("title", sort=False):
            outcomes.add(OUTCOMES, seeds, scale=scale, base=base, arm=arm)


if __name__ == "__main__":
    main(*sys.argv[1:])
