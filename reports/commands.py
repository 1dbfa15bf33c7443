"""`adder-search table` and `report`: the records as tables, pictures and a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import STUDY, check_file, home_option, progress_bar, target_option, write_file, write_text
from search.errors import UserError
from search.plugins import part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from search.analysis.frames import RecordSet
    from search.store.home import Home

FORMATS = ("md", "csv", "json")
PICTURES = (".svg", ".png")


@click.command()
@click.argument("studies", type=STUDY, nargs=-1, metavar="[STUDY ...]")
@click.option("--format", "style", type=click.Choice(FORMATS), default="md", show_default=True)
@click.option("--paper", is_flag=True, help="Show all of the published table, and its verdicts (57p paper, 4.3).")
@click.option("--shipped", is_flag=True, help="Read the records that come with the package.")
@click.option(
    "--ui", default="http://127.0.0.1:5000", show_default=True,
    help="Where links lead in md: adder-search ui. Empty: no links.",
)  # fmt: skip
@click.option("--interactions", is_flag=True, help="Show which pairs of constraints are more than their sum.")
@target_option("File to write, instead of printing; .svg or .png: a picture.")
@home_option
def table(
    studies: tuple[str, ...],
    style: str,
    paper: bool,
    shipped: bool,
    ui: str,
    interactions: bool,
    target: Path | None,
    home: Home,
) -> None:
    """Show which constraint works at which scale, from the records alone.

    Where a study has no such pairs: its only flag, on against off, or each two flags against each other.

    STUDY is a recorded study, or a .parquet or .csv file of configurations or seeds (adder-search records);
    without any, all studies of the home are read, or with --shipped none.
    """
    # Imported here, as everything heavy in this file: `--help` needs click alone.
    from reports.records import shipped_records
    from reports.table import NoPartners
    from reports.table_text import table_of, write_table
    from search.analysis.frames import RecordSet
    from search.study.described import counted

    names = list(studies)
    if shipped:
        names += shipped_records()
    records = RecordSet(names, home.path)
    if interactions:
        answer = part("interactions", "--interactions")(records, style)
        _deliver(target, *answer)
        return

    try:
        constraints = table_of(records.configurations(), paper, records.seeds())
    except NoPartners:
        if not _show_flags(records, style, target):
            raise
        return

    # A picture needs matplotlib: it is imported when a picture is asked for.
    def picture() -> Figure:
        from reports.table_figure import table_figure

        return table_figure(constraints)

    rows = counted(len(constraints.constraints), "constraint")
    columns = counted(len(constraints.scales), "scale")
    summary = f"{rows} at {columns}"
    _deliver(target, lambda: write_table(constraints, style, paper=paper, ui=ui), picture, summary)


def _show_flags(records: RecordSet, style: str, target: Path | None) -> bool:
    """Show flags, one on against off and two against each other. Return False if there are none."""
    from reports.flags import flag_grids, single_flags, write_flags
    from search.study.described import counted

    configurations = records.configurations()
    seeds = records.seeds()
    singles = single_flags(configurations, seeds)
    grids = flag_grids(configurations, seeds)
    if not singles and not grids:
        return False

    def picture() -> Figure:
        from reports.flags_figure import flags_figure

        return flags_figure(singles, grids)

    parts = []
    if singles:
        parts.append(counted(len(singles), "flag"))
    if grids:
        parts.append(counted(len(grids), "flag pair"))
    _deliver(target, lambda: write_flags(singles, grids, style), picture, ", ".join(parts))
    return True


def _deliver(target: Path | None, text: Callable[[], str], picture: Callable[[], Figure] | None, summary: str) -> None:
    """Print a text, or write it or a picture into a file.

    target: the file, whose suffix says which; None to print. text, picture: make what is asked for, and only that.
    summary: what the file has, which is printed.
    """
    if target is None:
        click.echo(text(), nl=False)
        return

    suffix = target.suffix.lower()
    if picture and suffix in PICTURES:
        from reports.plots import image_of

        content = image_of(picture(), suffix)
        write_file(target, lambda path: path.write_bytes(content))
    else:
        write_text(target, text())
    click.echo(f"{target}: {summary}")


@click.command()
@click.argument("study", type=STUDY)
@target_option("File to write [STUDY.html].")
@home_option
def report(study: str, target: Path | None, home: Home) -> None:
    """Write a page about a STUDY: what was asked, what was found, its pictures and configurations."""
    from reports.report import report as page
    from search.analysis.frames import configurations_frame, curves_frame, seeds_frame
    from search.analysis.lineage import tree
    from search.store.study_records import open_records
    from search.study.described import counted

    target = target or Path(f"{study}.html")
    # At once, or all might be read for nothing.
    check_file(target)
    recorded = open_records(home, study)
    configurations = configurations_frame(recorded)
    seeds = seeds_frame(recorded)
    if seeds.empty:
        raise UserError(f"study {study!r} has no finished seed yet")

    with progress_bar(f"reading the curves of {len(seeds):,} seeds") as say:
        curves = curves_frame(recorded)
        as_run = recorded.get_recorded_study()
        pictures = as_run.kind.pictures(recorded) if as_run else {}
        lineages = as_run.kind.lineages(recorded) if as_run else None
        lineage = tree(lineages or [])
        text = page(as_run, configurations, seeds, curves, pictures, lineage, say)

    write_text(target, text)
    click.echo(f"{target}: {counted(len(configurations), 'configuration')}, {counted(len(seeds), 'seed')}")
