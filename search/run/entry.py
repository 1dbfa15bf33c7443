"""The way in: a study is opened, trained and closed, for `search.run` and for `adder-search run` alike."""

from __future__ import annotations

import json
import logging
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from search.errors import Failure, UserError, reraise_as
from search.run.source import Say, changes_of, given_study, is_file, records_of, remark_on_others
from search.store.home import Home, missing

if TYPE_CHECKING:
    import pandas as pd

    from search.run.driver import Ended
    from search.run.executor import Executor
    from search.run.progress import Display
    from search.run.snapshot import Snapshot
    from search.store.study_records import StudyRecords
    from search.study.schema import Study
    from trainer.checkpoints.checkpoint import Checkpoint

    Given = Mapping[str, Any] | Study | str | Path

ADDRESS_SPACE = 12 << 30  # bytes
GO_ON = "the same call goes on, with what was saved"

log = logging.getLogger(__name__)


# ---- from Python


@dataclass(frozen=True, repr=False)
class Trained:
    """What `search.run` returns: a study, how far it is, and its records, read when they are asked for."""

    study: Study
    home: Home
    is_done: bool
    """False if it was stopped before its end."""
    why: str
    """The reason then: `time limit`, or `stopped` by `adder-search stop`."""

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """One row per seed that has ended; columns as `search.records` says."""
        return self._records("seeds")

    @cached_property
    def configurations(self) -> pd.DataFrame:
        """One row per configuration, with its grok rate and interval."""
        return self._records("configurations")

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per evaluation of a seed, with its `step`."""
        return self._records("curves")

    def _records(self, of: Literal["seeds", "configurations", "curves"]) -> pd.DataFrame:
        from search.analysis.frames import records

        return records(self.study.name, of, home=self.home.path)

    @property
    def best(self) -> Checkpoint:
        """The checkpoint that `adder-search pull --best` fetches. Raises NotFound before a seed has ended."""
        from search.analysis.best import best_checkpoint

        return best_checkpoint(records_of(self.home, self.study.name))

    def __repr__(self) -> str:
        """Return one line: the study, its seeds, and why it was stopped, if it was."""
        rows = records_of(self.home, self.study.name).list_seeds()
        ended = sum(row.is_final for row in rows)
        grokked = sum(row.has_grokked for row in rows)
        stopped = "" if self.is_done else f"; stopped ({self.why}), {GO_ON}"
        return f"{self.study.name}: {ended:,} of {len(rows):,} seeds ended, {grokked:,} grokked{stopped}"


def run(
    study: Given,
    home: str | Path | None = None,
    *,
    executor: Literal["process", "ray"] = "process",
    progress: Callable[[Snapshot], object] | None = None,
    max_hours: float | None = None,
    fresh: bool = False,
    set: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Trained:
    """Train a study, or go on with it, and return its records, as `adder-search run` does.

    study: a dict with the keys of a study file, a `search.Study`, or the name or path of a file.
    home: the folder of all records; by default ADDER_SEARCH_HOME, or `./adder-runs`.
    executor: `process` trains in the thread that calls, on one core, or one GPU: nothing is started that could be
    left behind, an interrupt is heard after each evaluation, and a debugger sees each step. `ray` trains on all cores
    and GPUs, or on the cluster at RAY_ADDRESS. Both give the same θ, bit for bit.
    progress: is called with a `Snapshot` every 5 to 60 s, and at the end; `print` shows it as a line.
    max_hours: stop cleanly after so many hours. fresh: start over, under the name NAME-2, NAME-3 and so on.
    set: values by key path, as {"recipe.lr": 0.01}, in place of the study's. env: what ${NAME} in a file stands for.

    An interrupt of the main thread ends it cleanly, then raises KeyboardInterrupt; the same call goes on. Raises
    UserError for what cannot be trained, and Failure if a seed failed for good or something outside did.

        >>> import search
        >>> study = {"name": "two", "model": "57p", "recipe": {"steps": 40, "eval_every": 20}, "seeds": [1, 2]}
        >>> list(search.run(study).curves["step"])
        [20, 40, 20, 40]
    """
    _check_options(executor, max_hours)
    place = Home(home)
    changes = changes_of(set or {}, env or {})
    asked, source = given_study(study, place, log.warning, changes)
    prepare(asked, source, place, log.warning, fresh, by_ray=executor == "ray")
    opened = open_study(asked, source, place, log.warning, fresh)
    ended = train(opened, _listener(progress), EXECUTORS[executor], max_hours)

    name = opened.study.name
    if ended.failed:
        (what, why), *others = ended.failed.items()
        more = f"; and {len(others)} more" if others else ""
        raise Failure(f"{name}: {what} failed: {why}{more}")
    if ended.signalled:
        raise KeyboardInterrupt(f"{name}: stopped; {GO_ON}" if ended.interrupted else f"{name}: has ended")
    return Trained(opened.study, place, not ended.interrupted, ended.why)


def _check_options(executor: str, max_hours: float | None) -> None:
    from model.fields import did_you_mean

    if executor not in EXECUTORS:
        raise UserError(f"executor: unknown {executor!r}; {did_you_mean(executor, EXECUTORS)}")
    if max_hours is not None and not max_hours > 0:
        raise UserError(f"max_hours: must be above 0, got {max_hours}")


def _listener(call: Callable[[Snapshot], object] | None) -> Display:
    """Return a display that hands each snapshot to a function of the caller's, and other lines to the log."""
    from rich.console import Console

    from search.run.progress import Display

    class Listener(Display):
        def begin(self, study: Study) -> None:
            """Leave the heading to the caller."""

        def show(self, snapshot: Snapshot) -> None:
            self.shown = time.monotonic()
            if call:
                call(snapshot)

        def say(self, line: str) -> None:
            self.shown = time.monotonic()
            log.info("%s", line)

        end = show

    return Listener(Console(file=StringIO()))


