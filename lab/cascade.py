"""`adder-search cascade`: the configurations of a study one after the other, each from the θ of the one before.

Each stage is a study of its own, seed for seed. So ledger, resumption, MLflow and lineage are those of any study. This
file says which seeds go on.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from search.cli.options import HOURS, STUDY, FiniteRange, home_option
from search.errors import UserError

if TYPE_CHECKING:
    from search.stats.record import SeedRecord
    from search.store.home import Home
    from search.store.ledger import Ledger
    from search.study.schema import Study
    from search.study.trial import Configuration
    from trainer import Seed


@click.command(short_help="Train configurations in turn, each from the last one's θ.")
@click.argument("plan", type=STUDY)
@click.option(
    "--go-on", default="grokked", show_default=True,
    help="What a seed needs to go on: grokked, held, or a number: its best exact match, at least.",
)  # fmt: skip
@click.option("--max-hours", type=HOURS, help="Stop cleanly after so long.")
@home_option
def cascade(plan: str, go_on: str, max_hours: float | None, home: Home) -> None:
    """Train the configurations of a PLAN, a study file, in its order: seeds go on as far as they can.

    Stages are recorded as studies NAME.1-STAGE, NAME.2-STAGE and so on. The same command goes on where it was.
    """
    from search.cli.run import open_and_run
    from search.store.ledger import Ledger
    from search.study.file import load_study
    from search.study.trial import Configuration

    if go_on not in ("held", "grokked"):
        FiniteRange(0, 1).convert(go_on, None, click.get_current_context())
    study = load_study(plan)
    check(study, plan)
    deadline = time.monotonic() + 3600 * max_hours if max_hours else None
    home.create()
    ledger = Ledger(home)
    for n in range(len(study.listed)):
        if (stage := stage_of(study, n, ledger, go_on)) is None:
            click.echo(f"{study.name}: no seed goes on to stage {n + 1}, {name_of(study, n)}")
            return
        configuration = Configuration(*stage.listed[0])
        counted = f"{trainable(configuration)} numbers trainable, {configuration.spec.params} with what is frozen"
        click.echo(f"{stage.name}: {len(stage.first_seeds)} seeds; {counted}")
        if not is_done(stage, ledger):
            remaining = max(1e-3, (deadline - time.monotonic()) / 3600) if deadline else None
            open_and_run(stage, plan, home, max_hours=remaining)


def check(study: Study, plan: str) -> None:
    """Raise UserError for a study whose configurations make no cascade."""
    if len(study.kind.entries) != len(study.listed) or study.until.grokked or study.confirm:
        raise UserError(f"{plan}: a cascade is a list of configurations, and each seed goes through all that it can")
    if any(seed.init_seed != seed.data_seed for seed in study.first_seeds):
        raise UserError(f"{plan}: crossed seeds make no cascade")


def trainable(configuration: Configuration) -> int:
    """Return how many entries of θ train to the end, those frozen on the way not counted."""
    from trainer.optimisers.freeze import frozen_from

    frozen = frozen_from(configuration.spec.layout, configuration.recipe.freeze)
    return sum(step >= configuration.recipe.steps for step in frozen)


def stage_of(study: Study, number: int, ledger: Ledger, go_on: str) -> Study | None:
    """Return a stage as a study, counted from 0, or None if no seed of the one before goes on to it.

    Raises UserError if it was begun with other seeds, which have no θ to start from.
    """
    from search.store.study_records import StudyRecords

    entry = study.kind.entries[number]
    seeds = [s.init_seed for s in _seeds(study, number, ledger, go_on)]
    if not seeds:
        return None
    about = study.model_dump(mode="json", by_alias=True, exclude={"configurations"})
    about |= {"name": name_of(study, number), "seeds": seeds, "recipe": {**study.recipe, **entry.recipe}}
    about["model"] = study.listed[number][0].as_dict()
    if number:
        about["start"] = {"study": name_of(study, number - 1), "each": True, "grokked": False}
    stage = type(study).model_validate_json(json.dumps(about))
    parents = StudyRecords(ledger, stage.name).list_parents() if number else []
    if parents and set(parents[0].thetas) != set(map(str, seeds)):
        raise UserError(f"study {stage.name}: was begun with other seeds; give the study a new name")
    return stage


def name_of(study: Study, number: int) -> str:
    """Return the name of a stage's study: `cascade.2-71p`."""
    label = study.kind.entries[number].name
    return f"{study.name}.{number + 1}" + (f"-{label}" if label else "")


def is_done(stage: Study, ledger: Ledger) -> bool:
    """True if a stage has nothing left to train."""
    from search.store.study_records import StudyRecords

    rows = StudyRecords(ledger, stage.name).list_seeds()
    return {r.seed for r in rows if r.is_final} >= set(stage.first_seeds)


def _seeds(study: Study, number: int, ledger: Ledger, go_on: str) -> list[Seed]:
    """Return the seeds that come to a stage, in the file's order."""
    from search.store.study_records import StudyRecords

    if number == 0:
        return study.first_seeds
    records = StudyRecords(ledger, name_of(study, number - 1))
    rows = {r.seed: r for r in records.list_seeds() if r.is_final}
    return [s for s in study.first_seeds if s in rows and goes_on(rows[s], go_on)]


def goes_on(row: SeedRecord, go_on: str) -> bool:
    """True if a seed has what the next stage asks for."""
    if go_on in ("held", "grokked"):
        return bool(row.held) if go_on == "held" else row.has_grokked
    return (row.best_exact or 0.0) >= float(go_on)
