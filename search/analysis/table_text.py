"""The formats that the scale-dependent-constraint table is written in."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from search.analysis.table import Arm, Cell, Scale, Table, constraint_table
from search.analysis.verdicts import CLAIMS, RULE, SCALES, SECTION, Agreement
from search.stats.intervals import LEVEL, Interval, discoveries
from trainer import Recipe
from trainer.recipe.teacher import shown

FORMATS = ("md", "csv", "json", "html", "latex")
MISSING = "–"
STOPPED = (
    "stopped there: it went on until enough seeds had grokked; the share is too high for that, and the "
    "interval is the exact one for stopping there (negative binomial)"
)
DETAILS = (
    "constraint", "scale", "verdict", "with it", "without", "difference in points", "of the same seeds", "p",
    "power", "best exact match, %", "median grok step", "verified", "saves",
)  # fmt: skip


def made_from(
    rows: Sequence[dict[str, Any]], paper: bool = False, seeds: Sequence[dict[str, Any]] = ()
) -> Table:
    """The table; beside the paper, its constraints and scales are in it whether or not they are recorded."""
    constraints, scales = (list(CLAIMS), list(SCALES)) if paper else ([], [])
    return constraint_table(rows, constraints, scales, seeds)


def written(made: Table, style: str, *, paper: bool = False, ui: str = "") -> str:
    """The table in one of FORMATS. ui: the address that links lead to in md and html; empty: no links."""
    if style == "csv":
        return _csv(made.tidy(paper))
    if style == "json":
        return json.dumps([cell.as_dict(paper) for cell in made.cells], indent=1, allow_nan=False) + "\n"
    if style == "latex":
        return latex(made, paper)
    return (html if style == "html" else markdown)(made, paper, ui.rstrip("/"))


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# What all formats say


def _percent(rate: float, digits: int = 1) -> str:
    return f"{100 * rate:.{digits}f}"


def _count(arm: Arm | None) -> str:
    return f"{arm.rate.grokked}/{arm.rate.n}" if arm else MISSING


def _rate(arm: Arm) -> str:
    if not arm.rate.n:
        return MISSING
    low, high = arm.rate.interval
    stopped = "stopped there: " * arm.rate.stopped
    return f"{_percent(arm.rate.rate)} % ({stopped}{_percent(low)}–{_percent(high)})"


def summary(cell: Cell) -> str:
    """A cell of the overview."""
    if cell.verdict == "not tested":
        return cell.says
    return f"{cell.says}: {_count(cell.with_it)} vs {_count(cell.without)}"


def beside_paper(cell: Cell) -> str:
    """A cell of the comparison with the paper."""
    words = cell.published.words
    return f"{cell.agreement}: “{words}”" if words else str(cell.agreement)


def points(difference: float, interval: Interval) -> str:
    """A difference of two rates with its interval, in points."""
    between, low, high = (f"{100 * x:+.1f}" for x in (difference, *interval))
    return f"{between} ({low} to {high})".replace("-", "−")


def _difference(cell: Cell) -> str:
    return MISSING if cell.difference is None else points(cell.difference[0], cell.difference[1:])


def _paired(cell: Cell) -> tuple[str, str, str]:
    """Of the seeds that both arms had: difference, p and power."""
    if not cell.paired or not cell.paired.n:
        return (MISSING,) * 3
    said = f"{points(cell.paired.difference, cell.paired.interval)} of {cell.paired.n}"
    return said, chance(cell.paired.p), f"{100 * cell.paired.power:.0f} %"


def chance(p: float) -> str:
    """A p value."""
    return "under 0.001" if p < 0.001 else f"{p:.3f}"


def _both(cell: Cell, says: Callable[[Arm], str]) -> str:
    return " / ".join(says(arm) if arm else MISSING for arm in (cell.with_it, cell.without))


def _exact(arm: Arm) -> str:
    return _percent(arm.best_exact, 2) if arm.rate.n else MISSING


def _step(arm: Arm) -> str:
    return MISSING if arm.median_grok_step is None else f"{arm.median_grok_step:,.0f}"


def _verified(arm: Arm) -> str:
    return f"{arm.verified} of {arm.decoded}" if arm.decoded else MISSING


def details(made: Table, link: Callable[[Arm, str], str]) -> list[tuple[str, ...]]:
    """A line a cell in which anything was tried, as DETAILS heads them. link: an arm's count, linked."""
    return [
        (
            cell.constraint, cell.scale.label, cell.says,
            *(link(arm, _count(arm)) + f" {_rate(arm)}" if arm else MISSING
              for arm in (cell.with_it, cell.without)),
            _difference(cell), *_paired(cell), _both(cell, _exact),
            _both(cell, _step), _both(cell, _verified),
            MISSING if cell.saves is None else str(cell.saves),
        )
        for cell in made.cells
        if cell.verdict != "not tested"
    ]  # fmt: skip


