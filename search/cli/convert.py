"""`adder-search convert`: records of an earlier version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from search.cli.options import home_option, progress_bar

if TYPE_CHECKING:
    from search.store.home import Home


@click.command()
@home_option
def convert(home: Home) -> None:
    """Make this version's records out of those of an earlier one, which stay as they are."""
    from search.run.conversion import convert as make

    with progress_bar("converting"):
        seeds, lost = make(home)
    again = f"; the results of {lost:,} are lost, and `run` trains them again" if lost else ""
    click.echo(f"{home.database_name}: {seeds:,} seeds with θ and curve{again}")
