"""The Pareto front, fewest parameters against grok rate, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

HEADINGS = (
    "params", "rung", "study", "configuration", "grok rate", "confirmed", "best seed", "median grok step",
    "held", "verified",
)  # fmt: skip
NUMBERS = {"params", "best seed", "median grok step"}  # right-aligned


def front(configurations: pd.DataFrame, max_params: int | None = None) -> list[dict[str, Any]]:
    """The Pareto front of those with a grokked seed, smallest first, as plain values.

    By the lower end of the rate's interval, so that one of two seeds does not outrank twenty of sixty-four.
    `configurations`: as `search.records.records` returns them.
    """
    from search.store.stats import pareto

    if configurations.empty:
        return []
    mine = configurations[configurations["grokked"] > 0]
    if max_params is not None:
        mine = mine[mine["params"] <= max_params]
    kept = mine.loc[pareto(mine["params"].tolist(), mine["grok_rate_low"].tolist())]
    ordered = kept.sort_values(["params", "study", "configuration"])
    return [_plain(row) for row in ordered.to_dict("records")]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """What the table and JSON show of a configuration."""
    counts = (
        "params", "seeds", "grokked", "held", "verified", "verify_tried",
        "confirmation_grokked", "confirmation_seeds",
    )  # fmt: skip
    names = ("study", "configuration", "rung", "best_seed")
    rates = ("grok_rate", "grok_rate_low", "grok_rate_high", "median_grok_step")
    return {
        **{name: str(row[name]) for name in names},
        **{name: int(row[name]) for name in counts},
        **{name: float(row[name]) for name in rates},
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of `front` in aligned columns, and the commands below them.

    The column of confirmations is left out where there is none.
    """
    cells = [dict(zip(HEADINGS, _cells(r), strict=True)) for r in rows]
    shown = [h for h in HEADINGS if h != "confirmed" or any(c[h] for c in cells)]
    widths = {h: max(len(h), *(len(c[h]) for c in cells)) for h in shown}

    def line(texts: dict[str, str]) -> str:
        aligned = (texts[h].rjust(widths[h]) if h in NUMBERS else texts[h].ljust(widths[h]) for h in shown)
        return "  ".join(aligned).rstrip()

    lines = [line({h: h for h in shown}), *map(line, cells)]
    return "\n".join([*lines, "", "The best seed's checkpoint of each:", *(f"  {r['pull']}" for r in rows)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    low, high = row["grok_rate_low"], row["grok_rate_high"]
    counted = f"{row['grokked']} of {row['seeds']}"
    confirmed = f"{row['confirmation_grokked']} of {row['confirmation_seeds']}"
    return (
        str(row["params"]),
        row["rung"],
        row["study"],
        row["configuration"],
        f"{counted} ({low:.1%} to {high:.1%})",
        confirmed if row["confirmation_seeds"] else "",
        row["best_seed"],
        f"{row['median_grok_step']:,.0f}",
        f"{row['held']} of {row['grokked']}",
        certificate(row),
    )


def certificate(row: dict[str, Any]) -> str:
    """Whether the best grokked seeds decode all 10,010 official additions, as far as that was tried."""
    if not row["verify_tried"]:
        return "not decoded yet"
    return f"{'yes' if row['verified'] else 'no'} ({row['verified']} of {row['verify_tried']})"
