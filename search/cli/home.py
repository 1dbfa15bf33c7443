"""`adder-search status` and `delete`: the studies of a home."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import STUDY, home_option, json_option, show
from search.errors import UserError

if TYPE_CHECKING:
    from search.stats.counting import Counts
    from search.stats.record import SeedRecord
    from search.store.home import Home
    from search.store.study_records import StudyRecords

WATCH_S = 2.0
"""Seconds between two looks of `status --watch`."""


@click.command()
@click.argument("study", type=STUDY, required=False)
@click.option("--seeds", "each", is_flag=True, help="Each seed of a STUDY of several configurations.")
@click.option(
    "--watch", "watched", is_flag=True, help="Show it anew until the run ends, of a STUDY or of the one that runs."
)
@home_option
@json_option
def status(study: str | None, each: bool, watched: bool, home: Home, as_json: bool) -> None:
    """Show the recorded studies, or one STUDY by configuration, and how far it is while it runs."""
    if watched and as_json:
        raise UserError("--watch draws a status again and again, and --json prints one: leave one of them out")
    if watched:
        study = study or _only_running(home)
        _watch(study, each, home)
    about, text = _status(study, each, home, as_json)
    show(as_json, about, text)


def _only_running(home: Home) -> str:
    """Return the study of the home that is being run. Raises UserError if none is, or several are."""
    from search.store.ledger import Ledger

    running = sorted(Ledger(home).list_running_studies()) if home.exists() else []
    if len(running) != 1:
        what = f"{', '.join(running)} run" if running else "no study runs"
        raise UserError(f"--watch: {what} in {home.path}; name one: adder-search status STUDY --watch")
    return running[0]


def _watch(study: str, each: bool, home: Home) -> None:
    """Show a study while it is run: on a terminal its status, drawn again in place, elsewhere a line now and then."""
    from rich.console import Console

    from search.run.progress import Display
    from search.run.snapshot import snapshot_of
    from search.store.progress_file import read_progress
    from search.store.study_records import open_records

    records = open_records(home, study)
    with Display(Console(highlight=False), transient=True) as display:
        while records.get_driver():
            running = read_progress(records)
            if display.live:
                display.say(_status(study, each, home)[1])
            elif running and display.due():
                display.say(str(snapshot_of(running)))
            time.sleep(WATCH_S)


@dataclass(frozen=True)
class _Looked:
    """What is recorded of a study.

    counts: what is said of its seeds. running, names, totals: of a study that was asked for by name; what its driver
    left, and by configuration's key its name and the problems that verify it.
    """

    counts: Counts
    seeds: list[SeedRecord]
    running: Mapping[str, Any] | None
    names: Mapping[str, str]
    totals: Mapping[str, int]


def _status(study: str | None, each: bool, home: Home, as_json: bool = False) -> tuple[dict[str, Any], str]:
    """Return what `status` shows, as plain values and as a text."""
    from search.cli import render
    from search.store.home import run_command
    from search.store.study_records import open_several

    named = [study] if study else []
    opened = open_several(home, named) if study or home.exists() else []
    looked = [_look(records, bool(study), environment=as_json) for records in opened]
    looked.sort(key=lambda one: not one.seeds)  # those without a seed last
    studies = [one.counts for one in looked]
    about: dict[str, Any] = {"home": str(home.path), "studies": studies, "seeds": None}
    if not study:
        return about, render.status(studies, []) if opened else home.nothing_run

    (one,) = looked
    about |= {"seeds": [asdict(seed) for seed in one.seeds] or None, "running": one.running}
    go_on = run_command(home, study)
    return about, render.status(studies, one.seeds, one.names, one.running, go_on, each, one.totals)


def _look(records: StudyRecords, is_asked_for: bool, environment: bool) -> _Looked:
    """Read what `status` shows of a study. environment: read where its seeds were trained, if it is asked for."""
    from search.stats.counting import summarise
    from search.store.progress_file import read_progress
    from search.study.kind import names_of

    seeds = records.list_seeds(environment=environment and is_asked_for)
    owner = records.get_driver()
    as_run, running, names, totals, refusals = None, None, {}, {}, list[str]()
    try:
        as_run = records.get_recorded_study() if seeds else None
    except UserError as error:  # of this version
        refusals.append(str(error))
    if is_asked_for:
        running = read_progress(records)
        seeds = as_reported(seeds, running) if running else seeds
        try:
            configurations = records.list_configurations()
            totals = {key: c.spec.task.problems for key, c in configurations.items()}
            names = names_of(as_run, configurations.values())
        except UserError as error:
            refusals.append(str(error))
    if not owner:
        seeds = list(map(cut_off, seeds))

    counts = {"study": records.study, **summarise(seeds, as_run.until_rule if as_run else None)}
    if not seeds:
        by = f"; run by {owner}" if owner else ""
        counts["said"] = f"no seed begun yet{by}"
    elif refusals:
        counts["refused"] = refusals[0]
    return _Looked(counts, seeds, running, names, totals)


def cut_off(seed: SeedRecord) -> SeedRecord:
    """Return a seed of a study that nobody runs: one that still counts as running was killed with its run."""
    from trainer import Outcome

    if seed.outcome != Outcome.RUNNING:
        return seed
    return replace(seed, outcome=Outcome.CENSORED.value, reason="its run was killed")


def as_reported(seeds: Iterable[SeedRecord], running: Mapping[str, Any]) -> list[SeedRecord]:
    """Return seeds of a study that runs: those in training with their last reported steps, or as waiting.

    running: what the study's driver left (search/store/progress_file.py). It has no steps where seeds are very many.
    """
    from trainer import Outcome

    steps = {(key, init, data): step for key, init, data, step in running.get("steps", ())}

    def reported(seed: SeedRecord) -> SeedRecord:
        step = steps.get(seed.key, 0)
        trains = step if steps else running["running"]
        return replace(seed, outcome=seed.outcome if trains else Outcome.QUEUED.value, steps=step or seed.steps)

    return [reported(seed) if seed.outcome == Outcome.RUNNING else seed for seed in seeds]


@click.command()
@click.argument("study", type=STUDY)
@click.option("--dry-run", is_flag=True, help="Show what would be freed and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@home_option
def delete(study: str, home: Home, yes: bool, dry_run: bool) -> None:
    """Delete a STUDY: its seeds, MLflow runs, artifacts, saved banks and proposals.

    Shows them first and asks. To keep them elsewhere, copy the home: it is one folder.
    """
    from search.run import removal
    from search.store.home import home_flag
    from search.store.study_records import open_records

    records = open_records(home, study)
    click.echo(removal.describe(records))

    if owner := records.get_driver():
        stop = f"adder-search stop {study}{home_flag(home)}"
        raise UserError(f"study {study} is being run by {owner}; stop it with {stop}")
    if dry_run:
        return
    if not (yes or _is_terminal()):
        raise UserError("nothing was deleted: there is no terminal to ask on; give --yes")
    if not (yes or click.confirm(f"delete all of {study}?")):
        click.echo("nothing was deleted")
        return

    with records.lease:
        remark = removal.delete(records)
    click.echo(f"{study} is deleted" + (f"; {remark}" if remark else ""))


def _is_terminal() -> bool:
    return sys.stdin.isatty()
