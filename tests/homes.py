"""Homes with records, made without training: what seeds come to is made up, all else is as by a driver.

Made-up workers train nothing: what a seed comes to is a function of its number, after so many evaluations.
"""

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import sqlalchemy as sa
import torch
from mlflow.tracking._tracking_service import utils

from search.run import verification
from search.run.driver import Driver
from search.run.executor import LocalExecutor, Restarted
from search.run.messages import Report, Speed
from search.run.planner import plan
from search.stats.record import UNMEASURED
from search.store.ended_seed import EndedSeed, TrainedBy
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.file import parse_study
from search.study.trial import Configuration
from tracking import mirror, projection
from tracking.store import FINISHED, KILLED, connect
from tracking.sync import AtOnce
from tracking.tracker import Tracker
from trainer import Outcome, Pair, Result, Seed

STUDY = """
name: sweep
about: what it asks
model: 57p
recipe: {steps: 3000, fade_start: 100, fade_end: 200}
seeds: {first: 1, count: 4}
"""
TRAINED_BY = TrainedBy(5.0, {"code": "0", "threads": 1})
RIGHT = 10_010  # of AdderBoard's additions, as `quickly` has every seed decode them


@contextmanager
def unpictured():
    """Without pictures in MLflow, which take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection, "_write_picture", lambda *given: None)
        patch.setattr(projection, "_draw", lambda *given: None)
        yield


@contextmanager
def quickly():
    """Without what takes seconds: pictures and decoded additions."""
    with unpictured(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "verify", lambda spec, theta_P: SimpleNamespace(correct=RIGHT, margin=None))
        yield


def study_of(text=STUDY, **changes):
    study = parse_study(text, "test")
    known = study.model_dump(mode="json", by_alias=True) | changes
    return type(study).model_validate_json(json.dumps(known)) if changes else study


def empty_home(folder):
    home = Home(folder)
    home.create()
    return home


def result_of(configuration, number, grokked=False):
    """What became of a seed: a function of configuration and number."""
    spec, recipe = configuration.spec, configuration.recipe
    gen = torch.Generator().manual_seed(number + int(configuration.key[:6], 16))
    return Result(
        pair=Pair(recipe, Seed.of(number)),
        outcome=Outcome.GROKKED if grokked else Outcome.FAILED,
        steps=recipe.steps,
        grok_step=2_000 if grokked else None,
        held=False,
        hopeless_step=None,
        best_step=2_000,
        best_exact=1.0 if grokked else 0.25,
        best_token=0.5,
        theta_P=torch.randn(spec.params, generator=gen),
        curve_EM=torch.rand(recipe.steps // recipe.eval_every, 4, generator=gen),
        probes_ER=torch.rand(recipe.steps // recipe.eval_every, len(spec.probes()), generator=gen),
    )


def work_of(study, *numbers):
    """Pairs of a study's first configuration, as `StudyRecords.claim` takes them."""
    return [(Configuration(*study.listed[0]), Seed.of(n), False) for n in numbers]


