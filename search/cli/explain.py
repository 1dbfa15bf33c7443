"""`adder-search explain`: a page in which a checkpoint adds, digit by digit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import PATH, load_checkpoint, target_option, write_text
from search.errors import UserError

if TYPE_CHECKING:
    from search.explain.explain import Shown


@click.command()
@click.argument("checkpoints", nargs=-1, required=True, type=PATH, metavar="CHECKPOINT [OTHER ...]")
@target_option("Page to write.", required=True)
def explain(checkpoints: tuple[Path, ...], target: Path) -> None:
    """Write a page in which a CHECKPOINT adds any two numbers, digit by digit; up to three side by side.

    The page is one file and needs no network. It runs the model itself, with a slider for every number.
    """
    from search.explain.explain import MOST
    from search.explain.explain import explain as page_of

    if len(checkpoints) > MOST:
        raise UserError(f"give at most {MOST} checkpoints, not {len(checkpoints)}")
    write_text(target, page_of([_load(path) for path in checkpoints]))
    click.echo(f"{target}: {' and '.join(path.name for path in checkpoints)}, in any browser")


def _load(path: Path) -> Shown:
    from search.explain.explain import Shown

    return Shown(path.resolve().name, load_checkpoint(path))
