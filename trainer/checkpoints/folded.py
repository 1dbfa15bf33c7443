"""A checkpoint rewritten exactly into its smallest form, with papers that say what it was folded from."""

from __future__ import annotations

from dataclasses import replace

from model.adderboard import official_pairs, uniform_pairs
from model.compare import Comparison, compare
from model.fold import fold
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files.installed import code_version

FRESH_SEED = 46
"""Of the pairs that only folds are compared on."""


def fold_checkpoint(checkpoint: Checkpoint) -> tuple[Checkpoint, tuple[str, ...]]:
    """The folded checkpoint and the steps that led to it: none if no smaller form is known."""
    smallest = fold(checkpoint.spec, checkpoint.theta_P)
    provenance = {
        "folded_from": checkpoint.as_origin(),
        "folds": list(smallest.steps),
        "trained_again": False,
    }
    if "study" in checkpoint.provenance:
        provenance["study"] = checkpoint.provenance["study"]
    spec, theta_P = smallest.spec, smallest.theta_P
    made = replace(checkpoint, spec=spec, theta_P=theta_P, provenance=provenance, code=code_version())
    return made, smallest.steps


def compare_checkpoints(one: Checkpoint, other: Checkpoint, fresh: int) -> dict[str, Comparison]:
    """Both on the official additions and, unless `fresh` is 0, on so many fresh pairs."""
    sets = {"official": official_pairs()} | ({"fresh": uniform_pairs(FRESH_SEED, fresh)} if fresh else {})
    models = ((one.spec, one.theta_P), (other.spec, other.theta_P))
    return {name: compare(*models, pairs) for name, pairs in sets.items()}