# ---- where it trains


def in_process(study: Study, home: Home, display: Display) -> Executor:
    """Return an executor of one worker in this process, on a GPU if the study asks for one that is there."""
    from search.run.executor import LocalExecutor
    from search.run.packing import local_resources, placement_of

    _, capacity = placement_of(study, local_resources())
    return LocalExecutor(replace(capacity, concurrent=1))


def by_ray(study: Study, home: Home, display: Display) -> Executor:
    """Return an executor of Ray Tune's trials, on this machine or the cluster at RAY_ADDRESS."""
    from search.run import ray_executor

    return ray_executor.RayExecutor(study, home.ray, display.say_if_due)


EXECUTORS: dict[str, Callable[[Study, Home, Display], Executor]] = {"process": in_process, "ray": by_ray}


# ---- a run, step by step


@dataclass(frozen=True)
class Opened:
    """A study that can be trained now, as it goes on, with the stores that it is recorded in."""

    study: Study
    source: str
    """The file, or the study's name: what a later command goes on by."""
    records: StudyRecords


def prepare(study: Study, source: str, home: Home, say: Say, fresh: bool = False, by_ray: bool = True) -> None:
    """Refuse a study that cannot be begun, before anything is opened or written. Raises UserError, Failure.

    Refused are a bad checkpoint to start from (once a study has begun, the ledger has it), and fewer addresses
    (`ulimit -v`) than Ray reserves: it would wait for itself, or abort. say: is told of other records of its name.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if by_ray and limit != resource.RLIM_INFINITY and limit < ADDRESS_SPACE:
        least = f"Ray reserves more than {ADDRESS_SPACE >> 30} GB, most of which it does not use"
        raise Failure(f"ulimit -v leaves {limit / 2**30:.1f} GB of addresses; {least}")

    from search.study.start import read_start
    from trainer.finishing import check_finisher
    from trainer.recipe.stages import check_stages

    if study.start and study.start.checkpoint:
        begun = not fresh and home.exists() and records_of(home, study.name).get_definition() is not None
        if not begun:
            with reraise_as(source, UserError):
                read_start(study.start)

    with reraise_as(source):
        for _, recipe in study.listed:
            check_stages(recipe)
            check_finisher(recipe)

    if not fresh and (remark := remark_on_others(study, home)):
        say(remark)


def open_study(study: Study, source: str, home: Home, say: Say, fresh: bool = False) -> Opened:
    """Check machine, stores and earlier records, and open them. Raises UserError, Failure."""
    from search.run.extension import check_extension
    from search.run.mirror import mirrors
    from search.run.packing import check_resources
    from search.store.ledger import Ledger
    from search.store.study_records import StudyRecords

    with reraise_as(source, UserError):
        if remark := check_resources(study.resources):
            say(f"{source}: {remark}")

    # Mirrors may show what a ledger had that is gone: a new one in its place would train all of that again.
    is_new = home.has_own_database and not (fresh or home.ledger_db.exists())
    if is_new and (home.artifacts / study.name).exists():
        raise Failure(missing(home.ledger_db))

    # Every mirror is checked before anything is made, so that a refusal leaves nothing behind.
    for mirror in mirrors():
        mirror.check(home)
    home.create()
    ledger = Ledger(home)
    for mirror in mirrors():
        mirror.create(home)

    if fresh:
        study = renamed(study, ledger.list_studies(), lambda name: any(m.has(home, name) for m in mirrors()))
        say(f"{study.name}: a fresh start of {source}")
    records = StudyRecords(ledger, study.name)
    is_theirs = is_file(source) and Path(source).parent != home.logs  # where --detach leaves one
    if fresh or not is_theirs:
        source = study.name
    with reraise_as(source, UserError):
        check_extension(study, records.get_definition(), records.list_seeds())
    return Opened(study, source, records)


def train(
    opened: Opened,
    display: Display,
    executor_of: Callable[[Study, Home, Display], Executor],
    max_hours: float | None = None,
    notify: str = "",
) -> Ended:
    """Hold the study's lease and train what is left. Raises UserError, Failure.

    notify: the command or webhook that is told of the first seed that groks, and of the end.
    """
    from search.run.driver import Driver
    from search.run.notify import telling

    study = opened.study
    source = opened.source
    records = opened.records
    with reraise_as(source, UserError), records.lease:
        executor = executor_of(study, records.home, display)
        display.begin(study)
        with display, Driver.open(study, records, display, max_hours) as driver, telling(notify) as tell:
            driver.tell = tell
            driver.progress.source = str(Path(source).absolute()) if is_file(source) else source
            # Not before the plan was made: a file that is refused does not take the recorded one's place.
            records.update_study(study.model_dump(mode="json", by_alias=True))
            ended = driver.run(executor)

            tell(
                event="study stopped" if ended.interrupted else "study ended",
                study=study.name,
                seeds=sum(row.is_final for row in ended.rows),
                grokked=sum(row.has_grokked for row in ended.rows),
                failed=len(ended.failed),
                why=ended.why,
            )
            display.end(driver.progress.snapshot())
    return ended


def renamed(study: Study, begun: Sequence[str], is_shown: Callable[[str], bool] = lambda name: False) -> Study:
    """Return the study under the first of NAME-2, NAME-3 ... that is free. begun: studies with records.

    is_shown: True of a name that a mirror has.
    """
    from search.study.schema import LONGEST_NAME

    for n in count(2):
        suffix = f"-{n}"
        name = study.name[: LONGEST_NAME - len(suffix)] + suffix
        if name not in begun and not is_shown(name):
            values = study.model_dump(mode="json", by_alias=True) | {"name": name}
            return type(study).model_validate_json(json.dumps(values))
    raise AssertionError
