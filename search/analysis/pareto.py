"""The Pareto front, fewest parameters against grok rate, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from search.stats.counting import GrokRate, pareto

HEADINGS = (
    "params", "rung", "study", "configuration", "grok rate", "per million", "confirmed", "best seed",
    "median grok step", "held", "verified",
)  # fmt: skip
NUMBERS = {"params", "per million", "best seed", "median grok step"}  # right-aligned


def rates_of(row: Mapping[str, Any]) -> tuple[GrokRate, GrokRate, GrokRate]:
    """Of a configuration as search.analysis.frames has it: of all of its seeds, of the confirmation's, of the
    search's, by which it was chosen. Where the search stopped once enough had grokked, its interval says so.
    """
    ends = (row["grok_rate_low"], row["grok_rate_high"]) if row["stopped"] else None
    whole = GrokRate(row["grokked"], row["seeds"], row["given_up"], row["wrongly"], recorded_interval=ends)
    fresh = GrokRate(*(row[f"confirmation_{name}"] for name in ("grokked", "seeds", "given_up", "wrongly")))
    search = GrokRate(
        whole.grokked - fresh.grokked,
        whole.n - fresh.n,
        whole.given_up - fresh.given_up,
        max(whole.missed - fresh.missed, 0.0),
        recorded_interval=ends,
    )
    return whole, fresh, search


def front(configurations: Sequence[Mapping[str, Any]], max_params: int | None = None) -> list[dict[str, Any]]:
    """The Pareto front of those with a grokked seed, smallest first.

    By the lower end of the rate's interval, so that one of two seeds does not outrank twenty of sixty-four;
    of the confirmation's rate where there is one. `configurations`: rows as search.analysis.frames has them.
    """
    mine = [r for r in configurations if r["grokked"] > 0 and r["params"] <= (max_params or r["params"])]
    shown = [_plain(r) for r in mine]
    lows = [r["grok_rate_low"] if r["confirmation_low"] is None else r["confirmation_low"] for r in shown]
    members = pareto([r["params"] for r in shown], lows)
    kept = [r for r, is_member in zip(shown, members, strict=True) if is_member]
    return sorted(kept, key=itemgetter("params", "study", "configuration"))


SHOWN = (
    "study", "configuration", "rung", "best_seed", "params", "seeds", "grokked", "held", "verified",
    "verify_tried", "confirmation_grokked", "confirmation_seeds", "grok_rate", "grok_rate_low",
    "grok_rate_high", "grokked_per_million", "median_grok_step", "stopped",
)  # fmt: skip


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the table and JSON show of a configuration. Where it was confirmed the rate is the search's, and
    the confirmation's stands beside it: nothing is pooled.
    """
    shown = {name: row[name] for name in SHOWN} | {"confirmation_low": None, "confirmation_high": None}
    _, fresh, search = rates_of(row)
    if not fresh.n:
        return shown
    low, high = search.interval
    fresh_low, fresh_high = fresh.interval
    return shown | {
        "seeds": search.n, "grokked": search.grokked, "grok_rate": search.rate, "grok_rate_low": low,
        "grok_rate_high": high, "confirmation_low": fresh_low, "confirmation_high": fresh_high,
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of `front` in aligned columns, and the commands below them.

    The column of confirmations is left out where there is none. `per million`: grokked seeds for each million
    seed-steps of all counted ones.
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
    confirmed = ""
    if row["confirmation_seeds"]:
        ends = f"{row['confirmation_low']:.1%} to {row['confirmation_high']:.1%}"
        confirmed = f"{row['confirmation_grokked']} of {row['confirmation_seeds']} ({ends})"
    return (
        str(row["params"]),
        row["rung"],
        row["study"],
        row["configuration"],
        f"{counted} ({'stopped there: ' * row['stopped']}{low:.1%} to {high:.1%})",
        f"{row['grokked_per_million']:.3g}",
        confirmed,
        row["best_seed"],
        f"{row['median_grok_step']:,.0f}",
        f"{row['held']} of {row['grokked'] + row['confirmation_grokked']}",
        certificate(row),
    )


def certificate(row: dict[str, Any]) -> str:
    """Whether the best grokked seeds decode all 10,010 official additions, as far as that was tried."""
    if not row["verify_tried"]:
        return "not decoded yet"
    return f"{'yes' if row['verified'] else 'no'} ({row['verified']} of {row['verify_tried']})"