class Recorder:
    """A study in a home, to which seeds are added, whatever a planner would choose."""

    def __init__(self, home, study):
        self.home, self.study, self.records = home, study, records_of(home, study.name)
        self.tracker = Tracker(connect(home, creates=True), home, study)
        definition = study.model_dump(mode="json", by_alias=True)
        self.records.lease.acquire()
        self.records.update_study(definition)
        projection.describe_study(self.tracker)

    @property
    def configuration(self):
        return self.configurations[0]

    @property
    def configurations(self):
        return [Configuration(*listed) for listed in self.study.listed]

    def seeds(self, numbers, of=None, grokked=(), changes=None, shown=True, confirmation=False):
        """Record seeds of a configuration, by default the first. changes: of some results, by their seeds' numbers.
        shown: MLflow has it too.
        """
        configuration, keys = self.claim(numbers, of, confirmation)
        results = {}
        for key, n, data_seed in keys:
            result = replace(result_of(configuration, n, n in grokked), **(changes or {}).get(n, {}))
            results[key, n, data_seed] = EndedSeed.of(result)
        self.records.record(results, TRAINED_BY)
        if shown:
            self._show(configuration, FINISHED)

    def censored(self, numbers, of=None):
        """Record seeds that were ended from outside."""
        configuration, keys = self.claim(numbers, of)
        self.records.record({}, TRAINED_BY, states=dict.fromkeys(keys, b"0" * 500))
        self.records.censor(dict.fromkeys(keys, 0), "interrupted")
        self._show(configuration, KILLED)

    def claim(self, numbers, of=None, confirmation=False):
        """Claim seeds as a driver does. Returns their configuration and their keys."""
        configuration, seeds = of or self.configuration, [Seed.of(n) for n in numbers]
        self.records.claim([(configuration, seed, confirmation) for seed in seeds])
        return configuration, [(configuration.key, seed.init_seed, seed.data_seed) for seed in seeds]

    def _show(self, configuration, status):
        projection.write_configuration(self.records, self.tracker, configuration, status)

    def write_pages(self):
        """What MLflow shows of the study as a whole."""
        projection.Projection(self.records, self.tracker, AtOnce(), projection.write_study).note_study()

    def done(self):
        self.records.lease.release()
        return self.home.path


class Silent:
    """A display that nobody looks at."""

    def due(self):
        return False

    def say(self, line):
        pass


EVALUATIONS = 3
"""Evaluations after which a made-up seed ends."""


def cut(steps):
    """What a worker says of a seed that it ended because there was enough."""
    nothing = (np.zeros(shape, np.float32) for shape in (0, (0, 0), (0, 0)))
    return EndedSeed(Outcome.CENSORED, UNMEASURED | {"steps": steps}, *nothing)


class Trained:
    """What made-up workers did: of each seed the steps at which its process began, and how often it ended."""

    def __init__(self):
        self.begun = {}
        self.ended = {}


def made_up(name, attempt, trained, grokked=(), evaluations=EVALUATIONS):
    """A worker that is real but for its bank: its pairs are one evaluation further at each report."""
    number, report, at = 0, Report(name, attempt, 0), {}
    while not (reply := (yield report)).is_end:
        bank = reply.bank or bank  # noqa: F821  the first reply with pairs has one
        for order in reply.orders:
            step = int(order.state or b"0")
            at.setdefault(order.number, [order, step])
            trained.begun.setdefault(order.pair.seed.init_seed, []).append(step)
        ended, perfect = {}, []
        for n, (order, step) in list(at.items()):
            at[n][1] = step = step + order.pair.recipe.eval_every
            seed = order.pair.seed.init_seed
            if n in reply.enough and seed not in grokked:
                ended[n] = cut(step)
            elif step >= evaluations * order.pair.recipe.eval_every:
                ended[n] = EndedSeed.of(result_of(Configuration(bank.spec, order.pair.recipe), seed, seed in grokked))
                trained.ended[seed] = trained.ended.get(seed, 0) + 1
            elif seed in grokked:
                perfect.append(n)
        for n in ended:
            del at[n]
        steps = {n: step for n, (_, step) in at.items()}
        states = {n: str(step).encode() for n, step in steps.items()}
        number += 1
        report = Report(
            name, attempt, number, ended, steps, perfect, states,
            environment=TRAINED_BY.environment, speed=Speed(5.0, sum(steps.values())),
        )  # fmt: skip


class MadeUp(LocalExecutor):
    """Made-up workers in turns. capacity: how many. A test does with messages what it likes."""

    def __init__(self, capacity=None, grokked=(), **options):
        super().__init__(capacity)
        self.trained, self.grokked, self.options = Trained(), grokked, options
        self.attempts = {}

    def start(self, worker, on_gpu, attempt=0):
        self.attempts[worker] = attempt
        self.workers[worker] = made_up(worker, attempt, self.trained, self.grokked, **self.options)
        self.turns.append((worker, None))

    def reply(self, report, reply):
        if report.worker in self.workers and report.attempt == self.attempts[report.worker]:
            super().reply(report, reply)

    def kill(self, worker, **about):
        """A worker's process dies, with all that it has not said, and is started again."""
        self.turns = type(self.turns)(turn for turn in self.turns if turn[0] != worker)
        self.start(worker, False, self.attempts[worker] + 1)
        return Restarted(worker, **about)


