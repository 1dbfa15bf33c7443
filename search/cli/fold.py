"""`adder-search fold`: a trained θ rewritten exactly into the smallest form that is known for it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import json_option
from search.errors import Failure, UserError

if TYPE_CHECKING:
    from model.compare import Comparison
    from trainer.checkpoint import Checkpoint

FRESH_SEED = 46  # of the pairs that only folds are compared on


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("-o", "target", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option(
    "--pairs", default=1_000_000, show_default=True, type=click.IntRange(0), help="Fresh pairs to compare on."
)
@json_option
def fold(checkpoint: Path, target: Path, pairs: int, as_json: bool) -> None:
    """Rewrite a CHECKPOINT exactly into its smallest form; nothing is trained again.

    Both models answer the 10,010 official additions and fresh pairs; exit code 0 only if they answer alike.
    """
    from search.cli.foreign import load
    from search.store.seeds import save_checkpoint

    loaded = load(checkpoint)
    folded, steps = folded_checkpoint(loaded)
    if not steps:
        raise UserError(f"{checkpoint}: {loaded.spec.params} parameters is the smallest form known for it")
    found = comparisons(loaded, folded, pairs)
    folded.provenance["compared"] = {name: dataclasses.asdict(c) for name, c in found.items()}
    save_checkpoint(folded, target)
    if as_json:
        click.echo(json.dumps(_as_dict(loaded, folded, steps, found)))
    else:
        click.echo(_text(target, loaded, folded, steps, found))
    if any(c.different_answers for c in found.values()):
        raise Failure("the two forms do not answer alike: see the counts above")


def folded_checkpoint(loaded: Checkpoint) -> tuple[Checkpoint, tuple[str, ...]]:
    """The folded checkpoint and the steps that led to it; its provenance says what it was folded from."""
    from model import name_of
    from model.fold import fold as smallest
    from trainer.checkpoint import code_version

    result = smallest(loaded.spec, loaded.theta_P)
    origin = {
        "model": name_of(loaded.spec), "params": loaded.spec.params, "spec": loaded.spec.as_dict(),
        "theta_sha256": _digest(loaded), "provenance": loaded.provenance,
    }  # fmt: skip
    provenance = {"folded_from": origin, "folds": list(result.steps), "trained_again": False}
    if "study" in loaded.provenance:
        provenance["study"] = loaded.provenance["study"]
    folded = dataclasses.replace(
        loaded, spec=result.spec, theta_P=result.theta_P, provenance=provenance, code=code_version()
    )
    return folded, result.steps


def comparisons(one: Checkpoint, other: Checkpoint, fresh: int) -> dict[str, Comparison]:
    """Both on the official additions and, unless `fresh` is 0, on so many fresh pairs."""
    from model.adderboard import official_pairs, uniform_pairs
    from model.compare import compare

    sets = {"official": official_pairs()} | ({"fresh": uniform_pairs(FRESH_SEED, fresh)} if fresh else {})
    models = ((one.spec, one.theta_P), (other.spec, other.theta_P))
    return {name: compare(*models, pairs) for name, pairs in sets.items()}


def _digest(checkpoint: Checkpoint) -> str:
    import hashlib

    return hashlib.sha256(checkpoint.theta_P.numpy().tobytes()).hexdigest()


def _as_dict(
    loaded: Checkpoint, folded: Checkpoint, steps: tuple[str, ...], found: dict[str, Comparison]
) -> dict[str, Any]:
    return {
        "params": [loaded.spec.params, folded.spec.params],
        "folds": list(steps),
        "spec": folded.spec.as_dict(),
        "compared": {name: dataclasses.asdict(c) for name, c in found.items()},
    }


def _text(
    target: Path, loaded: Checkpoint, folded: Checkpoint, steps: tuple[str, ...], found: dict[str, Comparison]
) -> str:
    from model import name_of

    lines = [
        f"{target}: {name_of(loaded.spec)} folded to {folded.spec.params} parameters, nothing trained again"
    ]
    lines += [f"  {step}" for step in steps]
    for name, c in found.items():
        lines.append(
            f"  {name}: {c.right:,} of {c.pairs:,} right, {c.different_answers} answered differently, "
            f"logits up to {c.largest_logit:,.0f} differ by at most {c.largest_logit_difference:.2g}"
        )
    return "\n".join(lines)
