"""Arms of a table of seeds beside a whole recipe, on the same seeds, as Markdown.

    python lab/scripts/beside.py ARMS.csv WHOLE.csv PLANNED

For each arm: how many grok; how many more and fewer seeds than with the whole recipe, the difference in
points with its 95 % interval, McNemar's exact p and that p as Holm corrects it for so many arms as were
planned.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from search.stats.intervals import mcnemar, paired_interval

Seeds = dict[str, bool]


def read(path: Path, arm: str | None = None) -> Seeds:
    """Whether each seed of a table, or of one of its arms, grokked."""
    with path.open() as file:
        rows = [r for r in csv.DictReader(file) if arm is None or r["arm"] == arm]
    return {r["init_seed"]: r["outcome"] == "grokked" for r in rows}


def arms_of(path: Path) -> list[str]:
    with path.open() as file:
        return list(dict.fromkeys(r["arm"] for r in csv.DictReader(file)))


def holm(ps: Sequence[float]) -> list[float]:
    """Each p as it is when all are looked at: at or below a level means what one test at that level does."""
    made, worst = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        made[i] = worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
    return made


def table(arms: dict[str, Seeds], whole: Seeds, planned: int) -> list[str]:
    """A line an arm. An arm that is not trained counts as one that shows nothing."""
    counts, cells = [], []
    for name, mine in arms.items():
        more = sum(won and not whole[s] for s, won in mine.items())
        fewer = sum(whole[s] and not won for s, won in mine.items())
        low, high = (100 * end for end in paired_interval(more, fewer, len(mine)))
        points = 100 * (more - fewer) / len(mine)
        counts.append((more, fewer))
        cells.append(
            f"| {name} | {sum(mine.values())} of {len(mine)} | +{more} −{fewer} | "
            f"{points:+.0f} ({low:+.0f} to {high:+.0f}) |".replace("-", "−")
        )
    ps = [mcnemar(*count) for count in counts]
    corrected = holm([*ps, *[1.0] * (planned - len(ps))])[: len(ps)]
    return [f"{c} {p:.2g} | {h:.2g} |" for c, p, h in zip(cells, ps, corrected, strict=True)]


def main(arms: str, whole: str, planned: str) -> None:
    mine = {arm: read(Path(arms), arm) for arm in arms_of(Path(arms))}
    print("| arm | grokked | beside the whole | points | p | by Holm |\n|---|---|---|---|---|---|")
    print("\n".join(table(mine, read(Path(whole)), int(planned))))


if __name__ == "__main__":
    main(*sys.argv[1:])
