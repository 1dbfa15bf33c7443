"""A cascade: the stages of a study, each a study of its own that starts from the one before, seed for seed.

So ledger, resumption, MLflow and lineage are those of any study. This file says which seeds go on.
"""

from __future__ import annotations

import json

from search.errors import UserError
from search.stats.counting import Row, seed_of
from search.store.ledger import Ledger
from search.store.record import is_final
from search.store.study_records import StudyRecords
from search.study.schema import Stage, Study
from trainer import Outcome, Seed


def stage_of(study: Study, number: int, ledger: Ledger) -> Study | None:
    """Return a stage as a study, counted from 0, or None if no seed of the one before goes on to it.

    Raises UserError if it was begun with other seeds, which have no θ to start from.
    """
    stage = study.stages[number]
    seeds = [s.init_seed for s in _seeds(study, number, ledger)]
    if not seeds:
        return None
    before = {"study": name_of(study, number - 1), "each": True, "grokked": False} if number else study.start
    about = study.model_dump(mode="json", by_alias=True, exclude={"stages", "start"})
    about |= {"name": name_of(study, number), "seeds": seeds, "recipe": {**study.recipe, **stage.recipe}}
    about["model"] = study.listed[number][0].as_dict()
    if before:
        about["start"] = before if isinstance(before, dict) else before.model_dump(mode="json")
    staged = Study.model_validate_json(json.dumps(about))
    parents = StudyRecords(ledger, staged.name).list_parents() if number else []
    if parents and set(parents[0].thetas) != set(map(str, seeds)):
        raise UserError(f"study {staged.name}: was begun with other seeds; give the study a new name")
    return staged


def name_of(study: Study, number: int) -> str:
    """Return the name of a stage's study: `cascade.2-71p`."""
    label = study.stages[number].name
    return f"{study.name}.{number + 1}" + (f"-{label}" if label else "")


def is_done(study: Study, ledger: Ledger) -> bool:
    """True if a stage's study has nothing left to train or to publish."""
    rows = StudyRecords(ledger, study.name).list_seeds()
    return {seed_of(r) for r in rows if is_final(r) and r["published"]} >= set(study.first_seeds)


def _seeds(study: Study, number: int, ledger: Ledger) -> list[Seed]:
    """Return the seeds that come to a stage, in the file's order."""
    if number == 0:
        return study.first_seeds
    records = StudyRecords(ledger, name_of(study, number - 1))
    rows = {seed_of(r): r for r in records.list_seeds() if is_final(r)}
    before = [s for s in study.first_seeds if s in rows]
    return [s for s in before if goes_on(study.stages[number - 1], rows[s])]


def goes_on(stage: Stage, row: Row) -> bool:
    """True if a seed has what a stage asks for at its end."""
    if stage.go_on == "held":
        return bool(row["held"])
    if stage.go_on == "grokked":
        return bool(row["outcome"] == Outcome.GROKKED)
    return (row["best_exact"] or 0.0) >= float(stage.go_on)
