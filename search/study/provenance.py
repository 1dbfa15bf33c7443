"""What a checkpoint's papers say of its ancestors: a step each, the oldest first, as plain values.

A step: model, params, spec; study, configuration and seed where one is known; theta_sha256; exact, of the
selection problems; tied, the ties that it has beyond its parent's; how, what else was done to the parent's θ
on the way to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from model import make_spec, preset_name
from search.study.start import ties_beyond_parent

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Checkpoint

Step = dict[str, Any]
NAMED = ("study", "configuration")


def lineage_of(checkpoint: Checkpoint) -> list[Step]:
    """A checkpoint's ancestors and itself, the oldest first."""
    seed = checkpoint.seed
    numbers = list(dict.fromkeys(seed[n] for n in ("init_seed", "data_seed") if n in seed))
    own = {
        "model": preset_name(checkpoint.spec),
        "params": checkpoint.spec.params,
        "spec": checkpoint.spec.as_dict(),
        "theta_sha256": hashlib.sha256(checkpoint.theta_P.numpy().tobytes()).hexdigest(),
        "seed": ".".join(map(str, numbers)),
        "exact": checkpoint.metrics.get("best_exact"),
    }
    return _with(own, checkpoint.provenance)


def _with(own: Step, provenance: Mapping[str, Any]) -> list[Step]:
    """A step behind those that led to it, by what its provenance says."""
    own |= {name: provenance[name] for name in NAMED if isinstance(provenance.get(name), str)}
    if isinstance(before := provenance.get("lineage"), list):
        steps = [dict(s) for s in before if isinstance(s, Mapping)]
        how = steps[-1].pop("then", []) if steps else []
        return [*steps, own | {"tied": _tied(own, steps), "how": how}]
    if isinstance(origin := provenance.get("folded_from"), Mapping):
        how = [f"folded: {says}" for says in _texts(provenance.get("folds"))]
        return [*_origin(origin), own | {"tied": [], "how": how}]
    if isinstance(origin := provenance.get("finished_from"), Mapping):
        return [*_origin(origin), own | {"tied": [], "how": [f"finished by {provenance.get('finished_by')}"]}]
    if isinstance(origin := provenance.get("compressed_from"), Mapping):
        return [*_origin(origin), *_descent(own, provenance.get("descent"))]
    return [own | {"tied": [], "how": []}]


def _origin(origin: Mapping[str, Any]) -> list[Step]:
    """The steps to a checkpoint of which another one's papers have only spec and provenance."""
    known = {name: origin[name] for name in ("model", "params", "spec", "theta_sha256") if name in origin}
    provenance = origin.get("provenance")
    return _with(known, provenance if isinstance(provenance, Mapping) else {})


def _descent(own: Step, descent: Any) -> list[Step]:
    """The steps of a descent in one folder, of which the last is the checkpoint itself."""
    steps = [s for s in descent if isinstance(s, Mapping)] if isinstance(descent, list) else []
    made = [{"params": s.get("numbers"), "tied": _texts(s.get("tied")), "how": []} for s in steps]
    made = made or [{"tied": [], "how": []}]
    return [*made[:-1], own | made[-1]]


def _tied(own: Step, before: list[Step]) -> list[str]:
    """The ties that a step has beyond its parent's."""
    try:
        return ties_beyond_parent(before[-1].get("spec") if before else None, make_spec(**own["spec"]))
    except (TypeError, ValueError, LookupError):
        return []


def _texts(given: Any) -> list[str]:
    return [t for t in given if isinstance(t, str)] if isinstance(given, list | tuple) else []
