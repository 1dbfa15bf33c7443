"""`adder-search report`: a study as one self-contained page."""

from __future__ import annotations

from pathlib import Path

import click

from search.cli.options import home_option
from search.errors import UserError


@click.command()
@click.argument("study")
@click.option(
    "-o", "target", type=click.Path(path_type=Path), required=True, help="File to write, such as report.html."
)
@home_option
def report(study: str, target: Path, home: str | None) -> None:
    """Write a page about a STUDY: what was asked, what was found, its pictures and configurations."""
    from search.cli.files import write_text
    from search.evidence.frames import records, study_of
    from search.evidence.report import report as page

    configurations, seeds, curves = (
        records(study, of=rows, home=home) for rows in ("configurations", "seeds", "curves")
    )
    if seeds.empty:
        raise UserError(f"study {study!r} has no finished seed yet")
    write_text(target, page(study_of(study, home=home), configurations, seeds, curves), "-o")
    click.echo(f"{target}: {len(configurations):,} configurations, {len(seeds):,} seeds")
