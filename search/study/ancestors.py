"""The ancestors of a checkpoint, by its provenance: a step each, the oldest first, as plain values.

A step: model, params, spec; study, configuration, seed and how it was trained, where known; theta_sha256; exact, of
the selection problems; tied, the ties that it has beyond its parent's; how, what else was done to the parent's θ on
the way to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from model import make_spec
from search.study.start import ties_beyond_parent

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Checkpoint

Step = dict[str, Any]
SHAPE, PLACE = ("model", "params", "spec", "theta_sha256"), ("study", "configuration", "trained")


def ancestors_of(checkpoint: Checkpoint) -> list[Step]:
    """Return the steps of a checkpoint's ancestors and its own, the oldest first."""
    seed, origin = checkpoint.seed, checkpoint.as_origin()
    numbers = dict.fromkeys(seed[n] for n in ("init_seed", "data_seed") if n in seed)
    step = {name: origin[name] for name in SHAPE} | {
        "seed": ".".join(map(str, numbers)),
        "exact": checkpoint.metrics.get("best_exact"),
    }
    return _after_ancestors(step, checkpoint.provenance)


def _after_ancestors(step: Step, provenance: Mapping[str, Any]) -> list[Step]:
    """Return a step after those that led to it, by its provenance."""
    step |= {name: provenance[name] for name in PLACE if isinstance(provenance.get(name), str)}
    if isinstance(lineage := provenance.get("lineage"), list):
        steps = [dict(s) for s in lineage if isinstance(s, Mapping)]
        how = steps[-1].pop("then", []) if steps else []
        return [*steps, step | {"tied": _new_ties(step, steps), "how": how}]
    key = next((k for k, v in provenance.items() if k.endswith("_from") and isinstance(v, Mapping)), None)
    if key is None:
        return [step | {"tied": [], "how": []}]
    if key == "compressed_from":
        return [*_origin(provenance[key]), *_descent(step, provenance.get("descent"))]
    how = {
        "folded_from": [f"folded: {fold}" for fold in _texts(provenance.get("folds"))],
        "finished_from": [f"finished by {provenance.get('finished_by')}"],
    }
    return [*_origin(provenance[key]), step | {"tied": [], "how": how.get(key, [key.removesuffix("_from")])}]


def _origin(origin: Mapping[str, Any]) -> list[Step]:
    """Return the steps to a checkpoint of which another one's provenance has spec and provenance alone."""
    provenance = origin.get("provenance")
    step = {name: origin[name] for name in SHAPE if name in origin}
    return _after_ancestors(step, provenance if isinstance(provenance, Mapping) else {})


def _descent(last: Step, descent: Any) -> list[Step]:
    """Return the steps of a descent in a folder, the last of which is the checkpoint itself."""
    rows = [s for s in descent if isinstance(s, Mapping)] if isinstance(descent, list) else []
    steps: list[Step] = [{"params": s.get("numbers"), "tied": _texts(s.get("tied")), "how": []} for s in rows] or [
        {"tied": [], "how": []}
    ]
    return [*steps[:-1], last | steps[-1]]


def _new_ties(step: Step, ancestors: list[Step]) -> list[str]:
    try:
        parent = ancestors[-1].get("spec") if ancestors else None
        return ties_beyond_parent(parent, make_spec(**step["spec"]))
    except (TypeError, ValueError, LookupError):
        return []


def _texts(values: Any) -> list[str]:
    return [v for v in values if isinstance(v, str)] if isinstance(values, list | tuple) else []
