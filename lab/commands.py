"""`adder-search claims` and `thresholds`: commands that this package adds to the product's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import PATH, STUDY, home_option, json_option
from search.errors import UserError

if TYPE_CHECKING:
    from search.store.home import Home


LAB = Path(__file__).parent
OWN = (
    "2*/claims-*.csv", "2026-11-20-published/57p-paired-published.csv", "2026-11-22-what-luck-is/faded-256.csv",
    "2026-11-23-robust/robust-128.csv", "2026-11-21-luck-crossed/luck.csv", "certificates/[0-9]*",
    "2026-11-23-constraint-columns/trained/*", "2026-11-24-constraint-table/so-far.parquet",
)  # fmt: skip
"""The notebook's records that decide claims."""


@click.command(short_help="Show what the papers claim, and what the records say of it.")
@click.argument("studies", type=STUDY, nargs=-1, metavar="[STUDY ...]")
@click.option("--shipped", is_flag=True, help="Read the notebook's own records.")
@click.option("--all", "show_all", is_flag=True, help="Show the claims on which there is nothing too.")
@click.option("--table", "as_table", is_flag=True, help="Print a table in Markdown, with the rules.")
@json_option
@home_option
def claims(studies: tuple[str, ...], shipped: bool, show_all: bool, as_table: bool, as_json: bool, home: Home) -> None:
    """Show what the papers claim, and what the records say of each claim.

    STUDY is a recorded study, a .csv or .parquet file of seeds (adder-search records --of seeds), or a folder
    with a checkpoint. Without any, all studies of the home are read, or with --shipped none.
    """
    from lab.claims import trained
    from lab.claims.judge import judge_all
    from lab.claims.text import as_json as plain
    from lab.claims.text import markdown, text
    from search.analysis.frames import RecordSet

    own = [str(path) for name in OWN * shipped for path in sorted(LAB.glob(name))]
    if shipped and not own:
        raise UserError("--shipped: the records are not installed; they are in the project's folder lab")
    named = [*studies, *own]
    folders = [name for name in named if trained.is_checkpoint(Path(name))]
    others = [name for name in named if name not in folders]
    seeds = RecordSet(others, home.path).seed_rows() if others or not folders else []
    judged = judge_all(seeds, trained.read(map(Path, folders)))
    if not show_all and not (judged := [j for j in judged if j.with_it.n or (j.without and j.without.n)]):
        raise UserError("these records have nothing on any claim; --shipped reads the notebook's, --all shows all")
    write = plain if as_json else markdown if as_table else text
    click.echo(write(judged), nl=False)


@click.command(short_help="Show the smallest certificates beside the published thresholds.")
@click.argument("folder", default="lab/certificates", type=PATH)
@json_option
def thresholds(folder: Path, as_json: bool) -> None:
    """Show the smallest of a FOLDER's certificates beside the Reflection's three thresholds.

    A certificate is a checkpoint whose folder has what `verify --json` says of it as verification.json.
    """
    from lab import thresholds as table

    rows = table.thresholds(folder)
    click.echo(json.dumps(rows) if as_json else table.text(rows))
