"""Tables and pictures of the pages, made of the rows of seeds that experiments keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd

from lab.paired import paired_interval
from lab.plans import LAB, load_plan
from reports.ratios import mcnemar
from search.analysis.frames import seeds_of
from search.stats.counting import COUNTED, GrokRate, PooledRate
from search.study.trial import Configuration
from trainer.stopping import RULES

GREY, BLUE = "#b9bec5", "#1f5aa6"
GROKKED = "outcome == 'grokked'"
OPEN = "Open: not all of its seeds have ended."


@cache
def read(name: str) -> pd.DataFrame:
    """Return the counted rows of a table of seeds, which lies in one of the experiments' folders.

    Raises FileNotFoundError where there is none of that name.
    """
    path = next(LAB.glob(f"2*/{name}"), None)
    if path is None:
        raise FileNotFoundError(f"no lab/*/{name}")
    rows = pd.read_csv(path, dtype={"configuration": str, "arm": str})
    return rows[rows["outcome"].isin(COUNTED)] if "outcome" in rows else rows


def rows_of(source: str) -> pd.DataFrame:
    """Return the rows that `FILE where QUERY + FILE where QUERY ...` names; a query is pandas'."""
    parts = []
    for part in source.split(" + "):
        name, _, query = part.strip().partition(" where ")
        rows = read(name)
        parts.append(rows.query(query) if query else rows)
    return pd.concat(parts)


def count(source: str, counting: str = GROKKED) -> tuple[int, int]:
    """Return k and n: of the rows of a source, how many the query `counting` holds for."""
    rows = rows_of(source)
    return len(rows.query(counting)), len(rows)


def rate(source: str, counting: str = GROKKED) -> GrokRate:
    """Return the rate of a source's rows: of those for which the query `counting` holds."""
    return rate_of(rows_of(source), counting)


def rate_of(rows: pd.DataFrame, counting: str = GROKKED) -> GrokRate:
    """Return the rate of rows of seeds, as the product counts them; of several configurations clustered by seed.

    Raises ValueError where a rule ended seeds and the table does not say which it called: so nobody knows what it
    called and spared.
    """
    k = len(rows.query(counting))
    if "outcome" not in rows:
        return GrokRate(k, len(rows))
    for outcome, column in {rule.outcome: rule.column for rule in RULES}.items():
        ended = rows[rows["outcome"] == outcome]
        if len(ended) and (column not in rows or ended[column].isna().any()):
            raise ValueError(f"a rule ended {len(ended)} seeds, and their table has no column {column}")
    # a rate does not look at steps, and some tables have words there
    seeds = seeds_of(rows.drop(columns="grok_step", errors="ignore"))
    several = "configuration" in rows and rows["configuration"].nunique() > 1
    interval = PooledRate.of(seeds).interval if several and counting == GROKKED else None
    return replace(GrokRate.of(seeds), grokked=k, recorded_interval=interval)


def vectors(rows: pd.DataFrame) -> GrokRate:
    """Return how many seeds grok, of how many initial vectors. A restart draws another one (column `tries`).

    Raises ValueError where the table does not say how often its seeds began.
    """
    if "tries" not in rows:
        raise ValueError("no column tries")
    return replace(rate_of(rows), n=int(rows["tries"].sum()), recorded_interval=None)


def of_vectors(source: str) -> str:
    """Return the rate of a source's initial vectors; a dash where its tables do not count them."""
    rows = rows_of(source)
    return with_interval(vectors(rows)) if "tries" in rows and rows["tries"].notna().all() else "–"


def with_interval(rate: GrokRate) -> str:
    """Return `k of n` with its share and its interval."""
    low, high = rate.interval
    return f"{k_of_n(rate)} ({100 * rate.grokked / rate.n:.1f} %, {100 * low:.1f}–{100 * high:.1f} %)"


