"""Whether size or the kind of ties decides which nets grok: `python make.py` writes the plan's studies.

The page's tables are made of size-or-ties.csv, which train.py writes.

Axes: N draws, V seeds, K sets of ties.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.stats import t

from compress.hessian import measured_loss, possible
from lab.plans import write_plan
from lab.tables import beside, holm, markdown, rate_of, read, with_interval
from model import Spec, preset
from model.tied import Tied, Ties, constrained, equated, free, zeroed
from search.stats.intervals import LEVEL
from trainer.checkpoints.checkpoint import Checkpoint

HERE = Path(__file__).parent
LAW = HERE.parent / "2026-11-24-law-of-size" / "law-small.yaml"
PARENT = HERE.parent / "certificates" / "46p"
"""The net from which the descent went to the known 38 numbers."""
PROBLEMS = 1_024
SIZES = (46, 44, 42, 40, 38)
SETS = 10
"""Sets of ties of a size."""
FIRST = 999_101
VECTORS = 64
DRAWS = 100_000
"""Permutations of a test."""
AT_ONCE = 1_000
"""Draws that are in memory together."""


def law() -> dict[str, Any]:
    """Return the study of 38 numbers and fewer of the law of size."""
    study: dict[str, Any] = yaml.safe_load(LAW.read_text(encoding="utf-8"))
    return study


def known() -> list[str]:
    """Return the eight ties of the known 38 numbers, in the order in which they are written."""
    return next(arm["model"]["ties"] for arm in law()["configurations"] if arm["name"] == "38")


def borne_best(count: int) -> list[str]:
    """Return those `count` of the known ties of which the parent's loss rises least, without training."""
    parent = Checkpoint.load(PARENT)

    def loss(chosen: Iterable[str]) -> float:
        ties = constrained(parent.spec, list(chosen))
        return measured_loss(parent.spec, parent.theta_P, ties, PROBLEMS)

    return list(min(combinations(known(), count), key=loss))


def drawn(size: int, number: int) -> list[str]:
    """Draw a set of ties of `size` numbers: one tie after the other, each alike likely of all that are possible."""
    base = preset("46p")
    random = np.random.default_rng([size, number])
    ties = free(base.params)
    while max(ties) > size:
        possible_ties = sorted(set(_singles(base, ties)))
        ties = possible_ties[random.integers(len(possible_ties))]
    return Tied(base=base, ties=ties).spelt()


def _singles(base: Spec, ties: Ties) -> Iterator[Ties]:
    """Yield the ties with one number fewer: one that is zero, or is plus or minus another of its tensor."""
    fewer = max(ties) - 1
    for first, last in _tensors(base):
        numbers = sorted({abs(k): p for p, k in enumerate(ties[:last]) if k and p >= first}.values())
        more = [zeroed(ties, p) for p in numbers]
        more += [equated(ties, p, q, sign) for p, q in combinations(numbers, 2) for sign in (1, -1)]
        for new in more:
            if max(new) == fewer and possible(base, new):
                yield new


def _tensors(base: Spec) -> Iterator[tuple[int, int]]:
    """Yield the first entry of each tensor of a base, and the one behind its last."""
    ends = np.cumsum([0, *base.layout.budget().values()]).tolist()
    yield from pairwise(ends)


def arms(size: int) -> Iterator[tuple[str, list[str]]]:
    """Yield a size's sets of ties by name. At 38 the descent's is all of the known ties, and so is the prefix."""
    count = 46 - size
    if not count:
        yield "none", []
        return
    yield "descent", borne_best(count)
    named = 1
    if count < len(known()):
        yield "prefix", known()[:count]
        named = 2
    for number in range(1, SETS - named + 1):
        yield f"random {number}", drawn(size, number)


def study(size: int) -> dict[str, Any]:
    """Return the study of a size."""
    listed = []
    for name, ties in arms(size):
        model: Any = {"base": "46p", "ties": ties} if ties else "46p"
        listed.append({"name": name, "model": model})
    return {
        "name": f"ties-{size}",
        "about": f"grok rates of sets of ties that leave {size} numbers",
        "recipe": law()["recipe"],
        "configurations": listed,
        "seeds": {"first": FIRST, "count": VECTORS},
        "stop": {"hopeless": False},
        "resources": {"cpu": 1, "gpu": "auto"},
    }


def write_studies() -> None:
    for size in SIZES:
        write_plan(HERE, study(size), f"Sets of ties that leave {size} numbers (README.md; by make.py).")


# Results


