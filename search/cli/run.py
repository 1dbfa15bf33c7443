"""`adder-search run`, `resume` and `stop`: a study from its file to its end, here or without a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import HOURS, STUDY, home_option, trust_option
from search.errors import Failure, UserError, reraise_as
from search.run.entry import Opened, by_ray, open_study, prepare, renamed, train
from search.run.source import read_study, records_of, study_name
from search.run.terminal import is_cell, leave_cell
from search.store.home import Home, home_flag, run_command
from search.study.written import Changes
from trainer.files.installed import own_module

if TYPE_CHECKING:
    from search.stats.record import SeedRecord
    from search.store.study_records import StudyRecords
    from search.study.schema import Study

STARTING_S, STOPPING_S = 120.0, 150.0
"""Longest waits for a detached run to begin, and for a run to end."""
SAVING_S = 60.0
"""Longest wait of a cell for the run before it to end."""
POLL_S = 0.5
NOTIFY = (
    "Shell command (JSON on its standard input) or http(s) URL that is told when a first seed groks, and at the end."
)
_say = partial(click.echo, err=True)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `run` and `resume` share."""
    for option in (
        home_option,
        click.option("--max-hours", type=HOURS, help="Stop cleanly after so long."),
        click.option("--notify", metavar="CMD", default="", help=NOTIFY),
        click.option("--detach", is_flag=True, help="Run in the background; it prints into the home."),
        trust_option,
        click.argument("study", type=STUDY),
    ):
        command = option(command)
    return command


@click.command()
@_options
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@click.option("--fresh", is_flag=True, help="Start over under a new name: NAME-2, NAME-3 and so on.")
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Set a key, as in recipe.lr=0.01.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="What ${NAME} stands for; without a value, as in the environment.",
)
def run(
    study: str,
    dry_run: bool,
    fresh: bool,
    sets: tuple[str, ...],
    env: tuple[str, ...],
    detach: bool,
    notify: str,
    max_hours: float | None,
    home: Home,
) -> None:
    """Train a STUDY: the name of one that was run in this home or else comes with the package, a YAML file, or -.

    A study that was interrupted goes on where it was, by its file as it is now: more seeds, rounds or
    configurations and a wider space extend it. Exit code 0: it is done; 1: something failed; 130: it was
    stopped before its end.
    """
    if not (dry_run or detach):
        leave_cell()

    changes = Changes(sets, env)
    plan = read_study(study, home, _say, changes)
    prepare(plan, study, home, _say, fresh)  # before anything is opened or written
    if changes:
        study = plan.name  # what goes on with it: the file alone is another study

    if dry_run:
        with reraise_as(study, UserError):
            click.echo(_plan(plan, home, fresh))
        return
    open_and_run(plan, study, home, fresh, detach, max_hours, notify)


@click.command()
@_options
@click.pass_context
def resume(context: click.Context, **options: Any) -> None:
    """Go on with a STUDY that was interrupted: `run` without --dry-run, --fresh, --set and --env."""
    context.invoke(run, **options)


def _plan(study: Study, home: Home, fresh: bool) -> str:
    """Return what a run would do and cost. Raises UserError for all that a run would refuse."""
    from search.run.estimate import estimate
    from search.run.extension import check_extension

    rows: list[SeedRecord] = []
    records: StudyRecords | None = None
    if fresh:
        begun = records_of(home, study.name).ledger.list_studies() if home.exists() else []
        study = renamed(study, begun)
    elif home.exists():
        recorded = records_of(home, study.name)
        rows, before = recorded.list_seeds(), recorded.get_definition()
        check_extension(study, before, rows)
        records = None if before is None else recorded  # what a run left that was refused is forgotten
    return estimate(study, home, rows, records)


