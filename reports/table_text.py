"""The formats that the scale-dependent-constraint table is written in."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from io import StringIO
from itertools import compress
from typing import Any

from reports import ratios
from reports.arms import Arm
from reports.ratios import discoveries, ends_text
from reports.table import Cell, Table, constraint_table
from reports.verdicts import RULE, SECTION, Agreement, Answer, Effect, published
from search.stats.counting import percent
from search.stats.intervals import LEVEL
from search.stats.record import SeedRecord
from search.study.described import counted
from trainer import Recipe
from trainer.recipe.teacher import shown

Link = Callable[[Arm], str]
MISSING = "–"
WORDS = {Answer.YES: "trains", Answer.NO: "not seen to train", Answer.OPEN: "open"}
HEAD = (
    "Does a model train with the constraint, and what does it cost? k/n: seeds that grokked, with it vs without it. "
    "×: the ratio of these rates on the same seeds; it costs where the 95 % interval is below 1, and "
    "helps where it is above."
)
PAPER = ("paper", "agreement")
FEW = 4
"""Fields of a recipe that are shown with their values."""
FINISHING = "with curvature at the end"


def table_of(configurations: Sequence[dict[str, Any]], paper: bool, seeds: Iterable[SeedRecord] = ()) -> Table:
    """Return the table; with `paper` of the published constraints, and at its scales, recorded or not."""
    claims = published() if paper else {}
    constraints = dict.fromkeys(constraint for constraint, _ in claims)
    scales = dict.fromkeys(scale for _, scale in claims)
    return constraint_table(configurations, [*constraints], [*scales], seeds)


def write_table(table: Table, style: str, *, paper: bool = False, ui: str = "") -> str:
    """Return the table as md, csv or json. ui: address that links of md lead to; empty for no links."""
    if style == "md":
        return markdown(table, paper, ui.rstrip("/"))
    return rows_text(table.tidy(), style)


def rows_text(rows: Sequence[dict[str, Any]], style: str) -> str:
    """Return rows as JSON or CSV. In CSV a row has empty cells for the columns that only others have."""
    if style == "json":
        # NaN, which Python would write, is no JSON.
        return json.dumps(rows, indent=1, allow_nan=False) + "\n"

    columns = dict.fromkeys(name for row in rows for name in row)
    text = StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown(table: Table, paper: bool = False, ui: str = "") -> str:
    """Return a grid, how it agrees with the paper if asked for, then one line per cell, and notes."""
    head = ["constraint", *table.scales]
    grid = []
    for constraint, cells in table.rows():
        summaries = [_summary(cell, paper) for cell in cells]
        grid.append([constraint, *summaries])
    parts = [HEAD, markdown_table(head, grid)]
    if paper:
        parts.append(agreements(table.cells.values()))

    # Cells have short names of addresses, which are written below: columns stay narrow.
    pages: dict[str, str] = {}

    def link(arm: Arm) -> str:
        if not (ui and arm.page):
            return count(arm)
        name = pages.setdefault(f"{ui}/{arm.page}", f"r{len(pages) + 1}")
        return f"[{count(arm)}][{name}]"

    columns, rows = details(table, paper, link)
    if rows:
        parts += ["Cell by cell:", markdown_table(columns, rows)]
    parts += ["Notes:", bullets(notes(table))]
    if pages:
        parts.append("\n".join(f"[{name}]: {page}" for page, name in pages.items()))
    return "\n\n".join(parts) + "\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with padded columns, so that it can be read as plain text too."""
    lines = [[_plain(text) for text in line] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])

    padded = []
    for line in lines:
        cells = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
        padded.append(f"| {' | '.join(cells)} |")
    return "\n".join(padded)


def bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(line)}" for line in lines)


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in a cell too."""
    # Names of studies and configurations may be a stranger's.
    line = " ".join(text.split())
    return line.replace("|", r"\|").replace("<", "&lt;").replace("`", "'")


def agreements(cells: Collection[Cell]) -> str:
    """Return in one line how the table and the paper go together."""
    counts = Counter(cell.agreement for cell in cells)
    agree = counts[Agreement.AGREES]
    contradict = counts[Agreement.CONTRADICTS]
    are_open = counts[Agreement.OPEN]
    verdicts = agree + contradict + are_open

    of_cells = counted(len(cells), "cell")
    untried = sum(cell.with_it is None for cell in cells)
    if untried:
        of_cells += f" ({untried} of them not tried)"
    parts = f"{agree} agree with it, {contradict} contradict it, {are_open} are open"
    return f"The {SECTION}, has a verdict on {verdicts} of {of_cells}: {parts}."


# Cells


def _summary(cell: Cell | None, paper: bool) -> str:
    """Return a cell of the grid, such as `trains, costs ×0.55: 20/64 vs 36/64`.

    Empty where the scale cannot have the constraint.
    """
    if cell is None:
        return ""
    if cell.with_it is None:
        return MISSING

    costs = "" if cell.cost == Effect.OPEN else f" {cell.cost}"
    if cell.paired and cell.paired.ratio is not None:
        costs += f" {times(cell)}"
    words = WORDS[cell.trains]
    if costs:
        words += f",{costs}"
    text = f"{words}: {count(cell.with_it)} vs {count(cell.without)}"
    # Only where the paper sees it otherwise: agreement needs no words in a narrow cell.
    if paper and cell.agreement == Agreement.CONTRADICTS:
        text += f" (paper: {cell.published.verdict})"
    return text


def details(table: Table, paper: bool, link: Link | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the columns and a line for each cell that was tried. link: returns an arm's count with a link."""
    lines = [_line(cell, link or count) for cell in _tried(table)]
    if not lines:
        return [], []

    # Columns that would be empty, or that nobody asked for, are left out.
    left_out = set() if paper else {*PAPER}
    if not any(arm.finishes for arm in _arms(table)):
        left_out.add(FINISHING)
    columns = [column for column in lines[0] if column not in left_out]
    rows = [[line[column] for column in columns] for line in lines]
    return columns, rows


def _tried(table: Table) -> list[Cell]:
    return [cell for cell in table.cells.values() if cell.with_it]


def _arms(table: Table) -> list[Arm]:
    """Return both arms of each cell that was tried."""
    arms = []
    for cell in _tried(table):
        arms += [arm for arm in (cell.with_it, cell.without) if arm]
    return arms


def _line(cell: Cell, link: Link) -> dict[str, str]:
    """Return a cell's texts by column."""
    shares = []
    finished = []
    for arm in (cell.with_it, cell.without):
        shares.append(f"{link(arm)} {percent(arm.rate, 0)[:-1]} %" if arm else MISSING)
        finished.append(f"{arm.grokked_with_finished}/{arm.n}" if arm else MISSING)
    with_it, without = shares
    # The columns that `details` leaves out by these names.
    words, agrees = PAPER
    return {
        "constraint": cell.constraint,
        "scale": cell.scale,
        "trains": _trains(cell),
        "with it": with_it,
        "without": without,
        FINISHING: " vs ".join(finished),
        "ratio (95 %)": _ratio(cell),
        "cost": str(cell.cost),
        "keeps half": str(cell.keeps_half),
        words: cell.published.words or MISSING,
        agrees: str(cell.agreement or MISSING),
        "saves": str(cell.saves),
        "study": cell.with_it.study if cell.with_it else MISSING,
    }


def _trains(cell: Cell) -> str:
    """Return if it trains; where it was not seen to, the highest rate that is possible."""
    text = str(cell.trains)
    arm = cell.with_it
    if cell.trains == Answer.NO and arm:
        _, high = arm.interval
        text += f", at most {percent(high)[:-1]} %"
        if arm.ended:
            text += f"; {arm.ended} ended early"
    return text


def _ratio(cell: Cell) -> str:
    """Return the ratio with its interval, and the number of pairs where an arm has more seeds."""
    if not (cell.pair and cell.paired):
        return MISSING
    n = cell.paired.n
    are_all_paired = cell.pair.with_it.n == cell.pair.without.n == n
    pairs = "" if are_all_paired else f" of {n} pairs"
    return f"{times(cell)} ({interval(cell)}){pairs}"


def interval(cell: Cell, between: str = "–") -> str:
    """Return the ends of the ratio's interval as text; empty if nothing is paired."""
    return ends_text(cell.interval, between)


def count(arm: Arm | None) -> str:
    return f"{arm.grokked}/{arm.n}" if arm else MISSING


def times(cell: Cell) -> str:
    """Return the ratio of grok rates as text."""
    return ratios.times(cell.paired.ratio if cell.paired else None)


# Notes


