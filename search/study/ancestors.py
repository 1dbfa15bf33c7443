"""The ancestors of a checkpoint, by its provenance: one step for each, the oldest first, as plain values.

A step: model, params, spec; study, configuration, seed and how it was trained, where known; theta_sha256; exact, of
the selection problems; tied, the ties that it has beyond its parent's; how, what else was done to the parent's θ on
the way to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from model import Spec
from model.spec import known_spec
from search.study.reading import Plain
from search.study.start import MOST_STEPS, read_lineage, read_step, read_texts, ties_beyond_parent

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Checkpoint

Step = dict[str, Any]
SHAPE = ("model", "params", "spec", "theta_sha256")
PLACE = ("study", "configuration", "trained")
MOST_GENERATIONS = 100
"""Of checkpoints, each of which has its origin's provenance in its own."""


def ancestors_of(checkpoint: Checkpoint) -> list[Step]:
    """Return the steps of a checkpoint's ancestors and its own, the oldest first."""
    seed = checkpoint.seed
    origin = checkpoint.as_origin()
    numbers = dict.fromkeys(seed[name] for name in ("init_seed", "data_seed") if name in seed)  # equal ones once
    step = {name: origin[name] for name in SHAPE}
    step["seed"] = ".".join(map(str, numbers))
    step["exact"] = checkpoint.metrics.get("best_exact")
    return _after_ancestors(step, checkpoint.provenance)


def _after_ancestors(step: Step, provenance: Plain, generations: int = MOST_GENERATIONS) -> list[Step]:
    """Return a step after those that led to it, by its provenance. generations: how many files are followed.

    A provenance is what somebody wrote: every value is checked, and nesting without end is cut off.
    """
    step |= read_step({name: provenance.get(name) for name in PLACE})
    if isinstance(provenance.get("lineage"), list):  # trained in a study
        return after_lineage(read_lineage(provenance["lineage"]), step, known_spec(step.get("spec")))

    # What made it from another checkpoint says so: compressed_from, folded_from, finished_from.
    origins = {key: value for key, value in provenance.items() if key.endswith("_from") and isinstance(value, Mapping)}
    if not origins or not generations:
        return [step | {"tied": [], "how": []}]

    key, origin = next(iter(origins.items()))
    before = origin["provenance"] if isinstance(origin.get("provenance"), Mapping) else {}
    shape = read_step({name: origin.get(name) for name in SHAPE})
    ancestors = _after_ancestors(shape, before, generations - 1)
    if key == "compressed_from":
        return [*ancestors, *_descent(step, provenance.get("descent"))]
    if key == "folded_from":
        how = [f"folded: {fold}" for fold in read_texts(provenance.get("folds"))]
    elif key == "finished_from":
        how = [f"finished by {provenance.get('finished_by')}"]
    else:
        how = [key.removesuffix("_from")]
    return [*ancestors, step | {"tied": [], "how": read_texts(how)}]


def after_lineage(lineage: Iterable[Plain], step: Step, spec: Spec | None) -> list[Step]:
    """Return the step of a spec after those of its ancestors, with its ties beyond its parent's, and what led to it."""
    steps = [dict(ancestor) for ancestor in lineage]
    parent = steps[-1] if steps else {}
    how = parent.pop("then", [])  # what was done to the parent's θ
    tied = ties_beyond_parent(parent.get("spec"), spec) if spec else []
    return [*steps, step | {"tied": tied, "how": how}]


def _descent(last: Step, descent: Any) -> list[Step]:
    """Return the steps of a descent in a folder, the last of which is the checkpoint itself."""
    rows = [row for row in descent if isinstance(row, Mapping)] if isinstance(descent, list) else []
    said = [read_step({"params": row.get("numbers"), "tied": row.get("tied")}) for row in rows[-MOST_STEPS:] or [{}]]
    steps: list[Step] = [{"tied": [], "how": []} | step for step in said]
    return [*steps[:-1], last | steps[-1]]
