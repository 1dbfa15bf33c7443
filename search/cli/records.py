"""`adder-search records`: a study's records as a file for notebooks and other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from search.cli.options import home_option
from search.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("configurations", "seeds", "curves")


def _to_parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def _to_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


def _to_json(frame: pd.DataFrame, path: Path) -> None:
    frame.to_json(path, orient="records", indent=2, double_precision=15)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".parquet": _to_parquet, ".csv": _to_csv, ".json": _to_json,
}  # fmt: skip


@click.command("records")
@click.argument("study")
@click.option("-o", "target", type=click.Path(path_type=Path), required=True, help="File to write.")
@click.option("--of", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="What a row is.")
@home_option
def records_command(
    study: str, target: Path, of: Literal["seeds", "configurations", "curves"], home: str | None
) -> None:
    """Write a STUDY's records to a .parquet, .csv or .json file.

    One row a configuration, a seed, or a point of a seed's curve. In the file a curriculum and an environment
    are JSON text.
    """
    check_target(target)
    from search.evidence.frames import records

    frame = records(study, of, home=home)
    write_frame(frame, target)
    rows = "row" if len(frame) == 1 else "rows"
    click.echo(f"{target}: {len(frame):,} {rows} of {len(frame.columns)} columns, the {of} of {study}")


def check_target(target: Path) -> None:
    """Raises UserError if the file's suffix names no format that can be written."""
    if target.suffix.lower() not in WRITERS:
        *most, last = WRITERS
        raise UserError(f"-o {target}: the name must end in {', '.join(most)} or {last}")
    if target.is_dir():
        raise UserError(f"{target}: is a folder; give the file's name with -o")


def write_frame(frame: pd.DataFrame, target: Path) -> None:
    """Write a file whole or not at all; values that are no scalars (curriculum, environment) as JSON text."""
    flat = frame.assign(**{c: frame[c].map(_as_text) for c in frame.columns if frame[c].dtype == object})
    fresh = target.with_name(target.name + ".new")
    try:
        WRITERS[target.suffix.lower()](flat, fresh)
        fresh.replace(target)
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror})") from None


def _as_text(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value