def notes(table: Table) -> list[str]:
    """Return the rule, how to read the table, and what its columns and cells stand for."""
    tried = _tried(table)
    arms = _arms(table)
    lines = [f"{name}: {rule}" for name, rule in RULE.items()]
    lines += [
        "k/n: seeds that grokked, of all that were counted. Seeds that a rule ended early count as not grokked",
        f"{MISSING}: not tried; empty: the scale cannot have the constraint, or it would save nothing",
        "saves: parameters that the constraint takes away",
        "paper: its words, in brackets the exact match that it gives. agreement: of `trains` with them",
    ]
    # Of what no cell has, nothing is said.
    if any(arm.stopped for arm in arms):
        lines.append(
            "an arm that went on until enough seeds had grokked has too high a share, and no ratio: `trains` takes the "
            "least that it may be"
        )
    if any(arm.finishes for arm in arms):
        lines.append(
            f"{FINISHING}: with the seeds that had spent their budget and that curvature finished (finish_above). All "
            "else is of training alone; a seed that groks exactly at its last evaluation counts as finished"
        )
    if any(map(_is_repeated, tried)):
        lines.append(
            "a cell that was trained more than once shows one pair of arms and adds nothing up: the pair with most "
            "seeds in common, or of equals that with the higher rate without the constraint. A verified seed of any "
            "study shows that it trains"
        )

    lines += [_tests(tried), *same_pairs(tried)]
    for scale in table.scales:
        lines += _bases(scale, tried)
    lines += [f"{cell.constraint} at {cell.scale}: {cell.also}" for cell in tried if cell.also]
    return lines


def _is_repeated(cell: Cell) -> bool:
    """True if a cell has several pairs, or arms of several studies."""
    studies = {arm.study for arm in cell.arms}
    return len(cell.pairs) > 1 or len(studies) > 1


def discovered(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the comparisons to believe at a false discovery rate of LEVEL, as `_by_arms` has them."""
    compared = _by_arms(cells)
    left = discoveries([cell.paired.p for cell, *_ in compared if cell.paired])
    return list(compress(compared, left))


def _by_arms(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the paired cells, those that show the same two arms together: a test counts once."""
    by_arms: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.pair and cell.paired:
            key = cell.pair.with_it.configuration, cell.pair.without.configuration
            by_arms.setdefault(key, []).append(cell)
    return list(by_arms.values())


def same_pairs(cells: Iterable[Cell]) -> list[str]:
    """Return why some cells of a row show the same numbers."""
    lines = []
    for same in _by_arms(cells):
        if len(same) == 1:
            continue
        scales = " and ".join(cell.scale for cell in same)
        lines.append(
            f"{same[0].constraint} at {scales} is one pair of arms, as it is all in "
            "which these presets differ: shown twice, counted once"
        )
    return lines


def _tests(cells: Sequence[Cell]) -> str:
    """Return how much independent evidence there is, and how many of the tests to believe."""
    ps = [cell.paired.p for cell, *_ in _by_arms(cells) if cell.paired]
    if not ps:
        return "no seed is recorded for both arms of any cell: nothing is paired"
    below = sum(p < LEVEL for p in ps)
    by_chance = LEVEL * len(ps)
    left = [f"{cell.constraint} at {cell.scale}" for cell, *_ in discovered(cells)]
    are = "is" if len(left) == 1 else "are"
    text = (
        f"{counted(len(ps), 'comparison')}; those of a column share its base's seeds and are no independent "
        "evidence. "
        f"{below} have p below 5 % (McNemar), by chance alone {by_chance:.1f} would; at a "
        f"false discovery rate of 5 % (Benjamini and Hochberg) {len(left)} {are} left"
    )
    return f"{text}: {', '.join(left)}" if left else text


def _bases(scale: str, cells: Sequence[Cell]) -> list[str]:
    """Return where a scale's base comes from, and how the bases that some cells have of their own differ from it."""
    pairs = {cell.constraint: cell.pair for cell in cells if cell.scale == scale and cell.pair}
    if not pairs:
        return [f"{scale}: nothing is compared"]

    by_recipe: dict[Recipe, dict[str, Arm]] = {}
    for constraint, pair in pairs.items():
        by_recipe.setdefault(pair.base.recipe, {})[constraint] = pair.base
    # The recipe of most cells first; of equals, that of the first cell.
    (usual, bases), *others = sorted(by_recipe.items(), key=lambda item: -len(item[1]))
    usual_values = shown(usual.as_dict())
    size = next(iter(pairs.values())).base.spec.params
    note = f"{scale}: {size:,} parameters, {_studies(bases)}; the recipe is the 57p paper's"
    # The defaults are the paper's recipe.
    changed = _changed(usual_values, Recipe().as_dict())
    if changed:
        note += f" but for {', '.join(changed)}"

    notes = [note]
    for recipe, bases in others:
        values = shown(recipe.as_dict())
        changed = _changed(values, usual_values)
        if len(changed) <= FEW:
            changed = [f"{name} {values[name]}" for name in changed]
        about = f"another base, which differs in {', '.join(changed)}; {_studies(bases)}"
        notes.append(f"{', '.join(bases)} at {scale}: {about}")
    return notes


def _changed(values: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    return [name for name, value in values.items() if value != usual[name]]


def _studies(bases: Mapping[str, Arm]) -> str:
    names = sorted({arm.study for arm in bases.values()})
    noun = "study" if len(names) == 1 else "studies"
    return f"{noun} {', '.join(names)}"
