"""`adder-search export`: a checkpoint as a submission to AdderBoard, or for what is not torch."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from search.cli.options import (
    checkpoint_argument,
    load_checkpoint,
    target_option,
    write_file,
    write_text,
)
from search.errors import UserError, reraise_as


@click.command()
@checkpoint_argument
@target_option("File to write [submission.py, or adder.onnx].")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["adderboard", "arena", "onnx"]),
    default="adderboard",
    show_default=True,
    help="Whose harness it is for: AdderBoard's, or optimizationarena.com's, which decodes itself; or an ONNX file.",
)
@click.option("--author", default="adder-search", show_default=True, help="Named in the metadata.")
def export(checkpoint: Path, target: Path | None, kind: str, author: str) -> None:
    """Write a CHECKPOINT as one self-contained submission to AdderBoard, or to another contest; or as ONNX."""
    from adders.commands.onnx_file import check_libraries, write_onnx
    from adders.export import export_source
    from adders.proof.file import settled
    from model import preset_name

    loaded = load_checkpoint(checkpoint)
    spec, theta_P, provenance = loaded.spec, loaded.theta_P, loaded.provenance
    name = f"{preset_name(spec)} seed {loaded.seed.get('init_seed', 'unknown')}"
    target = target or Path("adder.onnx" if kind == "onnx" else "submission.py")
    if kind == "onnx":
        with reraise_as():
            check_libraries()
            write_file(target, lambda path: write_onnx(spec, theta_P, name, author, path))
        click.echo(
            f"{target}: {spec.params:,} parameters, tokens [batch, length] to logits; its metadata say how to decode"
        )
        return
    with reraise_as(checkpoint):
        write = partial(export_source, spec, theta_P, name=name, author=author, provenance=provenance)
        proof = settled(checkpoint, spec, theta_P, write(), if_any=True)
        source = write(proof=proof, arena=kind == "arena")
    if target.is_file() and target.read_bytes() != source.encode():
        raise UserError(f"{target}: exists and has other text; choose another file with -o")
    write_text(target, source)
    interface = "encode(a, b) and decode(tokens)" if kind == "arena" else "add(model, a, b)"
    click.echo(f"{target}: {spec.params:,} parameters, build_model() and {interface}")
