"""The seed of a study that `adder-search pull --best` fetches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.presets import is_called
from search.analysis.frames import configuration_rows
from search.analysis.pareto import best_of
from search.store.pull import pull
from search.store.study_records import StudyRecords
from trainer import Seed

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Checkpoint


@dataclass(frozen=True)
class Choice:
    """A configuration's key and a seed of it; None: the best of all."""

    configuration: str | None = None
    seed: Seed | None = None
    title: str = ""
    """The configuration's name, if there are several."""
    remark: str = ""
    """A line on the best configuration with a verified seed, where none of this one's is."""


def choose_best(records: StudyRecords, model: str | None = None) -> Choice:
    """Choose the best configuration, of a preset or of all; of a study of descents, the seed of the smallest set."""
    study = records.get_recorded_study() if model is None else None
    proposed = study.kind.best(records) if study else None
    if proposed:
        return Choice(*proposed)

    rows = configuration_rows(records)
    if model is not None:
        rows = [row for row in rows if is_called(row["rung"], model)]
    best = best_of(rows)
    if best is None:
        return Choice()

    # Nothing is chosen by the 10,010 official additions: a seed that is verified elsewhere is only remarked on.
    remark = ""
    verified = best_of([row for row in rows if row["verified"]])
    if verified and best["verify_tried"] and not best["verified"]:
        option = f"--configuration {verified['configuration'][:6]}"
        remark = f"none of its decoded seeds is verified; of {verified['title']} one is ({option})"
    title = best["title"] if len(rows) > 1 else ""
    return Choice(best["configuration"], None, title, remark)


def best_checkpoint(records: StudyRecords) -> Checkpoint:
    """Return the checkpoint of a study's best seed. Raises NotFound before a seed has ended."""
    choice = choose_best(records)
    checkpoint, _ = pull(records, choice.seed, configuration=choice.configuration)
    return checkpoint
