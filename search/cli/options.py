"""Options that many commands have, and what they ask of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.errors import UserError

if TYPE_CHECKING:
    from search.store.home import Home
    from search.store.ledger import Ledger

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Where everything is kept [ADDER_SEARCH_HOME, ./adder-runs].",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
checkpoint_argument = click.argument("checkpoint", type=click.Path(path_type=Path))


def ledger_of(home: Home, study: str | None = None) -> Ledger:
    """A home's ledger. Raises UserError where nothing has run, or where this study is unknown."""
    from search.store.ledger import Ledger

    if not home.exists():
        raise UserError(f"nothing has run yet in {home.path}")
    ledger = Ledger(home)
    if study is not None:
        ledger.require(study)
    return ledger
