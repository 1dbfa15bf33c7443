"""`adder-search import`: other projects' checkpoints."""

from __future__ import annotations

from pathlib import Path

import click

from search.cli.options import (
    PATH,
    counted_lines,
    grade,
    json_option,
    name_of,
    refuse_full,
    save_checkpoint,
    show,
)
from search.errors import reraise_as


@click.command("import")
@click.argument("file", type=PATH)
@click.option("-o", "--out", "target", required=True, type=PATH, help="Folder to make.")
@json_option
def import_(file: Path, target: Path, as_json: bool) -> None:
    """Turn a FILE of another project's into a checkpoint folder, and verify it.

    MicroAdder's, JackCai1206's, the 456p report's and Qwen-like adders' are known. Nothing in the file is run.
    A checkpoint that gets additions wrong is written all the same.
    """
    from adders.foreign.read import read_foreign
    from model import verify as decode_all

    refuse_full(target)
    with reraise_as():
        checkpoint = read_foreign(file)
    save_checkpoint(checkpoint, target)
    spec, provenance = checkpoint.spec, checkpoint.provenance
    result = decode_all(spec, checkpoint.theta_P)
    values = {"checkpoint": str(target), "spec": spec.as_dict()} | provenance | result.as_dict()
    head = f"{target}: from a {provenance['format']} checkpoint"
    lines = [head, f"  {name_of(spec)}: {grade(result)}", *counted_lines(spec, provenance)]
    if assumed := provenance.get("assumed"):
        lines.append(f"  assumed, as the file does not say: {assumed}")
    show(as_json, values, lines)
