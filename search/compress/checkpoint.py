"""A descent's smallest candidate as a checkpoint, with its provenance; and what came of a descent as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import torch

from model import Verification
from model.tied import Tied, count, describe_change, tie
from search.compress.acceptance import own_theta
from search.compress.local import LocalDescent
from search.store.candidates import TieCandidate, lineage_of
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files.installed import code_version


def to_checkpoint(local: LocalDescent, start: Checkpoint, folds: Sequence[str]) -> Checkpoint:
    """Return the smallest accepted candidate with every step that led to it.

    start: the checkpoint at which the descent began. folds: what was folded to come to it.
    """
    descent = local.descent
    smallest = descent.smallest
    spec = tie(local.base, smallest.ties)
    steps = [_step(local, *pair) for pair in pairwise(lineage_of(descent.candidates, smallest.number))]
    provenance = {
        "trained": "from a parent",
        "compressed_from": start.as_origin() | {"folds": list(folds)},
        "descent": steps,
        "sets_tried": len(descent.progress.tried),
        "seed_steps": local.journal.seed_steps,
    }
    seed = {} if smallest.data_seed is None else {"data_seed": smallest.data_seed}
    recipe = dict(smallest.recipe or local.settings.recipe().as_dict())  # older descents recorded none
    return replace(
        start,
        spec=spec,
        theta_P=own_theta(spec, torch.tensor(smallest.thetas[0])),
        recipe=recipe if steps else start.recipe,
        seed=start.seed | seed,
        step=recipe["steps"] if steps else start.step,
        metrics={"best_exact": smallest.reached, "loss": smallest.loss},
        provenance=provenance,
        code=code_version(),
    )


def _step(local: LocalDescent, parent: TieCandidate, candidate: TieCandidate) -> dict[str, Any]:
    loosened, tied = describe_change(local.base, parent.ties, candidate.ties)
    step = {
        "numbers": candidate.numbers, "tied": tied, "loss": candidate.loss, "data_seed": candidate.data_seed,
    }  # fmt: skip
    if candidate.is_finished:
        step["finished_by"] = "levenberg_marquardt"
    return step | ({"loosened": loosened} if loosened else {})


def summary(local: LocalDescent, verification: Verification) -> dict[str, Any]:
    """Return what came of a descent, as plain values."""
    descent, journal = local.descent, local.journal
    spec = tie(local.base, descent.smallest.ties)
    return {
        "params": spec.params,
        "start": descent.candidates[0].numbers,
        "count": asdict(count(spec)),
        "rounds": descent.progress.rounds,
        "sets_tried": len(descent.progress.tried),
        "kept": Counter(c.numbers for c in descent.accepted),
        "seconds": journal.seconds,
        "core_seconds": journal.core_seconds,
        "seed_steps": journal.seed_steps,
        "ties": spec.spelt() if isinstance(spec, Tied) else [],
        "verification": verification.as_dict(),
    }
