"""The formats that the scale-dependent-constraint table is written in."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from io import StringIO
from itertools import compress
from math import inf
from typing import Any

from search.analysis.arms import Arm
from search.analysis.table import Cell, Pair, Table, constraint_table
from search.analysis.verdicts import RULE, SECTION, Agreement, Answer, Effect, published
from search.stats.intervals import LEVEL, discoveries
from search.stats.record import SeedRecord
from search.study.described import counted
from trainer import Recipe
from trainer.recipe.teacher import shown

FORMATS = ("md", "csv", "json")
MISSING = "–"
WORDS = {Answer.YES: "trains", Answer.NO: "not seen to train", Answer.OPEN: "open"}
HEAD = (
    "Does a model train with the constraint, and what does it cost? k/n: seeds that grokked, with it vs without it. "
    "×: the ratio of these rates on the same seeds; costs or helps where its 95 % interval leaves out 1."
)
PAPER = ("paper", "agreement")
FEW = 4
"""Fields of a recipe that are shown with their values."""
FINISHING = "with curvature at the end"


def table_of(configurations: Sequence[dict[str, Any]], paper: bool, seeds: Iterable[SeedRecord] = ()) -> Table:
    """Return the table; with `paper` of the published constraints, and at its scales, recorded or not."""
    constraints, scales = (dict.fromkeys(column) for column in zip(*published(), strict=True)) if paper else ({}, {})
    return constraint_table(configurations, [*constraints], [*scales], seeds)


def write_table(table: Table, style: str, *, paper: bool = False, ui: str = "") -> str:
    """Return the table in one of FORMATS. ui: address that links of md lead to; empty for no links."""
    return markdown(table, paper, ui.rstrip("/")) if style == "md" else rows_text(table.tidy(), style)


def rows_text(rows: Sequence[dict[str, Any]], style: str) -> str:
    if style == "json":
        return json.dumps(rows, indent=1, allow_nan=False) + "\n"
    text, columns = StringIO(), dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown(table: Table, paper: bool = False, ui: str = "") -> str:
    """Return a grid, how it agrees with the paper if asked for, then a line a cell, and notes."""
    pages: dict[str, str] = {}

    def link(arm: Arm) -> str:
        if not (ui and arm.page):
            return count(arm)
        return f"[{count(arm)}][{pages.setdefault(f'{ui}/{arm.page}', f'r{len(pages) + 1}')}]"

    head = ["constraint", *table.scales]
    grid = [[constraint, *(_summary(c, paper) for c in cells)] for constraint, cells in table.rows()]
    parts = [HEAD, markdown_table(head, grid)]
    if paper:
        parts += [agreements(table.cells.values())]
    columns, rows = details(table, paper, link)
    if rows:
        parts += ["Cell by cell:", markdown_table(columns, rows)]
    parts += ["Notes:", bullets(notes(table))]
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


def agreements(cells: Collection[Cell]) -> str:
    """Return in a line how the table and the paper go together."""
    counts = Counter(cell.agreement for cell in cells)
    agree, contradict, are_open = (counts[a] for a in Agreement)
    parts = f"{agree} agree with it, {contradict} contradict it, {are_open} are open"
    untried = sum(cell.with_it is None for cell in cells)
    without = f" ({untried} of them not tried)" if untried else ""
    verdicts = agree + contradict + are_open
    return f"The {SECTION}, has a verdict on {verdicts} of {counted(len(cells), 'cell')}{without}: {parts}."


# Cells


def _summary(cell: Cell | None, paper: bool) -> str:
    """Return a cell of the grid; empty where the scale cannot have the constraint."""
    if cell is None or cell.with_it is None:
        return "" if cell is None else MISSING
    words = "" if cell.cost == Effect.OPEN else f" {cell.cost}"
    words += f" {times(cell)}" if cell.paired and cell.paired.ratio is not None else ""
    contradicts = paper and cell.agreement == Agreement.CONTRADICTS
    mark = f" (paper: {cell.published.verdict})" if contradicts else ""
    return f"{WORDS[cell.trains]}{',' * bool(words)}{words}: {count(cell.with_it)} vs {count(cell.without)}{mark}"


def details(table: Table, paper: bool, link: Callable[[Arm], str] | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the columns and a line for each cell that was tried. link: returns an arm's count with a link."""
    lines = [_line(cell, link or count) for cell in _tried(table)]
    optional = {FINISHING: any(arm.finishes for arm in _arms(table)), **dict.fromkeys(PAPER, paper)}
    columns = [column for column in (lines[0] if lines else ()) if optional.get(column, True)]
    return columns, [[line[column] for column in columns] for line in lines]