def rule() -> list[str]:
    """How a verdict is reached, a line each."""
    return [f"{verdict}: {says}" for verdict, says in RULE.items()]


def notes(made: Table) -> list[str]:
    """How to read the table, and what its columns and cells stand for."""
    also = [f"{c.constraint} at {c.scale.label}: {c.also}" for c in made.cells if c.also]
    pooled = (
        "a configuration of several studies is shown as the one that trained most configurations has it; "
        "nothing is added up, because the same seeds may be in both"
    )
    return [
        "k/n: seeds that grokked, of all that were counted; only censored seeds are not",
        "intervals are of 95 %: Wilson's for a rate, its upper end with what given-up seeds might have done; "
        "Newcombe's hybrid score interval for a difference of independent seeds, an exact one for that of "
        "the same",
        *([STOPPED] if any(a and a.rate.stopped for c in made.cells for a in (c.with_it, c.without)) else []),
        *_tests(made),
        "verified: of the decoded best seeds; saves: parameters",
        *([pooled] if made.pooled else []),
        *(f"{scale.label}: {_base(scale, made.scales)}" for scale in made.scales),
        *also,
    ]


def _tests(made: Table) -> list[str]:
    """How much independent evidence there is, and how many of many tests to believe."""
    pairs = {c.specs: c.paired for c in made.cells if c.paired and c.paired.n}
    if not pairs:
        return ["no seed is recorded for both arms of any cell: nothing is paired"]
    bases = {c.scale.label for c in made.cells if c.paired and c.paired.n}
    ps = [paired.p for paired in pairs.values() if paired]
    small, kept = sum(p < LEVEL for p in ps), sum(discoveries(ps))
    arms = f"{len(bases)} base arm{'s' * (len(bases) != 1)}"
    return [
        f"{len(pairs)} comparisons with {arms}: the cells of a column share its base's seeds, and are no "
        f"independent evidence; {small} have p below 5 %, by chance alone {LEVEL * len(ps):.1f} would; at a "
        f"false discovery rate of 5 % (Benjamini and Hochberg) {kept} are left"
    ]


def _base(scale: Scale, others: Sequence[Scale]) -> str:
    """Where a scale's base comes from, and what about it is special."""
    if scale.base is None:
        return f"{scale.params} parameters, nothing recorded"
    first = next(s for s in others if s.rung == scale.rung and s.base)
    what = f"{scale.params} parameters, study {scale.base.study}"
    if first is scale:
        changed = _changed(shown(scale.base.recipe.as_dict()), Recipe().as_dict())
        return f"{what}; recipe: {changed or 'as the 57p paper has it'}"
    mine, theirs = (
        {**shown(s.base.recipe.as_dict()), **s.base.spec.as_dict()} for s in (scale, first) if s.base
    )
    return f"{what}; unlike {first.label}: {_changed(mine, theirs)}"


def _changed(values: dict[str, Any], others: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != others[name])


def claims(made: Table) -> str:
    """How our verdicts and the paper's go together, in one line."""
    count = Counter(cell.agreement for cell in made.cells)
    said = ", ".join(f"{a} {count[a]}" for a in Agreement if a != Agreement.NO_CLAIM)
    total = len(made.cells) - count[Agreement.NO_CLAIM]
    return f"of {total} cells with a published verdict: {said}; {count[Agreement.NO_CLAIM]} without one"


def _grid(made: Table, says: Callable[[Cell], str]) -> tuple[list[str], list[list[str]]]:
    head = ["constraint", *(scale.label for scale in made.scales)]
    return head, [[constraint, *map(says, cells)] for constraint, cells in made.rows()]


# Markdown


def markdown(made: Table, paper: bool, ui: str) -> str:
    """An overview, the paper's verdicts if asked for, then a line a cell; readable as it stands."""
    pages: dict[str, str] = {}

    def link(arm: Arm, text: str) -> str:
        if not ui:
            return text
        return f"[{text}][{pages.setdefault(f'{ui}/{arm.page}', f'r{len(pages) + 1}')}]"

    parts = ["Grokked seeds with the constraint vs without it:", pipes(*_grid(made, summary))]
    if paper:
        parts += [f"Beside the {SECTION}: {claims(made)}.", pipes(*_grid(made, beside_paper))]
    parts += ["The verdicts:", _bullets(rule()), "Cell by cell, with the constraint / without it:"]
    parts += [pipes(DETAILS, details(made, link)), "Notes:", _bullets(notes(made))]
    links = "\n".join(f"[{name}]: {page}" for page, name in pages.items())
    return "\n\n".join([*parts, *([links] if links else [])]) + "\n"


