"""The Pareto front, fewest parameters against grok rate, as a table."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from search.stats.counting import GrokRate, few_digits, pareto
from search.stats.intervals import Interval
from search.study.described import aligned

HEADINGS = (
    "params", "model", "study", "configuration", "grok rate", "per million", "confirmed", "best seed",
    "median grok step", "held", "verified", "proved",
)  # fmt: skip
NUMBERS = {"params", "per million", "best seed", "median grok step"}  # right-aligned
COLUMNS = (
    "study", "configuration", "title", "rung", "best_seed", "params", "seeds", "grokked", "held", "verified",
    "verify_tried", "confirmation_grokked", "confirmation_seeds", "grok_rate", "grok_rate_low",
    "grok_rate_high", "grokked_per_million", "median_grok_step", "stopped", "confirmation_low", "confirmation_high",
)  # fmt: skip
PROOFS = ("proved", "prove_tried", "proofs_claimed")
"""Columns that files of earlier versions lack."""
OPTIONAL = ("confirmed", "held", "proved")
"""Headings that are shown if a row has something below them."""


def rates_of(row: Mapping[str, Any]) -> tuple[GrokRate, GrokRate]:
    """Return a configuration's rates, of the search's seeds and of the confirmation's.

    row: as search.analysis.frames has it.
    """
    ends: list[Interval | None] = [
        (row[f"{name}_low"], row[f"{name}_high"]) if row[f"{prefix}seeds"] else None
        for name, prefix in (("grok_rate", ""), ("confirmation", "confirmation_"))
    ]
    search = GrokRate(row["grokked"], row["seeds"], row["wrongly"], recorded_interval=ends[0])
    fresh = GrokRate(
        row["confirmation_grokked"], row["confirmation_seeds"], row["confirmation_wrongly"], recorded_interval=ends[1]
    )
    return search, fresh


def standing(row: Mapping[str, Any]) -> tuple[bool, float]:
    """Return a key to sort configurations by: confirmed ones are ahead; by the lower end of an unpooled rate."""
    return row["confirmation_seeds"] > 0, _low(row)


def front(configurations: Sequence[Mapping[str, Any]], max_params: int | None = None) -> list[dict[str, Any]]:
    """Return the Pareto front of configurations with a grokked seed, smallest first.

    They are compared by the lower end of the rate's interval, so that one of two seeds does not outrank twenty
    of sixty-four; by the confirmation's rate where there is one. Where a study confirmed some, others of it that are
    not smaller than these are left out: their rates are what they were chosen by. configurations: as
    search.analysis.frames has them.
    """
    rows = [
        _shown(row)
        for row in configurations
        if row["grokked"] > 0 and (max_params is None or row["params"] <= max_params)
    ]
    confirmed: dict[str, int] = {}
    for row in rows:
        if row["confirmation_seeds"]:
            confirmed[row["study"]] = min(row["params"], confirmed.get(row["study"], row["params"]))
    rows = [
        r for r in rows
        if r["confirmation_seeds"] or r["study"] not in confirmed or r["params"] < confirmed[r["study"]]
    ]  # fmt: skip
    members = pareto([r["params"] for r in rows], list(map(_low, rows)))
    on_front = [row for row, is_member in zip(rows, members, strict=True) if is_member]
    return sorted(on_front, key=itemgetter("params", "study", "configuration"))


def best_of(configurations: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the configuration of the front whose rate has the highest lower end; None where nothing grokked.

    A tie is of the same size, or the front would lack the larger one; it goes to the least training per grokked seed.
    """
    return max(front(configurations), key=lambda r: (_low(r), r["grokked_per_million"]), default=None)


def _low(row: Mapping[str, Any]) -> float:
    if row["confirmation_seeds"]:
        return float(row["confirmation_low"])
    return float(row["grok_rate_low"]) if row["seeds"] else 0.0


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the table and JSON show. Search and confirmation have a rate each: nothing is pooled."""
    shown = {name: row[name] for name in COLUMNS} | {name: row.get(name, 0) for name in PROOFS}
    shown["held"] = shown["held"] if row.get("recipe.hold", 1) else None  # nothing is to hold
    return {name: value if value == value else None for name, value in shown.items()}  # a frame has NaN


def table(rows: Sequence[dict[str, Any]], width: int | None = None) -> str:
    """Return rows of `front` in aligned columns, and the commands below them.

    Confirmations and proofs have a column if there are any. `per million`: grokked seeds per million seed-steps.
    width: characters of a line; where the columns need more, each row is a block of lines.
    """
    columns = zip(HEADINGS, *map(_cells, rows), strict=True)
    shown = [column for column in columns if column[0] not in OPTIONAL or any(column[1:])]
    numbers = [n for n, column in enumerate(shown) if column[0] in NUMBERS]
    lines = aligned(list(zip(*shown, strict=True)), right=numbers)
    if width and max(map(len, lines)) > width:
        heads, *blocks = zip(*shown, strict=True)
        lines = [line for block in blocks for line in (*aligned([*zip(heads, block, strict=True)]), "")][:-1]
    return "\n".join([*lines, "", "The best seed's checkpoint of each:", *(f"  {r['pull']}" for r in rows)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    decoded = f"{'yes' if row['verified'] else 'no'} ({row['verified']:,} of {row['verify_tried']:,})"
    stopped = "stopped at a success; " if row["stopped"] else ""
    interval = f"{row['grok_rate_low']:.1%} to {row['grok_rate_high']:.1%}"
    confirmed = ""
    if row["confirmation_seeds"]:
        ends = f"{row['confirmation_low']:.1%} to {row['confirmation_high']:.1%}"
        confirmed = f"{row['confirmation_grokked']:,} of {row['confirmation_seeds']:,} ({ends})"
    return (
        f"{row['params']:,}",
        row["rung"],
        row["study"],
        row["title"],
        f"{row['grokked']:,} of {row['seeds']:,} ({stopped}{interval})",
        few_digits(row["grokked_per_million"], 3),
        confirmed,
        row["best_seed"],
        f"{row['median_grok_step']:,.0f}",
        "" if row["held"] is None else f"{row['held']:,} of {row['grokked']:,}",
        decoded if row["verify_tried"] else "not decoded yet",  # of its best seeds, on the official additions
        _proved(row),
    )


def _proved(row: dict[str, Any]) -> str:
    counts = [f"{row['proved']:,} of {row['prove_tried']:,}"] if row["prove_tried"] else []
    if row["proofs_claimed"]:
        counts += [f"{row['proofs_claimed']} claimed, not checked here (prove --study {row['study']})"]
    return ", ".join(counts)