def _tried(table: Table) -> list[Cell]:
    return [cell for cell in table.cells.values() if cell.with_it]


def _arms(table: Table) -> list[Arm]:
    return [arm for cell in _tried(table) for arm in (cell.with_it, cell.without) if arm]


def _line(cell: Cell, link: Callable[[Arm], str]) -> dict[str, str]:
    arms = (cell.with_it, cell.without)
    finished = " vs ".join(f"{a.grokked_with_finished}/{a.n}" if a else MISSING for a in arms)
    counts = [f"{link(arm)} {100 * arm.rate:.0f} %" if arm else MISSING for arm in arms]
    return {
        "constraint": cell.constraint,
        "scale": cell.scale,
        "trains": _trains(cell),
        **dict(zip(("with it", "without"), counts, strict=True)),
        FINISHING: finished,
        "ratio (95 %)": _ratio(cell),
        "cost": str(cell.cost),
        "keeps half": str(cell.keeps_half),
        **dict(zip(PAPER, (cell.published.words or MISSING, str(cell.agreement or MISSING)), strict=True)),
        "saves": str(cell.saves),
        "study": cell.with_it.study if cell.with_it else MISSING,
    }


def _trains(cell: Cell) -> str:
    """Return if it trains; where it was not seen to, the highest rate that is possible."""
    if cell.trains != Answer.NO or not cell.with_it:
        return str(cell.trains)
    ended = f"; {cell.with_it.ended} ended early" if cell.with_it.ended else ""
    return f"{cell.trains}, at most {100 * cell.with_it.interval[1]:.1f} %{ended}"


def _ratio(cell: Cell) -> str:
    """Return the ratio with its interval, and the number of pairs where an arm has more seeds."""
    if not cell.paired:
        return MISSING
    same = all(arm and arm.n == cell.paired.n for arm in (cell.with_it, cell.without))
    return f"{times(cell)} ({interval(cell)})" + ("" if same else f" of {cell.paired.n} pairs")


def interval(cell: Cell, between: str = "–") -> str:
    """Return the ends of the ratio's interval as text; empty if nothing is paired."""
    ends = cell.paired.ratio_interval if cell.paired else ()
    return between.join("∞" if end == inf else f"{end:.2f}" for end in ends)


def count(arm: Arm | None) -> str:
    return f"{arm.grokked}/{arm.n}" if arm else MISSING


def times(cell: Cell) -> str:
    """Return the ratio of grok rates as text."""
    ratio = cell.paired and cell.paired.ratio
    return "×–" if ratio is None else f"×{ratio:.2f}"


# Notes


def notes(table: Table) -> list[str]:
    """Return the rule, how to read the table, and what its columns and cells stand for."""
    tried, arms = _tried(table), _arms(table)
    lines = [f"{name}: {rule}" for name, rule in RULE.items()]
    lines += [
        "k/n: seeds that grokked, of all that were counted. Seeds that a rule ended early count as not grokked",
        f"{MISSING}: not tried; empty: the scale cannot have the constraint, or it would save nothing",
        "saves: parameters that the constraint takes away",
        "paper: its words, in brackets the exact match that it gives. agreement: of `trains` with them",
    ]
    if any(arm.stopped for arm in arms):
        lines += ["an arm that went on until enough seeds had grokked has too high a share, and no ratio"]
    if any(arm.finishes for arm in arms):
        lines += [
            f"{FINISHING}: with the seeds that had spent their budget and that curvature finished (finish_above). All "
            "else is of training alone; a seed that groks exactly at its last evaluation counts as finished"
        ]
    if any(len(cell.pairs) > 1 or len({arm.study for arm in cell.arms}) > 1 for cell in tried):
        lines += [
            "a cell that was trained more than once shows one pair of arms and adds nothing up: the pair with most "
            "seeds in common, or of equals that with the higher rate without the constraint. A verified seed of any "
            "study shows that it trains"
        ]
    lines += [_tests(tried), *same_pairs(tried)]
    lines += [note for scale in table.scales for note in _bases(scale, tried)]
    return [*lines, *(f"{cell.constraint} at {cell.scale}: {cell.also}" for cell in tried if cell.also)]


