"""Rows of seeds that torch and SciPy finished, which round as the machine does: they cannot be rerun to the bit."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd

from lab.plans import LAB, load_plan
from lab.tables import markdown
from search.study.file import shipped_studies
from search.study.trial import Configuration
from trainer import Recipe


def recipes() -> dict[str, Recipe]:
    """Return the recipe of every configuration of a plan or a shipped study that may finish seeds, by key."""
    texts = shipped_studies() | {path.stem: path.read_text("utf-8") for path in LAB.glob("2*/*.yaml")}
    names = [name for name, text in sorted(texts.items()) if "finish_above" in text or "extends" in text]
    configurations = [Configuration(*listed) for name in names for listed in load_plan(name).listed]
    return {c.key: c.recipe for c in configurations}


def finished_elsewhere(rows: pd.DataFrame, known: Mapping[str, Recipe]) -> pd.DataFrame:
    """Return the rows that a recipe may finish and that do not say that the engine did."""
    if not {"configuration", "outcome", "grok_step"} <= set(rows.columns):
        return rows[:0]
    ends = [known[k].steps if k in known and known[k].finish_above < 1 else 0 for k in rows["configuration"]]
    by_engine = [_finisher(e) == "engine" for e in rows.get("environment", [None] * len(rows))]
    rows = rows.assign(end=ends)
    return rows[(rows["end"] > 0) & ~pd.Series(by_engine, index=rows.index)]


def _finisher(environment: object) -> object:
    values = json.loads(environment) if isinstance(environment, str) else environment
    return values.get("finish") if isinstance(values, Mapping) else None


def rows() -> str:
    """Return one line per table of seeds: those that grokked by the finish, others whose best θ it may have made."""
    known, lines = recipes(), []
    for path in sorted([*LAB.glob("2*/*.csv"), *LAB.glob("2*/*.parquet")]):
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype={"configuration": str})
        if len(theirs := finished_elsewhere(table, known)):
            grokked = theirs[theirs["outcome"] == "grokked"]
            at_end = int((grokked["grok_step"] == grokked["end"]).sum())
            others = theirs[theirs["outcome"] != "grokked"]
            best = f"{(others['best_step'] == others['end']).sum():,}" if "best_step" in others else "not kept"
            lines.append((path.name, f"{len(table):,}", f"{len(grokked):,}", f"{at_end:,}", best))
    head = ("table", "seeds", "grokked", "of these by the finish", "others whose best θ may be the finish's")
    return markdown(head, lines)


if __name__ == "__main__":
    print(rows())
