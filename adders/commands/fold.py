"""`adder-search fold`: a checkpoint rewritten exactly with fewer numbers."""

from __future__ import annotations

from pathlib import Path

import click

from search.cli.options import (
    checkpoint_argument,
    json_option,
    load_checkpoint,
    number_option,
    refuse_other,
    save_checkpoint,
    show,
    target_option,
)
from search.errors import Failure, UserError


@click.command()
@checkpoint_argument
@target_option("Folder to write.", required=True)
@number_option("--pairs", 1_000_000, 0, None, "Fresh pairs to compare on.")
@json_option
def fold(checkpoint: Path, target: Path, pairs: int, as_json: bool) -> None:
    """Rewrite a CHECKPOINT exactly into its smallest form; nothing is trained again.

    Both models answer the 10,010 official additions and fresh pairs (fewer, if they get many wrong); exit code 0
    only if they answer alike.
    """
    from adders.folding.folded import compare_checkpoints, fold_checkpoint
    from model import preset_name

    loaded = load_checkpoint(checkpoint)
    smaller, steps = fold_checkpoint(loaded)
    before, after = loaded.spec, smaller.spec
    if not steps:
        raise UserError(f"{checkpoint}: {before.params:,} parameters is the smallest form known for it")
    # before the comparison, which takes long
    refuse_other(target, smaller)
    sets = compare_checkpoints(loaded, smaller, pairs)
    save_checkpoint(smaller, target)
    lines = [f"{target}: {preset_name(before)} folded to {after.params:,} parameters, nothing trained again"]
    lines += [f"  {step}" for step in steps]
    for name, compared in sets.items():
        answers = f"{compared.right:,} of {compared.pairs:,} right, {compared.different_answers:,} answered differently"
        logits = f"up to {compared.largest_logit:,.0f} differ by at most {compared.largest_logit_difference:.2g}"
        lines.append(f"  {name}: {answers}, logits {logits}")
    params = [before.params, after.params]
    values = {"params": params, "folds": list(steps), "spec": after.as_dict()}
    show(as_json, values | {"compared": smaller.provenance["compared"]}, lines)
    if any(c.different_answers for c in sets.values()):
        raise Failure("the two forms do not answer alike: see the counts above")
