"""What constraints cost in five bases: `python make.py` writes the plan's ten studies.

The page's tables are made of by-base.csv, which train.py writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from lab.plans import changes, toggled, write_plan
from lab.tables import OPEN, holm, markdown, read
from model import Spec, make_spec, preset
from reports.ratios import Paired, ends_text, times

HERE = Path(__file__).parent
BASES = (10, 2, 3, 5, 7)
CONSTRAINTS = ("tie_vo", "tie_qk", "qk_dim=4", "rank1_out", "shared_norm", "no_ffn_bias", "frozen_spiral")
LEFT_OUT = ("170p", "qk_dim=4")
"""No constraint there: heads of 170p are three wide, and would become wider."""
FIRST = 998_401
VECTORS = {"67p": 96, "170p": 48}
"""By scale, in the order in which they are trained."""
PERMUTATIONS = 100_000
TABLE = HERE.parents[1] / "studies" / "constraints.yaml"
ANY_BASE = {
    "finish_above": 1,
    "recycle_every": 0,
    "recycle_from": 4_000,
    "recycle_until": 16_000,
    "recycle_unless": [],
}
"""Recycling reads a probe of base ten; the finish is addition's in base ten."""


def arms(scale: str) -> Iterable[tuple[str, Spec]]:
    """Yield the arms of a scale by name: as it is, with each constraint toggled, and with one head where it has two."""
    spec = preset(scale)
    yield "none", spec
    for constraint in CONSTRAINTS:
        if (scale, constraint) != LEFT_OUT:
            yield constraint, toggled(spec, constraint)
    fields = spec.as_dict()
    if fields["heads"] == 2:
        yield "one head", make_spec(**fields | {"heads": 1})


def study(scale: str, base: int) -> dict[str, Any]:
    """Return the study of a scale in a base."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {
        "name": f"{scale}-base-{base}",
        "about": f"what constraints cost at {scale} in base {base}",
        "task": {"name": "addition", "base": base},
        "recipe": table["recipe"] | table["scales"][scale].get("recipe", {}) | ANY_BASE,
        "configurations": [{"name": name, "model": changes(spec, scale)} for name, spec in arms(scale)],
        "seeds": {"first": FIRST, "count": VECTORS[scale]},
        "stop": {"hopeless": False},
        "resources": {"cpu": 1, "gpu": "auto"},
    }


def write_studies() -> None:
    for scale, base in product(VECTORS, BASES):
        comment = f"{scale} in base {base}: the table of constraints' recipe, each toggled (README.md; by make.py)."
        write_plan(HERE, study(scale, base), comment)


# Results


def successes(scale: str) -> pd.DataFrame | None:
    """Return which seeds grok [base and seed, arm]; None unless all seeds of a scale have ended."""
    names = [name for name, _ in arms(scale)]
    rows = read("by-base.csv").query("scale == @scale and arm in @names")
    if len(rows) != len(BASES) * VECTORS[scale] * len(names):
        return None
    grokked = rows.assign(grokked=rows["outcome"].eq("grokked"))
    return grokked.pivot(index=["base", "init_seed"], columns="arm", values="grokked")[names]


def p_alike(counts_B2: np.ndarray, draw: np.random.Generator) -> float:
    """Return p: are the odds the same in all bases? counts_B2: seeds that one arm alone groks, by base and arm.

    By permutation of which arm each of them is of: how often is Pearson's statistic as large?
    """
    totals_B = counts_B2.sum(1)
    share = counts_B2[:, 0].sum() / max(totals_B.sum(), 1)

    def statistic(first_NB: np.ndarray) -> np.ndarray:
        expected = np.maximum(totals_B * share * (1 - share), 1e-12)
        return ((first_NB - totals_B * share) ** 2 / expected).sum(-1)

    shuffled_NB = draw.multivariate_hypergeometric(totals_B, int(counts_B2[:, 0].sum()), size=PERMUTATIONS)
    beyond = statistic(shuffled_NB) >= statistic(counts_B2[:, 0]) - 1e-9
    return float((beyond.sum() + 1) / (PERMUTATIONS + 1))


def p_together(more_V: np.ndarray, draw: np.random.Generator) -> float:
    """Return p: does an arm grok as often as `none` in all bases together? more_V: in how many more each seed groks.

    By flips of the signs of whole seeds, as a seed is the same vector in all bases.
    """
    signs_NV = 2 * draw.integers(2, size=(PERMUTATIONS, len(more_V)), dtype=np.int8) - 1
    beyond = np.abs(signs_NV @ more_V) >= abs(more_V.sum())
    return float((beyond.sum() + 1) / (PERMUTATIONS + 1))


def cells(grokked: pd.DataFrame) -> dict[str, list[Paired]]:
    """Return each arm's counts in all bases: seeds by success in it and in `none`."""
    found: dict[str, list[Paired]] = {name: [] for name in grokked if name != "none"}
    for name, base in product(found, BASES):
        its = grokked.loc[base]
        found[name].append(Paired.of(list(zip(its[name], its["none"], strict=True))))
    return found


def costs(scale: str) -> str:
    """Return how many seeds grok in each arm, by base, and their share over that of `none`.

    In bold is what costs or helps by Holm over the scale.
    """
    if (grokked := successes(scale)) is None:
        return OPEN
    found = cells(grokked)
    corrected = iter(holm([cell.p for by_base in found.values() for cell in by_base]))
    rates = [f"{cell.both + cell.second} of {cell.n}" for cell in next(iter(found.values()))]
    lines = [("none", *rates)]
    for name, by_base in found.items():
        texts = []
        for cell in by_base:
            ratio = f"{times(cell.ratio)} ({ends_text(cell.ratio_interval, '–')})"
            text = f"{cell.both + cell.first} of {cell.n}, {ratio}"
            texts.append(f"**{text}**" if next(corrected) < 0.05 else text)
        lines.append((name, *texts))
    return markdown(("toggled", *(f"base {base}" for base in BASES)), lines)


def alike(scale: str) -> str:
    """Return the plan's question for each constraint: seeds that one arm alone groks, in all bases, and p."""
    if (grokked := successes(scale)) is None:
        return OPEN
    draw, found = np.random.default_rng(0), cells(grokked)
    counts = {name: np.array([(cell.first, cell.second) for cell in by_base]) for name, by_base in found.items()}
    ps = [p_alike(counts_B2, draw) for counts_B2 in counts.values()]
    bases = grokked.astype(int).groupby("init_seed").sum()
    together = [p_together((bases[name] - bases["none"]).to_numpy(), draw) for name in counts]
    lines = []
    for (name, counts_B2), *its_ps in zip(counts.items(), holm(together), ps, holm(ps), strict=True):
        lines.append((name, *counts_B2.sum(0), *(f"{p:.2g}" for p in its_ps)))
    head = ("toggled", "it alone groks", "none alone", "p, all bases (Holm)", "p, same in all", "by Holm")
    return markdown(head, lines)


def costs_67p() -> str:
    return costs("67p")


def alike_67p() -> str:
    return alike("67p")


def costs_170p() -> str:
    return costs("170p")


def alike_170p() -> str:
    return alike("170p")


if __name__ == "__main__":
    write_studies()
