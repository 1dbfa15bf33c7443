"""The Pareto front, fewest parameters against grok rate, as a table."""

from collections.abc import Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any

from search.errors import UserError
from search.stats.counting import few_digits, pareto, percents
from search.study.described import aligned

Row = Mapping[str, Any]
"""A configuration as search.analysis.frames has it, or a shown one."""
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


def front(configurations: Sequence[Row], max_params: int | None = None) -> list[dict[str, Any]]:
    """Return the Pareto front of configurations with a grokked seed, smallest first.

    They are compared by the lower end of the rate's interval, so that one of two seeds does not outrank twenty
    of sixty-four; by the confirmation's rate where there is one. Where a study confirmed some, others of it that are
    not smaller than these are left out: their rates are what they were chosen by. configurations: as
    search.analysis.frames has them. Raises UserError for those of a file without a column that is shown.
    """
    most = inf if max_params is None else max_params
    grokked = [row for row in configurations if row["grokked"] > 0 and row["params"] <= most]
    for name in COLUMNS:
        if any(name not in row for row in grokked):
            raise UserError(f"records lack the column {name}: `adder-search records STUDY -o FILE` writes it")
    rows = list(map(_shown, grokked))

    least_confirmed: dict[str, int] = {}  # by study
    for row in rows:
        if row["confirmation_seeds"]:
            study, params = row["study"], row["params"]
            least_confirmed[study] = min(params, least_confirmed.get(study, params))

    candidates = [
        row for row in rows if row["confirmation_seeds"] or row["params"] < least_confirmed.get(row["study"], inf)
    ]

    members = pareto([row["params"] for row in candidates], list(map(lower_end, candidates)))
    on_front = [row for row, is_member in zip(candidates, members, strict=True) if is_member]
    return sorted(on_front, key=itemgetter("params", "study", "configuration"))


def beaten(configurations: Sequence[Row], rows: Sequence[Row], max_params: int | None = None) -> list[str]:
    """Return the studies that grokked and have no place on the front. rows: the front, up to `max_params`."""
    most = inf if max_params is None else max_params
    grokked = {row["study"] for row in configurations if row["grokked"] and row["params"] <= most}
    return sorted(grokked - {row["study"] for row in rows})


def best_of(configurations: Sequence[Row]) -> dict[str, Any] | None:
    """Return the configuration of the front whose rate has the highest lower end; None where nothing grokked.

    Equals have the same size, or the front would lack the larger one; the least training per grokked seed decides.
    """
    return max(front(configurations), key=lambda row: (lower_end(row), row["grokked_per_million"]), default=None)


def lower_end(row: Row) -> float:
    """Return the lower end of a configuration's unpooled rate: of the confirmation's where there is one."""
    if row["confirmation_seeds"]:
        return float(row["confirmation_low"])
    return float(row["grok_rate_low"]) if row["seeds"] else 0.0


def _shown(row: Row) -> dict[str, Any]:
    """Return what the table and JSON show. Search and confirmation have a rate each: nothing is pooled."""
    shown = {name: row[name] for name in COLUMNS}
    shown |= {name: row.get(name, 0) for name in PROOFS}
    shown["held"] = shown["held"] if row.get("recipe.hold", 1) else None  # nothing is to hold
    return {name: value if value == value else None for name, value in shown.items()}  # a frame has NaN


def table(rows: Sequence[dict[str, Any]], width: int | None = None) -> str:
    """Return rows of `front` in aligned columns, and the commands below them.

    Confirmations and proofs have a column if there are any. `per million`: grokked seeds per million seed-steps.
    width: characters of a line; where the columns need more, each row is a block of lines.
    """
    cells = list(map(_cells, rows))
    headings = [heading for heading in cells[0] if heading not in OPTIONAL or any(each[heading] for each in cells)]
    blocks = [[each[heading] for heading in headings] for each in cells]
    right = [number for number, heading in enumerate(headings) if heading in NUMBERS]

    lines = aligned([headings, *blocks], right)
    if width and max(map(len, lines)) > width:
        lines = []
        for block in blocks:
            lines += [*aligned([*zip(headings, block, strict=True)]), ""]
        lines = lines[:-1]  # without the last blank line
    commands = [f"  {row['pull']}" for row in rows]
    return "\n".join([*lines, "", "The best seed's checkpoint of each:", *commands])


def _cells(row: Row) -> dict[str, str]:
    """Return a row's texts by heading."""
    stopped = "stopped at a success; " if row["stopped"] else ""
    interval = percents((row["grok_rate_low"], row["grok_rate_high"]))
    held = "" if row["held"] is None else f"{row['held']:,} of {row['grokked']:,}"
    verified = "not decoded yet"  # of its best seeds, on the official additions
    if row["verify_tried"]:
        is_verified = "yes" if row["verified"] else "no"
        verified = f"{is_verified} ({row['verified']:,} of {row['verify_tried']:,})"
    confirmed = ""
    if row["confirmation_seeds"]:
        ends = percents((row["confirmation_low"], row["confirmation_high"]))
        confirmed = f"{row['confirmation_grokked']:,} of {row['confirmation_seeds']:,} ({ends})"
    return {
        "params": f"{row['params']:,}",
        "model": row["rung"],
        "study": row["study"],
        "configuration": row["title"],
        "grok rate": f"{row['grokked']:,} of {row['seeds']:,} ({stopped}{interval})",
        "per million": few_digits(row["grokked_per_million"], 3),
        "confirmed": confirmed,
        "best seed": row["best_seed"],
        "median grok step": f"{row['median_grok_step']:,.0f}",
        "held": held,
        "verified": verified,
        "proved": _proved(row),
    }


def _proved(row: Row) -> str:
    counts = []
    if row["prove_tried"]:
        counts.append(f"{row['proved']:,} of {row['prove_tried']:,}")
    if row["proofs_claimed"]:
        counts.append(f"{row['proofs_claimed']:,} claimed, not checked here (prove --study {row['study']})")
    return ", ".join(counts)