class Watched(MadeUp):
    """Made-up seeds that end at once. seen: called before them, after each report of ended ones, and at the end."""

    def __init__(self, grokked=(), seen=lambda: None):
        super().__init__(grokked=grokked, evaluations=1)
        self.seen, self.ended = seen, False

    def __enter__(self):
        self.seen()
        return self

    def __exit__(self, *error):
        if not any(error):
            self.seen()
            self.seen()

    def poll(self, timeout_s):
        if self.ended:
            self.seen()
        events = super().poll(timeout_s)
        self.ended = any(isinstance(event, Report) and event.ended for event in events)
        return events


def records_of(home, study="sweep"):
    return StudyRecords(Ledger(home if isinstance(home, Home) else Home(home)), study)


def begin_study(folder, study):
    """Record a study in a home as a driver does that begins it, and train nothing of it. Returns its records."""
    records = records_of(empty_home(folder), study.name)
    with records.lease:
        records.update_study(study.model_dump(mode="json", by_alias=True))
    return records


@contextmanager
def driver_of(home, study):
    """A study's driver that has its lease, and a mirror that shows nothing."""
    records, nobody = records_of(home, study.name), Mock(pending=0, away=False)
    sa.event.listen(records.database.engine, "connect", _in_memory)
    records.database.engine.dispose()
    nobody.drain.return_value = 0
    with records.lease:
        records.censor_orphaned()
        records.update_study(study.model_dump(mode="json", by_alias=True))
        yield Driver(study, records, Silent(), plan(study, records), [nobody])


def _in_memory(connection, _):
    """What an fsync promises is tried elsewhere (tests/scenarios/test_power_cut.py)."""
    connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA synchronous = OFF")


def drive(home, study, grokked=(), client=None, seen=lambda driver: None):
    """Run a study to its end with the real driver, whose seeds end as soon as they begin. seen: called with
    the driver after whatever it did.
    """
    records, client = records_of(home, study.name), client or connect(home, creates=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror, "connect", lambda home: client)
        with records.lease, Driver.open(study, records, Silent()) as driver:
            records.update_study(study.model_dump(mode="json", by_alias=True))
            return driver.run(Watched(grokked, lambda: seen(driver)))


def recorded(folder, *trials, text=STUDY, **more):
    """A home with one study and trials of its first configuration's seeds."""
    study = Recorder(empty_home(folder), study_of(text))
    for numbers in trials:
        study.seeds(numbers, **more)
    return study.done()


@cache
def _two_studies():
    """In a folder that goes when Python ends."""
    folder = TemporaryDirectory(prefix="adder-search-test-")
    home = empty_home(folder.name)
    with quickly():
        recorder = Recorder(home, study_of())
        recorder.seeds((1, 2), grokked=(2,))
        recorder.censored((3, 4))
        recorder.done()
        other = Recorder(home, study_of(name="sweep-2"))
        other.seeds((1,))
        other.done()
    return folder


def two_studies(folder="runs"):
    """A home with two studies, one of them with seeds that never ended. Recorded once, and copied."""
    forget_places()
    home = Home(shutil.copytree(_two_studies().name, folder))
    connect(home)  # it is where it is now
    return home.path


def forget_places():
    """Where a process has seen a run's artifacts, MLflow takes them to be: not of a home that moves while it
    looks on.
    """
    utils._artifact_repos_cache.clear()


def thetas(folder, study="sweep"):
    """θ of every seed that has ended, by configuration and seed."""
    records = records_of(folder, study)
    ended = (row for row in records.list_seeds() if row.is_final)
    return {(s.configuration.key, s.result.pair.seed): s.result.theta_P.tolist() for s in records.seeds(ended)}


def snapshot(folder):
    """Every file of a folder and its bytes."""
    return {p.relative_to(folder): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}
