"""Options that many commands have."""

from __future__ import annotations

import click

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Where everything is kept [ADDER_SEARCH_HOME, ./adder-runs].",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
