"""The formats that the scale-dependent-constraint table is written in."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from search.analysis.arms import Arm
from search.analysis.table import Cell, Scale, Table, constraint_table
from search.analysis.verdicts import RULE, SECTION, Agreement, Verdict, published
from search.stats.intervals import LEVEL, Interval, discoveries
from trainer import Recipe
from trainer.recipe.teacher import shown

FORMATS = ("md", "csv", "json")
MISSING = "–"
STOPPED = (
    "stopped there: it went on until enough seeds had grokked; the share is too high for that, and the "
    "interval is the exact one for stopping there (negative binomial)"
)
DETAILS = (
    "constraint", "scale", "verdict", "with it", "without", "difference in points", "of the same seeds", "p",
    "power", "best exact match, %", "median grok step", "verified", "saves",
)  # fmt: skip


def table_of(configurations: Sequence[dict[str, Any]], paper: bool, seeds: Sequence[dict[str, Any]]) -> Table:
    """Return the table; `paper` adds the published constraints and scales, recorded or not."""
    constraints, scales = (
        (dict.fromkeys(column) for column in zip(*published(), strict=True)) if paper else ({}, {})
    )
    return constraint_table(configurations, [*constraints], [*scales], seeds)


def write_table(table: Table, style: str, *, paper: bool = False, ui: str = "") -> str:
    """Return the table in one of FORMATS. ui: address that links of md lead to; empty for no links."""
    if style == "md":
        return markdown(table, paper, ui.rstrip("/"))
    rows = table.tidy(paper)
    if style == "json":
        return json.dumps(rows, indent=1, allow_nan=False) + "\n"
    text = StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown(table: Table, paper: bool = False, ui: str = "") -> str:
    """Return an overview, the paper's verdicts if asked for, then a line a cell, a rule and notes."""
    pages: dict[str, str] = {}

    def link(arm: Arm) -> str:
        if not ui:
            return _count(arm)
        return f"[{_count(arm)}][{pages.setdefault(f'{ui}/{arm.page}', f'r{len(pages) + 1}')}]"

    parts = ["Grokked seeds with the constraint vs without it:", _grid(table, _overview)]
    if paper:
        parts += [f"Beside the {SECTION}: {_agreements(table)}.", _grid(table, _beside_paper)]
    parts += ["The verdicts:", bullets([f"{verdict}: {rule}" for verdict, rule in RULE.items()])]
    parts += ["Cell by cell, with the constraint / without it:"]
    tested = [cell for cell in table.cells if cell.verdict != Verdict.NOT_TESTED]
    parts += [markdown_table(DETAILS, [_details(cell, link) for cell in tested])]
    parts += ["Notes:", bullets(_notes(table))]
    links = "\n".join(f"[{name}]: {page}" for page, name in pages.items())
    return "\n\n".join([*parts, *([links] if links else [])]) + "\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with padded columns."""
    lines = [[_plain(text) for text in line] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = ([text.ljust(w) for text, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(line)}" for line in lines)


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in a cell too."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;").replace("`", "'")


# Cells


def _grid(table: Table, text_of: Callable[[Cell], str]) -> str:
    head = ["constraint", *(scale.label for scale in table.scales)]
    return markdown_table(head, [[constraint, *map(text_of, cells)] for constraint, cells in table.rows()])


def _overview(cell: Cell) -> str:
    if cell.verdict == Verdict.NOT_TESTED:
        return cell.summary
    return f"{cell.summary}: {_count(cell.with_it)} vs {_count(cell.without)}"


def _beside_paper(cell: Cell) -> str:
    words = cell.published.words
    return f"{cell.agreement}: “{words}”" if words else str(cell.agreement)


def _details(cell: Cell, link: Callable[[Arm], str]) -> list[str]:
    """Return the line of a cell, as DETAILS heads it. link: returns an arm's count with a link to its page."""
    arms = (cell.with_it, cell.without)
    paired = cell.paired if cell.paired and cell.paired.n else None

    def both(text_of: Callable[[Arm], str]) -> str:
        return " / ".join(text_of(arm) if arm else MISSING for arm in arms)

    return [
        cell.constraint,
        cell.scale.label,
        cell.summary,
        *(f"{link(arm)} {_rate(arm)}" if arm else MISSING for arm in arms),
        MISSING if cell.difference is None else points(cell.difference[0], cell.difference[1:]),
        f"{points(paired.difference, paired.interval)} of {paired.n}" if paired else MISSING,
        p_value(paired.p) if paired else MISSING,
        f"{100 * paired.power:.0f} %" if paired else MISSING,
        both(lambda arm: _percent(arm.best_exact, 2) if arm.rate.n else MISSING),
        both(lambda arm: MISSING if arm.median_grok_step is None else f"{arm.median_grok_step:,.0f}"),
        both(lambda arm: f"{arm.verified} of {arm.decoded}" if arm.decoded else MISSING),
        MISSING if cell.saves is None else str(cell.saves),
    ]


def _percent(rate: float, digits: int = 1) -> str:
    return f"{100 * rate:.{digits}f}"


def _count(arm: Arm | None) -> str:
    return f"{arm.rate.grokked}/{arm.rate.n}" if arm else MISSING


def _rate(arm: Arm) -> str:
    if not arm.rate.n:
        return MISSING
    low, high = map(_percent, arm.rate.interval)
    stopped = "stopped there: " if arm.rate.stopped else ""
    return f"{_percent(arm.rate.rate)} % ({stopped}{low}–{high})"


def points(difference: float, interval: Interval) -> str:
    """Return a difference of two rates with its interval, in percentage points."""
    between, low, high = (f"{100 * x:+.1f}" for x in (difference, *interval))
    return f"{between} ({low} to {high})".replace("-", "−")


def p_value(p: float) -> str:
    return "under 0.001" if p < 0.001 else f"{p:.3f}"


# Notes


def _notes(table: Table) -> list[str]:
    """Return how to read the table, and what its columns and cells stand for."""
    arms = [arm for cell in table.cells for arm in (cell.with_it, cell.without) if arm]
    repeats = (
        "a configuration of several studies is shown as the one that trained most configurations has it; "
        "nothing is added up, because the same seeds may be in both"
    )
    return [
        "k/n: seeds that grokked, of all that were counted; only censored seeds are not",
        "intervals are of 95 %: Wilson's for a rate, its upper end with what given-up seeds might have done; "
        "Newcombe's hybrid score interval for a difference of independent seeds, an exact one for that of "
        "the same",
        *([STOPPED] if any(arm.rate.stopped for arm in arms) else []),
        _tests(table),
        "verified: of the decoded best seeds; saves: parameters",
        *([repeats] if table.has_repeats else []),
        *(f"{scale.label}: {_describe_base(scale, table.scales)}" for scale in table.scales),
        *(f"{cell.constraint} at {cell.scale.label}: {cell.also}" for cell in table.cells if cell.also),
    ]


def _tests(table: Table) -> str:
    """Return how much independent evidence there is, and how many of the tests to believe."""
    paired = [cell for cell in table.cells if cell.paired and cell.paired.n]
    if not paired:
        return "no seed is recorded for both arms of any cell: nothing is paired"
    ps = list({cell.specs: cell.paired.p for cell in paired if cell.paired}.values())
    bases = len({cell.scale.label for cell in paired})
    return (
        f"{len(ps)} comparisons with {bases} base arm{'s' * (bases != 1)}: the cells of a column share its "
        f"base's seeds, and are no independent evidence; {sum(p < LEVEL for p in ps)} have p below 5 %, by "
        f"chance alone {LEVEL * len(ps):.1f} would; at a false discovery rate of 5 % (Benjamini and Hochberg) "
        f"{sum(discoveries(ps))} are left"
    )


def _describe_base(scale: Scale, scales: Sequence[Scale]) -> str:
    """Return where a scale's base comes from, and how it differs from the paper's or the preset's first one."""
    if scale.base is None:
        return f"{scale.params} parameters, nothing recorded"
    source = f"{scale.params} parameters, study {scale.base.study}"
    first = next(s for s in scales if s.preset == scale.preset and s.base)
    if first is scale:
        changes = _changes(shown(scale.base.recipe.as_dict()), Recipe().as_dict())
        return f"{source}; recipe: {changes or 'as the 57p paper has it'}"
    values, others = (
        {**shown(s.base.recipe.as_dict()), **s.base.spec.as_dict()} for s in (scale, first) if s.base
    )
    return f"{source}; unlike {first.label}: {_changes(values, others)}"


def _changes(values: dict[str, Any], others: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != others[name])


def _agreements(table: Table) -> str:
    """Return in a line how our verdicts and the paper's go together."""
    counts = Counter(cell.agreement for cell in table.cells)
    without = counts.pop(Agreement.NO_CLAIM, 0)
    parts = ", ".join(f"{a} {counts[a]}" for a in Agreement if a != Agreement.NO_CLAIM)
    return f"of {counts.total()} cells with a published verdict: {parts}; {without} without one"
