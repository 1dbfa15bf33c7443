"""How small ten wide winners become: the page's tables, of the files that descend.py writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pandas as pd

from lab.tables import markdown, with_interval
from model import Spec, make_spec
from model.tied import ties_of
from search.stats.counting import GrokRate
from trainer.checkpoints.checkpoint import Checkpoint

HERE = Path(__file__).parent
CERTIFICATES = HERE.parent / "certificates"
PARENTS, TURNS, STOPS = HERE / "parents.csv", HERE / "turns.csv", HERE / "stops.csv"
NETS = HERE / "nets.json"
WINNERS, TURNS_EACH, CLOSEST = 10, 5, 3
REACHES = {"tensor": (10, "10p-inside"), "values": (6, "6p")}
"""The fewest numbers that were known by each reach, and a certificate of so many."""
Entry = tuple[Any, ...]
"""A tensor's name and the place in it."""


def table_of(file: Path, *columns: str) -> pd.DataFrame:
    """Return a table, with these columns and no row where it has not been begun."""
    return pd.read_csv(file) if file.exists() else pd.DataFrame(columns=[*columns])


def parents() -> pd.DataFrame:
    """Return the ten with the numbers that they are folded into and why one cannot begin, if one cannot."""
    return table_of(PARENTS, "init_seed", "numbers", "why")


def turns() -> pd.DataFrame:
    return table_of(TURNS, "init_seed", "reach", "turn", "numbers", "core_s")


def stops() -> pd.DataFrame:
    """Return the judged sets of one number fewer than descents' last ones."""
    return table_of(STOPS, "parent", "left", "cpu_s")


def kept() -> dict[str, dict[str, Any]]:
    """Return the smallest proved set of each descent: spec and θ."""
    return json.loads(NETS.read_text()) if NETS.exists() else {}


# Tables


def reported(table: Callable[[], str]) -> Callable[[], str]:
    """Return a table as it is after the last turn; before that how many turns are whole."""

    @wraps(table)
    def made() -> str:
        descents = parents()["why"].isna().sum() * len(REACHES)
        whole = turns()["turn"].value_counts().eq(descents).sum()
        return table() if whole == TURNS_EACH else f"{whole} of {TURNS_EACH} turns are whole."

    return made


def last() -> pd.DataFrame:
    """Return the numbers after the last turn, a row a winner and a column a reach."""
    rows = turns()
    return rows[rows["turn"] == TURNS_EACH].pivot(index="init_seed", columns="reach", values="numbers")


@reported
def fewest() -> str:
    """Return the fewest numbers of each winner by reach, or why it could not begin."""
    numbers, lines = last(), []
    for seed, folded, why in parents()[["init_seed", "numbers", "why"]].itertuples(index=False):
        texts = numbers.loc[seed, [*REACHES]] if seed in numbers.index else [f"cannot begin: {why}", "–"]
        lines.append((seed, folded, *texts))
    return markdown(("winner", "folded", "inside tensors", "across"), lines)


@reported
def reached() -> str:
    """Return how many of the winners that could begin come to as few numbers as were known, by reach."""
    lines = []
    for reach, (known, _) in REACHES.items():
        numbers = last()[reach]
        rate = GrokRate(int((numbers <= known).sum()), len(numbers))
        lines.append((reach, f"{known} or fewer", with_interval(rate)))
    return markdown(("reach", "numbers", "winners"), lines)


def overlaps(reach: str) -> str:
    """Return for each two nets of a reach, and for each and the known one, the share of pairs that they share, in %."""
    nets = {name.partition("-")[0]: net for name, net in kept().items() if name.endswith(f"-{reach}")}
    specs = {seed: make_spec(**net["spec"]) for seed, net in nets.items()}
    known = REACHES[reach][1]
    specs[known] = Checkpoint.load(CERTIFICATES / known).spec
    shares = {(a, b): f"{100 * overlap(specs[a], specs[b]):.0f}" for a, b in combinations(specs, 2)}
    names = [*specs]
    lines = [(name, *(shares.get((name, other), "") for other in names[1:])) for name in names[:-1]]
    return markdown(("", *names[1:]), lines)


@reported
def overlaps_inside() -> str:
    return overlaps("tensor")


@reported
def overlaps_across() -> str:
    return overlaps("values")


@reported
def closest() -> str:
    """Return the closest sets of one number fewer than each descent's last, of those judged, and what binds."""
    judged, descents = stops()["parent"].nunique(), len(kept())
    if judged < descents:
        return f"{judged} of {descents} descents are judged."
    lines = []
    for descent, sets in stops().sort_values(["left", "cpu_s"]).groupby("parent"):
        for row in sets.head(CLOSEST).itertuples():
            verdict = row.verdict if isinstance(row.verdict, str) else "no"
            pair = f"Z{row.digit} of {row.a} + {row.b}"
            lines.append((descent, len(sets), row.ties_added, f"{row.left:.3f}", verdict, pair))
    return markdown(("descent", "judged", "tie added", "residual left", "right on all pairs", "binding pair"), lines)


# Do forms agree?


def numbers_read(spec: Spec) -> dict[Entry, int]:
    """Return which number each entry of 46p reads in a spec, 0 for none; without entries that are fixed there."""
    base, ties = ties_of(spec)
    fixed = base.as_dict()["opposite_out"]  # the first that 46p has of out_B
    entries: list[Entry] = []
    for name, shape in zip(base.layout.names, base.layout.shapes, strict=True):
        shift = fixed if name == "out_B" else 0
        entries += [(name, *place[:-1], place[-1] + shift) for place in product(*map(range, shape))]
    return dict(zip(entries, map(abs, ties), strict=True))


def exchanged(entry: Entry) -> Entry:
    """Return the entry whose place an entry takes if the hidden units change places, and with them the token axes.

    Signs change too: a number and its opposite are one.
    """
    name, *place = entry
    if name in ("fc1", "head", "out_A"):
        place[0] = 1 - place[0]
    if name in ("fc1", "head", "norm") and place[1] < 2:
        place[1] = 1 - place[1]
    return (name, *place)


def alike(read: dict[Entry, int]) -> set[frozenset[Entry]]:
    """Return the pairs of entries that read one number, or are both zero."""
    return {frozenset(pair) for pair in combinations(read, 2) if read[pair[0]] == read[pair[1]]}


def overlap(one: Spec, other: Spec) -> float:
    """Return the pairs that two sets of ties share, of those in either, in that order of units that shares more."""
    first, second = numbers_read(one), numbers_read(other)

    def shares() -> Iterator[float]:
        for ordered in (first, {exchanged(entry): number for entry, number in first.items()}):
            common = ordered.keys() & second.keys()
            mine, theirs = (alike({entry: read[entry] for entry in common}) for read in (ordered, second))
            yield len(mine & theirs) / max(len(mine | theirs), 1)

    return max(shares())