def k_of_n(rate: GrokRate) -> str:
    return f"{rate.grokked} of {rate.n}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def arms_of(file: str, plan: str | None = None) -> dict[str, pd.DataFrame]:
    """Return a table's rows by arm: its column `arm`, or the names that a plan has for its configurations."""
    rows = read(file)
    if plan is None:
        return {str(arm): group for arm, group in rows.groupby("arm", sort=False)}
    study = load_plan(plan)
    keys = [Configuration(*listed).key for listed in study.listed]
    names = [entry.name for entry in study.kind.entries] or ["base"]
    return {n: rows[rows["configuration"] == k] for n, k in zip(names, keys, strict=False)}


def rates(arms: Mapping[str, pd.DataFrame], head: str = "arm") -> str:
    """Return a table with a line an arm: how many grok, of how many vectors, at which steps, and what one costs."""
    lines = []
    for name, rows in arms.items():
        grokked = rows.query(GROKKED)
        steps = sorted(grokked["grok_step"].astype(int))
        at = f"{steps[0]:,} to {steps[-1]:,}, half by {steps[(len(steps) - 1) // 2]:,}" if steps else "–"
        cost = f"{round(rows['steps'].sum() / len(grokked), -3):,.0f}" if steps else "–"
        lines.append((name, with_interval(rate_of(rows)), k_of_n(vectors(rows)), at, cost))
    return markdown((head, "grokked", "of vectors", "at steps", "seed-steps a grokked seed"), lines)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values as Holm corrects them when all are looked at."""
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        corrected[i] = largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
    return corrected


def alone(rows: pd.DataFrame, base: pd.DataFrame) -> tuple[int, int, int]:
    """Return how many seeds only `rows` grok, only `base`, and how many seeds both have."""
    first, second = (r.set_index("init_seed")["outcome"] == "grokked" for r in (rows, base))
    seeds = first.index.intersection(second.index)
    first, second = first[seeds], second[seeds]
    return int((first & ~second).sum()), int((second & ~first).sum()), len(seeds)


def beside(arms: Mapping[str, pd.DataFrame], base: pd.DataFrame, planned: int | None = None) -> str:
    """Return a table of arms beside a base on the same seeds: differences in points, exact p, p by Holm.

    planned: how many arms were; one that was not trained counts as one that shows nothing.
    """
    counts = {name: alone(rows, base) for name, rows in arms.items()}
    ps = [mcnemar(more, fewer) for more, fewer, _ in counts.values()]
    corrected = holm([*ps, *[1.0] * ((planned or len(ps)) - len(ps))])
    lines = []
    for (name, (more, fewer, n)), p, by_holm in zip(counts.items(), ps, corrected, strict=False):
        low, high = (100 * end for end in paired_interval(more, fewer, n))
        points = f"{100 * (more - fewer) / n:+.0f} ({low:+.0f} to {high:+.0f})".replace("-", "−")
        k = len(arms[name].query(GROKKED))
        lines.append((name, f"{k} of {n}", f"+{more} −{fewer}", points, f"{p:.2g}", f"{by_holm:.2g}"))
    head = ("arm", "grokked", "only with it, only without", "difference in points", "p", "p by Holm")
    return markdown(head, lines)


def forest(rates: Mapping[str, GrokRate], path: Path) -> None:
    """Write a picture of shares with their intervals, one line for each label from top to bottom."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 0.8 + 0.32 * len(rates)), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    for row, rate in enumerate(rates.values()):
        low, high = (100 * end for end in rate.interval)
        axes.plot([low, high], [row, row], color=GREY, lw=2, zorder=1)
        axes.plot([100 * rate.grokked / rate.n], [row], "o", color=BLUE, zorder=2)
        axes.annotate(k_of_n(rate), (high, row), (5, -3), textcoords="offset points", fontsize=8)
    axes.set_yticks(range(len(rates)), list(rates))
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("runs that grok, % (with the 95 % interval)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