def discovered(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the comparisons that are left at a false discovery rate of LEVEL, as `_by_arms` has them."""
    compared = _by_arms(cells)
    left = discoveries([cell.paired.p for cell, *_ in compared if cell.paired])
    return list(compress(compared, left))


def _by_arms(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the paired cells, those that show the same two arms together."""
    by_arms: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.pair and cell.paired:
            key = cell.pair.with_it.configuration, cell.pair.without.configuration
            by_arms.setdefault(key, []).append(cell)
    return list(by_arms.values())


def same_pairs(cells: Iterable[Cell]) -> list[str]:
    """Return why some cells of a row show the same numbers."""
    return [
        f"{same[0].constraint} at {' and '.join(cell.scale for cell in same)} is one pair of arms, as it is all in "
        "which these presets differ: shown twice, counted once"
        for same in _by_arms(cells)
        if len(same) > 1
    ]


def _tests(cells: Sequence[Cell]) -> str:
    """Return how much independent evidence there is, and how many of the tests to believe."""
    ps = [same[0].paired.p for same in _by_arms(cells) if same[0].paired]
    left = [f"{same[0].constraint} at {same[0].scale}" for same in discovered(cells)]
    if not ps:
        return "no seed is recorded for both arms of any cell: nothing is paired"
    return (
        f"{counted(len(ps), 'comparison')}; those of a column share its base's seeds and are no independent "
        "evidence. "
        f"{sum(p < LEVEL for p in ps)} have p below 5 % (McNemar), by chance alone {LEVEL * len(ps):.1f} would; at a "
        f"false discovery rate of 5 % (Benjamini and Hochberg) {len(left)} {'is' if len(left) == 1 else 'are'} left"
        + (f": {', '.join(left)}" if left else "")
    )


def _bases(scale: str, cells: Sequence[Cell]) -> list[str]:
    """Return where a scale's base comes from, and how the bases that some cells have of their own differ from it."""
    pairs = {cell.constraint: cell.pair for cell in cells if cell.scale == scale and cell.pair}
    if not pairs:
        return [f"{scale}: nothing is compared"]
    recipes = Counter(pair.base.recipe for pair in pairs.values())
    (usual, _), *others = recipes.most_common()
    size = next(iter(pairs.values())).base.spec.params
    changed = [k for k, v in shown(usual.as_dict()).items() if v != Recipe().as_dict()[k]]
    notes = [
        f"{scale}: {size:,} parameters, {_studies(pairs.values(), usual)}; the recipe is the 57p paper's"
        + (f" but for {', '.join(changed)}" if changed else "")
    ]
    for recipe, _ in others:
        named = [constraint for constraint, pair in pairs.items() if pair.base.recipe == recipe]
        values, usual_values = shown(recipe.as_dict()), shown(usual.as_dict())
        changed = [k for k, v in values.items() if v != usual_values[k]]
        changes = ", ".join(f"{k} {values[k]}" if len(changed) <= FEW else k for k in changed)
        about = f"another base, which differs in {changes}; {_studies(pairs.values(), recipe)}"
        notes += [f"{', '.join(named)} at {scale}: {about}"]
    return notes


def _studies(pairs: Iterable[Pair], recipe: Recipe) -> str:
    names = sorted({pair.base.study for pair in pairs if pair.base.recipe == recipe})
    return f"stud{'y' if len(names) == 1 else 'ies'} {', '.join(names)}"
