"""`adder-search import`: another program's checkpoint as a folder of ours. What `verify` reads and says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import json_option
from search.errors import UserError

if TYPE_CHECKING:
    from model import Spec, Verification
    from trainer.checkpoint import Checkpoint


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--out", "target", required=True, type=click.Path(path_type=Path), help="Folder to make.")
@json_option
def import_command(file: Path, target: Path, as_json: bool) -> None:
    """Turn a FILE of MicroAdder's or of the 456p report's into a checkpoint folder, and verify it.

    Nothing in the file is run. A checkpoint that gets additions wrong is written all the same.
    """
    from model import verify
    from trainer.foreign import read_foreign

    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"{target}: exists and is not empty; choose another folder with -o")
    checkpoint = _told(read_foreign, file)
    try:
        checkpoint.save(target)
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror})") from None
    found = verify(checkpoint.spec, checkpoint.theta_P)
    if as_json:
        about = {"checkpoint": str(target), "spec": checkpoint.spec.as_dict(), **checkpoint.provenance}
        click.echo(json.dumps({**about, **found.as_dict()}))
    else:
        click.echo(f"{target}: from a {checkpoint.provenance['format']} checkpoint")
        click.echo(f"  {verdict(checkpoint.spec, found)}")


def load(path: Path) -> Checkpoint:
    """A checkpoint, ours or another program's. Raises UserError saying what is wrong."""
    from trainer.foreign import load_any

    if not path.exists():
        raise UserError(f"{path}: no such checkpoint")
    return _told(load_any, path)


def _told(read: Callable[[Path], Checkpoint], path: Path) -> Checkpoint:
    """What a reader finds; its complaint is the user's to hear."""
    try:
        return read(path)
    except ValueError as error:
        raise UserError(str(error)) from None


def verdict(spec: Spec, found: Verification) -> str:
    """One line: the model, its parameters, and how many of the official additions it gets right."""
    from model import name_of

    verdict = "VERIFIED" if found.verified else "QUALIFIED" if found.qualified else "NOT QUALIFIED"
    return f"{name_of(spec)}, {found.params} parameters: {found.correct}/{found.total} {verdict}"
