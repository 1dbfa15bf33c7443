"""What a constraint costs with a wide start: `python make.py` writes the plan's four studies.

The page's tables are made of wide-constraints.csv, which train.py writes.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lab.paired import paired_interval
from lab.plans import changes, toggled, write_plan
from lab.tables import OPEN, alone, holm, markdown, rate_of, read, with_interval
from model import Spec, preset
from reports.ratios import ends_text, mcnemar, times
from reports.table import Table, constraint_table
from search.analysis.frames import RecordSet

HERE = Path(__file__).parent
CONSTRAINTS = ("shared_norm", "rank1_out", "no_ffn_bias", "tie_vo", "frozen_spiral", "qk_dim=4")
LEFT_OUT = ("170p", "qk_dim=4")
"""No constraint there: heads of 170p are three wide, and would become wider."""
FIRST = 994_001
STUDY = HERE.parents[1] / "studies" / "57p-wide.yaml"
RING_100P = [["equals", "at", 0.809, -0.5878, -0.1111]]
"""Where the table of constraints puts EQUALS at 100 parameters."""
LONG = {"steps": 100_000, "init": []}
"""Of the wide stage at 170 parameters, as in the table of constraints: EQUALS is no point of a ring there."""
SCALES: dict[str, dict[str, Any]] = {"57p": {}, "74p": {}, "100p": {"init": RING_100P}, "170p": LONG}
"""Changes of the wide stage's recipe, in the order in which the scales are trained."""
VECTORS = {"57p": 64, "74p": 32, "100p": 32, "170p": 32}
RECORDS = [str(files("studies") / f"records/constraints-{of}.parquet") for of in ("configurations", "seeds")]


def arms(scale: str) -> Iterable[tuple[str, Spec]]:
    """Yield the arms of a scale by name: as it is, and with each constraint toggled."""
    yield "none", preset(scale)
    for constraint in CONSTRAINTS:
        if (scale, constraint) != LEFT_OUT:
            yield constraint, toggled(preset(scale), constraint)


def road(scale: str, spec: Spec, stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `57p-wide`'s stages for a spec. The third is 57p's alone: other scales do not tie fc2 to the head."""
    wide, narrow, tied = stages
    start = replace(spec, hidden=8, tie_fc2_head=False)
    wide = wide | {"model": changes(start, scale), "recipe": wide["recipe"] | SCALES[scale]}
    third = [tied | {"into": changes(spec, scale)}] if scale == "57p" else []
    return [wide, narrow, *third]


def study(scale: str) -> dict[str, Any]:
    """Return the study of a scale."""
    wide = yaml.safe_load(STUDY.read_text(encoding="utf-8"))
    recipe = wide["recipe"]
    if scale == "170p":
        recipe["lr_factors"] = []
    listed = []
    for name, spec in arms(scale):
        stages = road(scale, spec, wide["recipe"]["stages"])
        listed.append({"name": name, "model": changes(spec, scale), "recipe": {"stages": stages}})
    return {
        "name": f"wide-{scale}",
        "about": f"what each constraint costs at {scale}, begun with eight hidden units",
        "recipe": {name: value for name, value in recipe.items() if name != "stages"},
        "configurations": listed,
        "seeds": {"first": FIRST, "count": VECTORS[scale]},
        "stop": {"hopeless": False},
        "resources": {"cpu": 1, "gpu": "auto"},
    }


def write_studies() -> None:
    for scale in SCALES:
        write_plan(
            HERE,
            study(scale),
            f"{scale}: 57p-wide's road, each constraint toggled in all of its stages (README.md; by make.py).",
        )


# Results


def arms_at(scale: str) -> dict[str, pd.DataFrame] | None:
    """Return the rows of a scale by arm; None unless all of its vectors have ended."""
    rows = read("wide-constraints.csv").query("scale == @scale")
    found = {name: rows[rows["arm"] == name] for name, _ in arms(scale)}
    return found if all(len(its) == VECTORS[scale] for its in found.values()) else None


def law() -> str:
    """Return the share of vectors that arrive at each scale that has ended, as it is."""
    ended = {scale: arms_at(scale) for scale in SCALES}
    lines = [(s, with_interval(rate_of(its["none"])) if its else "open") for s, its in ended.items()]
    return markdown(("scale", "vectors that grok"), lines)


@cache
def table() -> Table:
    """Return the table of constraints, of that experiment's own records."""
    records = RecordSet(RECORDS)
    return constraint_table(records.configurations(), seeds=records.seeds())


def ratio_in_table(constraint: str, scale: str) -> str:
    """Return the table's ratio of a cell with its interval; a dash where it compares nothing there."""
    cell = table().cells.get((constraint, scale))
    if not (cell and cell.paired):
        return "–"
    return f"{times(cell.paired.ratio)} ({ends_text(cell.interval, '–')})"


def costs(scale: str) -> str:
    """Return each constraint's share at a scale beside that without it, and the table's ratio of the same two."""
    of_arms = arms_at(scale)
    if of_arms is None:
        return OPEN
    base = of_arms.pop("none")
    counts, shares = [], []
    for constraint, toggled_rows in of_arms.items():
        is_in_scale = constraint.partition("=")[0] in preset(scale).applied()
        pair = (base, toggled_rows) if is_in_scale else (toggled_rows, base)
        counts.append(alone(*pair))
        shares.append([with_interval(rate_of(rows)) for rows in pair])

    ps = [mcnemar(more, fewer) for more, fewer, _ in counts]
    lines = []
    for constraint, share, (more, fewer, n), p, by_holm in zip(of_arms, shares, counts, ps, holm(ps), strict=True):
        low, high = (100 * end for end in paired_interval(more, fewer, n))
        points = f"{100 * (more - fewer) / n:+.0f} ({low:+.0f} to {high:+.0f})".replace("-", "−")
        lines.append((constraint, *share, points, f"{p:.2g}", f"{by_holm:.2g}", ratio_in_table(constraint, scale)))
    head = ("constraint", "with it", "without it", "difference in points", "p", "p by Holm", "ratio in the table")
    return markdown(head, lines)


def costs_57p() -> str:
    return costs("57p")


def costs_74p() -> str:
    return costs("74p")


def costs_100p() -> str:
    return costs("100p")


def costs_170p() -> str:
    return costs("170p")


if __name__ == "__main__":
    write_studies()
