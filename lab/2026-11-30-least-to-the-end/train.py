"""Train the plan's three studies, one after the other: `python train.py FOLDER`.

It goes on with what FOLDER and least.csv have. A study's rows are added when all its seeds have ended.
"""

import sys
from pathlib import Path

from make import SIZES  # beside this file

from lab import outcomes

HERE = Path(__file__).parent


def main(folder: str) -> None:
    """Train the sizes in turn, each in a home of its own."""
    for size in SIZES:
        outcomes.train(HERE / f"least-{size}.yaml", Path(folder), HERE / "least.csv", size=size)


if __name__ == "__main__":
    main(*sys.argv[1:])
