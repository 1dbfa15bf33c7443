"""Train the plan's three studies, one after the other: `python train.py FOLDER`.

It goes on with what FOLDER and least.csv have. A study's rows are added when all its seeds have ended.
"""

import sys
from pathlib import Path

from make import SIZES  # beside this file

import search
from lab import outcomes

HERE = Path(__file__).parent
OUTCOMES = HERE / "least.csv"


def main(folder: str) -> None:
    """Train the sizes in turn, each in a home of its own."""
    for size in SIZES:
        if outcomes.has(OUTCOMES, size=size):
            continue
        trained = search.run(HERE / f"least-{size}.yaml", home=Path(folder) / f"least-{size}")
        outcomes.add(OUTCOMES, trained.seeds, size=size)


if __name__ == "__main__":
    main(*sys.argv[1:])
