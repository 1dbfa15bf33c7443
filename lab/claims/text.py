"""The table of claims as text and as plain values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from lab.claims.claim import KINDS, OF_SEEDS, Claim
from lab.claims.judge import Count, Judged, Verdict, believed
from lab.claims.trained import MEASURES
from reports.table_text import markdown_table
from search.stats.intervals import LEVEL, Interval

HEAD = (
    "paper", "section", "claim", "decided by", "with", "without", "difference in points", "p", "power",
    "verdict",
)  # fmt: skip
MISSING, WIDTH = "–", 110


def as_json(judged: Sequence[Judged]) -> str:
    return json.dumps([_plain(j) for j in judged], indent=1, allow_nan=False) + "\n"


ABOUT = {"id", "paper", "section", "says", "kind", "study", "rungs", "measure", "open"}


def _plain(j: Judged) -> dict[str, Any]:
    low, high = j.interval if j.paired and j.paired.n else (None, None)
    return j.claim.model_dump(by_alias=True, include=ABOUT) | {
        "with": _arm(j.claim.with_, j.with_it, j.claim.kind == "rate"),
        "without": _arm(j.claim.without, j.without, False),
        "pairs": j.paired and j.paired.n,
        "only_with": j.paired and j.paired.first,
        "only_without": j.paired and j.paired.second,
        "difference": j.paired.difference if j.paired and j.paired.n else None,
        "difference_low": low,
        "difference_high": high,
        "p": j.p,
        "power": j.power,
        "believed": None if j.p is None else j.believed,
        "verdict": str(j.verdict),
    }


def _arm(name: str | None, count: Count | None, is_rate: bool) -> dict[str, Any] | None:
    """Return an arm as plain values, with an interval if the claim is about the share.

    Other claims may have chosen seeds, or a study that ends at a success.
    """
    if count is None:
        return None
    return {"arm": name, "k": count.k, "n": count.n, "interval": count.interval if is_rate else None}


def markdown(judged: Sequence[Judged]) -> str:
    """Return the table, how verdicts are reached, and how many tests there were."""
    parts = [
        summary(judged),
        markdown_table(HEAD, [_line(j) for j in judged]),
        "How a claim is decided, by its kind:",
    ]
    parts += ["\n".join(f"- {kind}: {says}" for kind, says in KINDS.items())]
    parts += ["Notes:", "\n".join(f"- {note}" for note in notes(judged))]
    return "\n\n".join(parts) + "\n"


def text(judged: Sequence[Judged]) -> str:
    """Return a claim a paragraph, for a terminal: verdict, words, and what decided it."""
    lines = [summary(judged), ""]
    for j in judged:
        paper, section, says, by, *arms, difference, p, _, verdict = _line(j)
        parts = [by, " against ".join(arm for arm in arms if arm != MISSING)]
        parts += [f"{difference} pairs" if difference != MISSING else "", f"p {p}" if p != MISSING else ""]
        lines += wrap(f"{verdict}: {says} ({paper}, {section})", WIDTH)
        lines += wrap(", ".join(filter(None, parts)), WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join([*lines, "", "--table prints the rules too"]) + "\n"


def summary(judged: Sequence[Judged]) -> str:
    count = Counter(j.verdict for j in judged)
    counts = f"{count[Verdict.HOLDS]} hold, {count[Verdict.FAILS]} do not hold, {count[Verdict.OPEN]} are open"
    return f"{len(judged)} claims: {counts}."


def notes(judged: Sequence[Judged]) -> list[str]:
    tests, lasting = [j for j in judged if j.p is not None], believed(judged)
    small = [j for j in tests if (j.p or 0.0) < LEVEL]
    lost = ", ".join(j.claim.id for j in small if j not in lasting)
    return [
        "k of n: seeds that grokked (or did what the claim counts), of all that were counted; only "
        "censored seeds are not, and given-up ones did not grok",
        "differences in points are between the seeds that both arms had, with the exact interval of 95 %, wider by "
        "what a stopping rule may have kept from an arm; the pairs of a study and of the table's cell are added up",
        "p: McNemar's exact test, two-sided; of `unrelated` Fisher's",
        "power: how likely that test would have told the arm in which more seeds do from one in which none does",
        f"{len(tests)} claims have a test; {len(small)} have p below 5 %, by chance alone "
        f"{LEVEL * len(tests):.1f} would; at a false discovery rate of 5 % (Benjamini and Hochberg) "
        f"{len(lasting)} are left and decide" + (f", without {lost}" if lost else ""),
        "0 of n is no proof: beside it stands how many may grok all the same (95 %), and how far half of its seeds "
        "were trained before they were ended or spent",
        "rows that share an arm or a checkpoint are no independent evidence",
    ]


def _line(j: Judged) -> tuple[str, ...]:
    claim, missing = j.claim, [MISSING] * 4
    about = (claim.paper, claim.section, claim.says)
    if claim.kind is None:
        return (*about, f"needs {claim.open}", MISSING, *missing, str(j.verdict))
    if claim.kind not in OF_SEEDS:
        return (*about, _checkpoints(claim), str(j.with_it), *missing, str(j.verdict))
    against = f" against {claim.without}" if claim.without else ""
    table = f"; the table's {claim.cell}" if claim.cell else ""
    return (
        *about,
        f"{claim.study}: {claim.with_}{against}{table} ({claim.kind})",
        _count(j.with_it, claim.kind == "rate"),
        _count(j.without),
        _difference(j),
        MISSING if j.p is None else p_value(j.p),
        MISSING if j.power is None else f"{100 * j.power:.0f} %",
        str(j.verdict),
    )


def _checkpoints(claim: Claim) -> str:
    checkpoints = f"checkpoint{'s' * (len(claim.rungs) > 1)} of {', '.join(claim.rungs)}"
    if claim.measure is None:
        return f"{checkpoints} ({claim.kind})"
    named = (("at least", claim.at_least), ("at most", claim.at_most))
    bounds = " and ".join(f"{word} {x:g}" for word, x in named if x is not None)
    return f"{checkpoints}: {MEASURES[claim.measure][0]} {bounds} ({claim.kind})"


def _count(count: Count | None, interval: bool = False) -> str:
    if count is None or not count.n:
        return MISSING
    low, high = (f"{100 * x:.1f}" for x in count.interval)
    if not count.k and count.steps and not interval:
        return f"{count} (at most {high} %; half to step {count.steps:,} or less)"
    return f"{count} ({low}–{high} %)" if interval else str(count)


def points(difference: float, interval: Interval) -> str:
    """Return a difference of two rates with its interval, in percentage points."""
    between, low, high = (f"{100 * x:+.1f}" for x in (difference, *interval))
    return f"{between} ({low} to {high})".replace("-", "−")


def p_value(p: float) -> str:
    return "under 0.001" if p < 0.001 else f"{p:.3f}"


def _difference(j: Judged) -> str:
    if j.paired is None or not j.paired.n:
        return MISSING
    return f"{points(j.paired.difference, j.interval)} of {j.paired.n}"
