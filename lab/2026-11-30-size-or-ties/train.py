"""Train the plan's five studies, one after the other: `python train.py FOLDER`.

It goes on with what FOLDER and size-or-ties.csv have. A study's rows are added when all its seeds have ended.
"""

import sys
from pathlib import Path

from make import SIZES  # beside this file

import search
from lab import outcomes

HERE = Path(__file__).parent
OUTCOMES = HERE / "size-or-ties.csv"


def main(folder: str) -> None:
    """Train the sizes in turn, each in a home of its own."""
    for size in SIZES:
        if outcomes.has(OUTCOMES, size=size):
            continue
        trained = search.run(HERE / f"ties-{size}.yaml", home=Path(folder) / f"ties-{size}")
        outcomes.add(OUTCOMES, trained.seeds, size=size, ties=trained.seeds["title"])


if __name__ == "__main__":
    main(*sys.argv[1:])
