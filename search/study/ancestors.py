"""The ancestors of a checkpoint, by its provenance: a step each, the oldest first, as plain values.

A step: model, params, spec; study, configuration, seed and how it was trained, where known; theta_sha256; exact, of
the selection problems; tied, the ties that it has beyond its parent's; how, what else was done to the parent's θ on
the way to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from search.study.start import MOST_STEPS, read_lineage, read_step, read_texts, spec_of, ties_beyond_parent

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Checkpoint

Step = dict[str, Any]
SHAPE, PLACE = ("model", "params", "spec", "theta_sha256"), ("study", "configuration", "trained")
MOST_GENERATIONS = 100
"""Of checkpoints, each of which has its origin's provenance in its own."""


def ancestors_of(checkpoint: Checkpoint) -> list[Step]:
    """Return the steps of a checkpoint's ancestors and its own, the oldest first."""
    seed, origin = checkpoint.seed, checkpoint.as_origin()
    numbers = dict.fromkeys(seed[n] for n in ("init_seed", "data_seed") if n in seed)
    step = {name: origin[name] for name in SHAPE} | {
        "seed": ".".join(map(str, numbers)),
        "exact": checkpoint.metrics.get("best_exact"),
    }
    return _after_ancestors(step, checkpoint.provenance)


def _after_ancestors(step: Step, provenance: Mapping[str, Any], generations: int = MOST_GENERATIONS) -> list[Step]:
    """Return a step after those that led to it, by its provenance. generations: so many files are followed."""
    step |= read_step({name: provenance[name] for name in PLACE if name in provenance})
    if isinstance(provenance.get("lineage"), list):
        steps = read_lineage(provenance["lineage"])
        how = steps[-1].pop("then", []) if steps else []
        return [*steps, step | {"tied": _new_ties(step, steps), "how": how}]
    key = next((k for k, v in provenance.items() if k.endswith("_from") and isinstance(v, Mapping)), None)
    if key is None or not generations:
        return [step | {"tied": [], "how": []}]
    origin = provenance[key]
    before = origin["provenance"] if isinstance(origin.get("provenance"), Mapping) else {}
    shape = read_step({name: origin[name] for name in SHAPE if name in origin})
    ancestors = _after_ancestors(shape, before, generations - 1)
    if key == "compressed_from":
        return [*ancestors, *_descent(step, provenance.get("descent"))]
    how = {
        "folded_from": [f"folded: {fold}" for fold in read_texts(provenance.get("folds"))],
        "finished_from": [f"finished by {provenance.get('finished_by')}"],
    }
    return [*ancestors, step | {"tied": [], "how": read_texts(how.get(key, [key.removesuffix("_from")]))}]


def _descent(last: Step, descent: Any) -> list[Step]:
    """Return the steps of a descent in a folder, the last of which is the checkpoint itself."""
    rows = [s for s in descent if isinstance(s, Mapping)] if isinstance(descent, list) else []
    steps = [read_step({"params": s.get("numbers"), "tied": s.get("tied")}) for s in rows[-MOST_STEPS:]]
    steps = [{"tied": [], "how": []} | step for step in steps or [{}]]
    return [*steps[:-1], last | steps[-1]]


def _new_ties(step: Step, ancestors: list[Step]) -> list[str]:
    spec = spec_of(step.get("spec"))
    return ties_beyond_parent(ancestors[-1].get("spec") if ancestors else None, spec) if spec else []