def open_and_run(
    study: Study,
    source: str,
    home: Home,
    fresh: bool = False,
    detach: bool = False,
    max_hours: float | None = None,
    notify: str = "",
) -> None:
    """Open the study's stores, then run it here or in the background."""
    opened = open_study(study, source, home, _say, fresh)
    if detach:
        _detach(opened.study, opened.records, max_hours, notify)
    else:
        with _interruptible():
            _run(opened, max_hours, notify)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have SIGTERM and SIGHUP do what Ctrl-C does: what was opened is closed, and no folder is left.

    A signal that is ignored stays so (nohup).
    """
    settable = (signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in settable if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _run(opened: Opened, max_hours: float | None, notify: str) -> None:
    from rich.console import Console

    from search.cli import render
    from search.run.executor import ExecutorDied
    from search.run.progress import Display

    source, records = opened.source, opened.records
    if is_cell():  # the run that was interrupted may still save what it trained
        _wait_until(lambda: not records.get_driver(), SAVING_S)

    try:
        ended = train(opened, Display(Console(highlight=False)), by_ray, max_hours, notify)
    except ExecutorDied as died:
        raise Failure(f"{died}. {render.GO_ON} {run_command(records.home, source)}") from None

    click.echo(render.summary(opened.study, source, records, ended))
    if ended.interrupted or ended.failed:
        sys.exit(130 if ended.was_stopped else Failure.code)


def _detach(study: Study, records: StudyRecords, max_hours: float | None, notify: str) -> None:
    """Start the same command as a process of its own, and wait until it holds the study's lease."""
    home = records.home
    home.logs.mkdir(exist_ok=True)
    name = f"{study.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    file, log = home.logs / f"{name}.yaml", home.logs / f"{name}.log"

    # A file of its own: the user may change theirs before the process has read it, or it came by standard input.
    file.write_text(study.model_dump_json(by_alias=True, indent=2), encoding="utf-8")
    words = ["run", str(file), "--home", str(home.path)]
    words += ["--max-hours", str(max_hours)] if max_hours else []
    words += ["--notify", notify] if notify else []
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [*own_module("adder_search"), *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip

    def has_begun_or_ended() -> bool:
        owner = records.get_driver() or "/"
        return process.poll() is not None or owner.split("/")[1] == str(process.pid)

    is_in_time = _wait_until(has_begun_or_ended, STARTING_S)
    code = process.poll()
    if code is not None:  # refused, or done already
        text = log.read_text(encoding="utf-8").replace(f"error: {file}: ", "error: ")  # a file that no user knows
        click.echo(text.removesuffix("\n"), err=bool(code))
        sys.exit(code)
    if not is_in_time:
        raise Failure(f"process {process.pid} has not begun in {STARTING_S:.0f} s; see {log}")

    flag = home_flag(home)
    click.echo(f"{study.name}: runs as process {process.pid}, its output goes to {log}")
    click.echo(f"  adder-search status {study.name}{flag}\n  adder-search stop {study.name}{flag}")


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until a condition holds. Return False if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return holds


@click.command()
@click.argument("study", type=STUDY)
@home_option
def stop(study: str, home: Home) -> None:
    """End a running STUDY cleanly, wherever it runs; the same command as before goes on with it."""
    from search.store.progress_file import read_progress
    from search.store.study_records import open_records

    name = study_name(study, home)
    records = open_records(home, name)
    owner = records.get_driver()
    if not owner:
        raise UserError(f"study {name} is not running")

    # While the driver runs: afterwards its file does not count.
    source = (read_progress(records) or {}).get("source", name)
    records.request_stop()
    if not _wait_until(lambda: not records.get_driver(), STOPPING_S):
        raise Failure(f"study {name} has not stopped in {STOPPING_S:.0f} s; {owner} runs it")

    is_file_here = Path(source).is_absolute() and Path(source).is_file()  # the driver may be another machine's
    source = os.path.relpath(source) if is_file_here else name
    click.echo(f"{name} has stopped. To go on:\n  {run_command(home, source)}")
