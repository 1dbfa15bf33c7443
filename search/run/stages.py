"""A cascade: the stages of a study, each a study of its own that starts from the one before, seed for seed.

So ledger, resumption, MLflow and lineage are those of any study. What is asked here is which seeds go on.
"""

from __future__ import annotations

import json

from search.errors import UserError
from search.stats.counting import seed_of
from search.store.ledger import Ledger, Row, is_final
from search.study.schema import Stage, Study
from trainer import Outcome, Seed
from trainer.optimisers.freeze import frozen_from


def stage_of(study: Study, number: int, ledger: Ledger) -> Study | None:
    """A stage as a study, counted from 0; None where no seed of the one before goes on to it.

    Raises UserError if it was begun with other seeds, which have no θ to start from.
    """
    stage = study.stages[number]
    seeds = [s.init_seed for s in _seeds(study, number, ledger)]
    if not seeds:
        return None
    before = {"study": name_of(study, number - 1), "each": True, "grokked": False} if number else study.start
    about = study.model_dump(mode="json", by_alias=True, exclude={"stages", "start"})
    about |= {"name": name_of(study, number), "seeds": seeds, "recipe": {**study.recipe, **stage.recipe}}
    about["model"] = study.listed()[number][0].as_dict()
    if before:
        about["start"] = before if isinstance(before, dict) else before.model_dump(mode="json")
    made = Study.model_validate_json(json.dumps(about))
    known = ledger.list_parents(made.name) if number else []
    if known and set(known[0].thetas) != set(map(str, seeds)):
        raise UserError(f"study {made.name}: was begun with other seeds; give the study a new name")
    return made


def name_of(study: Study, number: int) -> str:
    """The name of a stage's study: `cascade.2-71p`."""
    label = study.stages[number].name
    return f"{study.name}.{number + 1}" + (f"-{label}" if label else "")


def is_done(study: Study, ledger: Ledger) -> bool:
    """Whether a stage's study has nothing left to train or to publish."""
    ended = {seed_of(r) for r in ledger.list_seeds(study.name) if is_final(r) and r["published"]}
    return ended >= set(study.first_seeds())


def counts(study: Study) -> tuple[int, int]:
    """How many numbers a stage trains to its end, and how many it has with those that are frozen on the
    way.
    """
    spec, recipe = study.listed()[0]
    frozen = sum(step < recipe.steps for step in frozen_from(spec.layout, recipe.freeze))
    return spec.params - frozen, spec.params


def _seeds(study: Study, number: int, ledger: Ledger) -> list[Seed]:
    """The seeds that come to a stage, in the file's order."""
    if number == 0:
        return study.first_seeds()
    rows = {seed_of(r): r for r in ledger.list_seeds(name_of(study, number - 1)) if is_final(r)}
    before = [s for s in study.first_seeds() if s in rows]
    return [s for s in before if goes_on(study.stages[number - 1], rows[s])]


def goes_on(stage: Stage, row: Row) -> bool:
    """Whether what must hold of a seed where a stage has ended does."""
    if stage.go_on == "held":
        return bool(row["held"])
    if stage.go_on == "grokked":
        return bool(row["outcome"] == Outcome.GROKKED)
    return (row["best_exact"] or 0.0) >= float(stage.go_on)
