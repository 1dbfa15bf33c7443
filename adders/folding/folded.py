"""Checkpoints folded exactly into their smallest form, with the provenance of the original."""

from __future__ import annotations

from dataclasses import asdict, replace

from adders.folding.compare import Comparison, compare
from model.adderboard import official_pairs, uniform_pairs
from model.fold import fold
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files.installed import code_version

FRESH_SEED = 46
"""Seed of the pairs on which only folds are compared."""


def fold_checkpoint(checkpoint: Checkpoint) -> tuple[Checkpoint, tuple[str, ...]]:
    """Return the folded checkpoint and the steps that led to it: no step if no smaller form is known."""
    smallest = fold(checkpoint.spec, checkpoint.theta_P)
    provenance = {
        "folded_from": checkpoint.as_origin(),
        "folds": list(smallest.steps),
        "trained_again": False,
    }
    # So that its study still finds it.
    if "study" in checkpoint.provenance:
        provenance["study"] = checkpoint.provenance["study"]
    folded = replace(
        checkpoint,
        spec=smallest.spec,
        theta_P=smallest.theta_P,
        provenance=provenance,
        code=code_version(),
    )
    return folded, smallest.steps


def compare_checkpoints(first: Checkpoint, folded: Checkpoint, fresh: int) -> dict[str, Comparison]:
    """Compare both on the official additions and on so many fresh pairs, if any; `folded` records it."""
    sets = {"official": official_pairs()}
    if fresh:
        sets["fresh"] = uniform_pairs(FRESH_SEED, fresh)
    models = ((first.spec, first.theta_P), (folded.spec, folded.theta_P))
    comparisons = {name: compare(*models, pairs) for name, pairs in sets.items()}
    folded.provenance["compared"] = {name: asdict(comparison) for name, comparison in comparisons.items()}
    return comparisons