def rows_at(size: int, ties: str | None = None) -> pd.DataFrame:
    """Return the rows of a size, or of one of its sets of ties."""
    rows = read("size-or-ties.csv").query("size == @size")
    return rows if ties is None else rows[rows["ties"] == ties]


def ended() -> list[int]:
    """Return the sizes of the plan of which all seeds have ended, with all sets of ties."""
    sets = {size: SETS if size < SIZES[0] else 1 for size in SIZES}
    counts = {size: rows_at(size)["ties"].value_counts() for size in SIZES}
    return [size for size, count in counts.items() if len(count) == sets[size] and count.eq(VECTORS).all()]


def trained() -> list[int]:
    """Return the sizes that have ended below the preset's; none before that has."""
    whole = ended()
    return whole[1:] if whole[:1] == [SIZES[0]] else []


def successes(size: int, sets: Iterable[str] | None = None) -> np.ndarray:
    """Return [V, K]: which seeds grok with which of a size's sets of ties, all of them if `sets` is None."""
    rows = rows_at(size)
    table = rows.assign(grokked=rows["outcome"].eq("grokked")).pivot(
        index="init_seed", columns="ties", values="grokked"
    )
    return table[list(table.columns if sets is None else sets)].to_numpy(bool)


def p_of_kind(grokked_VK: np.ndarray, draw: np.random.Generator) -> float:
    """Return p: does each set of ties grok equally often? Cochran's Q by permutations within seeds.

    What a permutation leaves as it is drops out of Q: the squares of the sets' counts remain.
    """

    def spread(counts_NK: np.ndarray) -> np.ndarray:
        return (counts_NK.astype(float) ** 2).sum(-1)

    observed = spread(grokked_VK.sum(0))
    undecided = grokked_VK.any(1) & ~grokked_VK.all(1)  # the other seeds are the same in every permutation
    count = (grokked_VK.all(1)).sum()
    beyond = 0
    for _ in range(DRAWS // AT_ONCE):
        rows_NVK = np.broadcast_to(grokked_VK[undecided], (AT_ONCE, undecided.sum(), grokked_VK.shape[1]))
        counts_NK = draw.permuted(rows_NVK, axis=2).sum(1) + count
        beyond += int((spread(counts_NK) >= observed).sum())
    return (beyond + 1) / (DRAWS + 1)


def difference(size: int) -> tuple[float, float, float]:
    """Return how much more often a size's random sets grok than the preset, and its interval, in points.

    By Student's t, of one degree of freedom fewer than sets: the variances between sets and between seeds added up.
    """
    names = sorted(name for name in rows_at(size)["ties"].unique() if name.startswith("random"))
    more_VK = successes(size, names).astype(int) - successes(SIZES[0]).astype(int)
    variances = [means.var(ddof=1) / len(means) for means in (more_VK.mean(0), more_VK.mean(1))]
    half = t.isf(LEVEL / 2, len(names) - 1) * sum(variances) ** 0.5
    observed = more_VK.mean()
    return 100 * observed, 100 * (observed - half), 100 * (observed + half)


def shares() -> str:
    """Return how many seeds grok with each set of ties, by size."""
    whole, lines = ended(), []
    for name in read("size-or-ties.csv")["ties"].unique():
        arms = {size: rows_at(size, name) for size in SIZES}
        texts = [with_interval(rate_of(rows)) if len(rows) else "–" for rows in arms.values()]
        lines.append((name, *(text if size in whole else "open" for size, text in zip(arms, texts, strict=True))))
    return markdown(("ties", *(f"{size} numbers" for size in SIZES)), lines)


def kind_and_size() -> str:
    """Return the plan's first two comparisons, by size."""
    draw = np.random.default_rng(0)
    ps = {size: p_of_kind(successes(size), draw) for size in trained()}
    corrected = dict(zip(ps, holm([*ps.values(), *[1.0] * (len(SIZES) - 1 - len(ps))]), strict=False))
    lines = []
    for size in SIZES[1:]:
        texts = ("open", "open", "open")
        if size in ps:
            points = "{:+.0f} ({:+.0f} to {:+.0f})".format(*difference(size)).replace("-", "−")
            texts = (f"{ps[size]:.2g}", f"{corrected[size]:.2g}", points)
        lines.append((size, *texts))
    return markdown(("numbers", "p, all sets alike", "by Holm", "random sets less the preset, points"), lines)


def threshold() -> str:
    """Return the plan's third comparison: the descent's ties beside the preset, by size."""
    descents = {f"{size} numbers": rows_at(size, "descent") for size in trained()}
    return beside(descents, rows_at(SIZES[0]), planned=len(SIZES) - 1)


if __name__ == "__main__":
    write_studies()
