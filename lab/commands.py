"""`adder-search claims` and `thresholds`: commands that this package adds to the product's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import home_option, json_option
from search.errors import UserError

if TYPE_CHECKING:
    from search.store.home import Home


@click.command(short_help="Show what the papers claim, and what the records say of it.")
@click.argument("studies", nargs=-1, metavar="[STUDY ...]")
@json_option
@home_option
def claims(studies: tuple[str, ...], as_json: bool, home: Home) -> None:
    """Show what the papers claim, and what the records say of each claim.

    STUDY is a recorded study, a .csv or .parquet file of seeds (adder-search records --of seeds), or a folder
    with a checkpoint; of these the claims are shown on which they have something. Without any, all studies of the
    home are read, and all claims are shown.
    """
    from lab.claims import trained
    from lab.claims.judge import judge_all
    from lab.claims.text import as_json as plain
    from lab.claims.text import markdown
    from search.analysis.frames import RecordSet

    folders = [name for name in studies if trained.is_checkpoint(Path(name))]
    others = [name for name in studies if name not in folders]
    seeds = RecordSet(others, home.path).seeds() if others or not folders else []
    judged = judge_all(seeds, trained.read(map(Path, folders)))
    if studies and not (judged := [j for j in judged if j.with_it.n or (j.without and j.without.n)]):
        raise UserError("these records have nothing on any claim; adder-search claims shows all of them")
    click.echo(plain(judged) if as_json else markdown(judged), nl=False)


@click.command(short_help="Show the smallest certificates beside the published thresholds.")
@click.argument("folder", default="lab/certificates", type=click.Path(path_type=Path))
@json_option
def thresholds(folder: Path, as_json: bool) -> None:
    """Show the smallest of a FOLDER's certificates beside the Reflection's three thresholds.

    A certificate is a checkpoint whose folder has what `verify --json` says of it as verification.json.
    """
    from lab import thresholds as table

    rows = table.thresholds(folder)
    click.echo(json.dumps(rows) if as_json else table.text(rows))
