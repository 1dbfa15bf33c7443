"""`adder-search status` and `delete`: the studies of a home."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import click

from search.cli.options import STUDY, home_option, json_option, show
from search.errors import UserError

if TYPE_CHECKING:
    from search.store.home import Home
    from search.store.record import SeedRecord
    from search.store.study_records import StudyRecords
    from search.study.schema import Study


@click.command()
@click.argument("study", type=STUDY, required=False)
@click.option("--seeds", "each", is_flag=True, help="Each seed of a STUDY of several configurations.")
@home_option
@json_option
def status(study: str | None, each: bool, home: Home, as_json: bool) -> None:
    """Show the recorded studies, or one STUDY by configuration, and how far it is while it runs."""
    from search.cli import render
    from search.stats.counting import overview, summarise
    from search.store.home import home_flag
    from search.store.study_records import open_several

    opened = open_several(home, [study] if study else []) if study or home.exists() else []
    seeds_of = {r: r.list_seeds(environment=as_json and bool(study)) for r in opened}
    for records, seeds in seeds_of.items():
        if not records.get_driver():
            mark_cut_off(seeds)
    rows = [row for seeds in seeds_of.values() for row in seeds]
    recorded, refused = _recorded(r for r, its_seeds in seeds_of.items() if its_seeds)
    names, running = _of_one(opened[0], rows, recorded.get(study), refused) if study else ({}, None)
    until = {name: as_run.until_rule for name, as_run in recorded.items()}
    studies = [{**s, **refused.get(s["study"], {})} for s in overview(rows, until)]
    for records in (r for r, its_seeds in seeds_of.items() if not its_seeds):
        owner = records.get_driver()
        said = "no seed begun yet" + (f"; run by {owner}" if owner else "")
        studies.append({"study": records.study, **summarise([]), "said": said})
    seeds = rows if study else []
    flag = home_flag(home)
    text = render.status(studies, seeds, names, running, flag, each) if opened else home.nothing_run
    about = {"home": str(home.path), "studies": studies, "seeds": seeds or None}
    show(as_json, about | ({"running": running} if study else {}), text)


def mark_cut_off(seeds: list[SeedRecord]) -> None:
    """Show seeds whose run was killed, which had no time to write that, as interrupted."""
    from trainer import Outcome

    for row in seeds:
        if row["outcome"] == Outcome.RUNNING:
            row |= {"outcome": Outcome.CENSORED.value, "reason": "its run was killed"}


def _recorded(opened: Iterable[StudyRecords]) -> tuple[dict[str, Study], dict[str, dict[str, str]]]:
    """Return the studies as they were recorded, by name; and why this version refuses one."""
    recorded, refused = {}, {}
    for records in opened:
        try:
            if study := records.get_recorded_study():
                recorded[records.study] = study
        except UserError as error:
            refused[records.study] = {"refused": str(error)}
    return recorded, refused


def _of_one(
    records: StudyRecords, seeds: list[SeedRecord], study: Study | None, refused: dict[str, dict[str, str]]
) -> tuple[dict[str, str], dict[str, Any] | None]:
    """Return names of a study's configurations, and what its driver left; the seeds get their last reported steps,
    and those that wait are said to.

    refused: gets the reason if this version refuses the configurations, which then have no names.
    """
    from model.tasks import ADDITION
    from search.store.running import read_progress
    from search.study.naming import names_of
    from trainer import Outcome

    running = read_progress(records)
    steps = {(key, init, data): step for key, init, data, step in (running or {}).get("steps", ())}
    for row in seeds:
        if running and row["outcome"] == Outcome.RUNNING:
            step = steps.get((row["configuration"], row["init_seed"], row["data_seed"]), 0)
            if not (step if steps else running["running"]):
                row["outcome"] = Outcome.QUEUED
            row["steps"] = step or row["steps"]
    try:
        configurations = records.list_configurations()
        for row in seeds:
            if (task := configurations[row["configuration"]].spec.task) != ADDITION:
                cast("dict[str, Any]", row)["verify_total"] = task.problems
        return names_of(study, configurations.values()), running
    except UserError as error:
        refused.setdefault(records.study, {"refused": str(error)})
        return {}, running


@click.command()
@click.argument("study", type=STUDY)
@click.option("--dry-run", is_flag=True, help="Show what would be freed and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@home_option
def delete(study: str, home: Home, yes: bool, dry_run: bool) -> None:
    """Delete a STUDY: its seeds, MLflow runs, artifacts, saved banks and proposals.

    Shows them first and asks. To keep them elsewhere, copy the home: it is one folder.
    """
    from search.store.home import home_flag
    from search.store.study_records import open_records
    from search.tracking import removal

    records = open_records(home, study)
    click.echo(removal.shown(removal.contents(records)))
    if owner := records.get_driver():
        stop = f"adder-search stop {study}{home_flag(home)}"
        raise UserError(f"study {study} is being run by {owner}; stop it with {stop}")
    if dry_run or not _agreed(f"delete all of {study}?", yes):
        return
    with records.lease:
        remark = removal.delete(removal.contents(records))
    click.echo(f"{study} is deleted" + (f"; {remark}" if remark else ""))


def _agreed(question: str, yes: bool) -> bool:
    """Ask the user. Raise UserError where there is no terminal."""
    if not (yes or _is_terminal()):
        raise UserError("nothing was deleted: there is no terminal to ask on; give --yes")
    agreed = yes or click.confirm(question)
    if not agreed:
        click.echo("nothing was deleted")
    return agreed


def _is_terminal() -> bool:
    return sys.stdin.isatty()