def pipes(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its columns padded."""
    lines = [[_plain(text) for text in line] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = ([text.ljust(w) for text, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(line)}" for line in lines)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, in a cell too."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;").replace("`", "'")


# LaTeX


def latex(made: Table, paper: bool) -> str:
    """The overview as a booktabs table, and with the paper a second one; the notes are comments."""
    caption = "Grokked seeds with the constraint vs without it. " + "; ".join(rule())
    parts = [
        *(f"% {' '.join(line.split())}" for line in notes(made)),
        _tabular(_grid(made, summary), caption, "tab:constraints"),
    ]
    if paper:
        parts.append(_tabular(_grid(made, beside_paper), f"{SECTION}: {claims(made)}", "tab:paper"))
    return "\n".join(parts)


def _tabular(grid: tuple[list[str], list[list[str]]], caption: str, label: str) -> str:
    import pandas as pd

    head, rows = grid
    said = caption.replace("%", r"\%")
    return str(pd.DataFrame(rows, columns=head).to_latex(index=False, escape=True, caption=said, label=label))


# HTML


def html(made: Table, paper: bool, ui: str) -> str:
    """One self-contained page."""
    head = '<!doctype html>\n<meta charset="utf-8">\n<title>Constraints by scale</title>\n'
    return head + section(made, paper, ui)


def section(made: Table, paper: bool, ui: str) -> str:
    """The page without its head, to be set into another one."""
    from jinja2 import Environment
    from markupsafe import Markup

    def link(arm: Arm, text: str) -> str:
        return Markup('<a href="{}/{}">{}</a>').format(ui, arm.page, text) if ui else Markup.escape(text)

    return (
        Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
        .from_string(PAGE)
        .render(
            made=made, paper=paper, rule=rule(), notes=notes(made), head=DETAILS, details=details(made, link),
            count=_count, link=link, rate=_rate, claims=claims(made), where=SECTION, missing=MISSING,
        )
    )  # fmt: skip


PAGE = """\
<style>
.constraints { font: 15px/1.45 system-ui, sans-serif; color: #1c2024; background: #fff; max-width: 1500px;
  margin: 2rem auto; padding: 0 1.5rem; overflow-x: auto; }
.constraints h1 { font-size: 1.5rem; margin: 0 0 .3rem; }
.constraints h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.constraints table { border-collapse: collapse; width: 100%; }
.constraints :is(th, td) { text-align: left; vertical-align: top; padding: .5rem .7rem;
  border-bottom: 1px solid #d9dee3; font-variant-numeric: tabular-nums; }
.constraints thead th { border-bottom: 2px solid #1c2024; }
.constraints tbody th { font: 600 .9rem ui-monospace, monospace; white-space: nowrap; }
.constraints .grid { table-layout: fixed; }
.constraints .grid th:first-child { width: 9.5rem; }
.constraints .grid td { border-left: .35rem solid #c6ccd2; }
.constraints .grid .works { border-left-color: #2f9e5b; background: #eef8f1; }
.constraints .grid .helps { border-left-color: #1c6dd0; background: #edf4fc; }
.constraints .grid .fails { border-left-color: #cf3b3b; background: #fcefee; }
.constraints .grid .cannot { border-left-color: #d99a1c; background: #fdf7e9; }
.constraints .grid .not { color: #6b747d; }
.constraints small { display: block; color: #4a525a; }
.constraints .lines :is(th, td) { font-size: .8rem; padding: .3rem .5rem; white-space: nowrap; }
.constraints .contradicts { color: #b02525; font-weight: 600; }
.constraints a { color: #0b57a4; }
</style>
<main class="constraints">
<h1>Which constraint works at which scale?</h1>
<p>Grokked seeds, of all that were counted, with the constraint and without it.
{% if paper %}Beside the {{ where }}: {{ claims }}.{% endif %}</p>
<table class="grid">
<thead><tr><th>constraint</th>
{% for scale in made.scales %}<th>{{ scale.label }}</th>{% endfor %}
</tr></thead>
<tbody>
{% for constraint, cells in made.rows() %}
<tr><th>{{ constraint }}</th>
{% for cell in cells %}
<td class="{{ cell.verdict }}"><strong>{{ cell.says }}</strong>
{% if cell.verdict != "not tested" %}
{% for side, arm in (("with", cell.with_it), ("without", cell.without)) %}
<small>{{ side }}
{% if arm %}{{ link(arm, count(arm)) }}, {{ rate(arm) }}{% else %}{{ missing }}{% endif %}</small>
{% endfor %}
{% endif %}
{% if paper %}
<small class="{{ cell.agreement }}">paper:
{% if cell.published.words %}“{{ cell.published.words }}”, {% endif %}{{ cell.agreement }}</small>
{% endif %}
</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
<h2>The verdicts</h2>
<ul>{% for line in rule %}<li>{{ line }}</li>{% endfor %}</ul>
<h2>Cell by cell, with the constraint / without it</h2>
<table class="lines">
<thead><tr>{% for name in head %}<th>{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for line in details %}
<tr><th>{{ line[0] }}</th>{% for text in line[1:] %}<td>{{ text }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
<h2>Notes</h2>
<ul>{% for line in notes %}<li>{{ line }}</li>{% endfor %}</ul>
</main>
"""
