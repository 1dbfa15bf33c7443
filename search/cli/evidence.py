"""`adder-search best` and `records`: questions to the records."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import (
    STUDY,
    check_file,
    home_option,
    json_option,
    show,
    target_option,
    write_file,
)
from search.errors import UserError
from search.stats.record import COLUMNS

if TYPE_CHECKING:
    from search.analysis.frames import Of
    from search.store.home import Home

ROW_KINDS = ("configurations", "seeds", "curves")
FORMATS: dict[str, dict[str, Any]] = {
    ".parquet": {"index": False},
    ".csv": {"index": False},
    ".json": {"orient": "records", "indent": 2, "double_precision": 15},
}
"""Options of a frame's writers, by the suffix of a file."""


@click.command()
@click.argument("study", type=STUDY, required=False)
@click.option("--max-params", type=click.IntRange(min=1), help="Leave out larger models.")
@click.option("--lineage", is_flag=True, help="The ancestors of each of a STUDY's best, as a tree.")
@json_option
@home_option
def best(study: str | None, max_params: int | None, lineage: bool, as_json: bool, home: Home) -> None:
    """Show the best configurations of a STUDY, or of all: the Pareto front of few parameters and a high grok rate.

    Rates are compared by the lower ends of their intervals, so that 1 of 2 seeds does not outrank 20 of 64. Once a
    study has confirmed some configurations, these count by their fresh seeds, and others of it only if they are
    smaller. Below each row's is the command that fetches its best seed's checkpoint.
    """
    from search.analysis.frames import RecordSet
    from search.analysis.pareto import beaten, front, table
    from search.store.home import home_flag, pull_command

    if lineage:
        if not study:
            raise UserError("--lineage takes a STUDY")
        _show_lineage(study, home, max_params, as_json)
        return

    configurations = []
    if study or home.exists():
        configurations = RecordSet([study] if study else [], home.path).configurations()
    rows = front(configurations, max_params)
    for row in rows:
        row["pull"] = home.store_prefix + pull_command(row["study"], row["configuration"]) + home_flag(home)

    if rows:
        # A file or a pipe has no width, so nothing is cut there.
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        text = table(rows, width)
        if names := beaten(configurations, rows, max_params):
            text += f"\n\nNot on this front, since others are smaller or surer: {', '.join(names)}"
    elif study or configurations:
        text = _nothing(study, max_params)
    else:
        text = home.nothing_run
    show(as_json, {"home": str(home.path), "front": rows}, text)


def _show_lineage(study: str, home: Home, max_params: int | None, as_json: bool) -> None:
    """Show the ancestors of a study's best; of a study of descents, of the best set of each size."""
    from search.analysis.frames import configuration_rows
    from search.analysis.lineage import lineages, tree
    from search.analysis.pareto import front
    from search.store.study_records import open_records

    recorded = open_records(home, study)
    as_run = recorded.get_recorded_study()
    ancestries = as_run.kind.lineages(recorded) if as_run else None
    if ancestries is None:
        rows = front(configuration_rows(recorded), max_params)
        ancestries = lineages(recorded, [row["configuration"] for row in rows])

    if max_params:
        ancestries = [steps for steps in ancestries if steps[-1]["params"] <= max_params]
    text = tree(ancestries) if ancestries else _nothing(study, max_params)
    show(as_json, {"home": str(home.path), "lineages": ancestries}, text)


def _nothing(study: str | None, max_params: int | None) -> str:
    of = f" of study {study}" if study else ""
    limit = f" with {max_params:,} parameters or fewer" if max_params else ""
    return f"no configuration{of}{limit} has a grokked seed yet"


def _columns() -> str:
    """Return the help on the columns of seeds, one line per column."""
    lines = ["\b", "Columns of seeds, beside what is known of their configurations:"]  # click wraps no lines after \b
    for name, column in COLUMNS.items():
        if column.shown:
            unit = f"; {column.unit}" if column.unit else ""
            lines.append(f"  {name:15} {column.help}{unit}")
    return "\n".join(lines)


@click.command(epilog=_columns())
@click.argument("study", type=STUDY)
@target_option("File to write.", required=True)
@click.option("--of", type=click.Choice(ROW_KINDS), default=ROW_KINDS[0], show_default=True, help="The kind of row.")
@home_option
def records(study: str, target: Path, of: Of, home: Home) -> None:
    """Write a STUDY's records to a .parquet, .csv or .json file; a search to a .db file, for optuna-dashboard.

    One row per configuration, per seed, or per point of a seed's curve. In the file a curriculum and an environment
    are JSON text.
    """
    check_file(target)
    if target.suffix.lower() == ".db":
        _write_search(study, target, home)
        return

    suffix = target.suffix.lower()
    if suffix not in FORMATS:
        *first, last = FORMATS
        raise UserError(f"-o {target}: the name must end in {', '.join(first)} or {last}, or .db of a search")
    from search.analysis.frames import as_columns
    from search.analysis.frames import records as read
    from search.study.described import counted

    frame = read(study, of, home=home.path)
    write = getattr(as_columns(frame), f"to_{suffix[1:]}")
    write_file(target, lambda path: write(path, **FORMATS[suffix]))
    rows, columns = counted(len(frame), "row"), counted(len(frame.columns), "column")
    click.echo(f"{target}: {rows} of {columns}, the {of} of {study}")


def _write_search(study: str, target: Path, home: Home) -> None:
    """Write a search as a study of Optuna's."""
    from search.store.home import sqlite_url
    from search.store.study_records import open_records
    from search.study.described import counted

    records = open_records(home, study)
    recorded = records.get_recorded_study()
    if recorded is None or not recorded.kind.space:
        raise UserError(f"study {study!r} is no search: Optuna proposed nothing")
    count = write_file(target, lambda path: recorded.kind.write_proposals(records, path))
    click.echo(f"{target}: {counted(count, 'trial')}; optuna-dashboard {shlex.quote(sqlite_url(target))}")
