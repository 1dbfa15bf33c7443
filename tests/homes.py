"""Homes with records, made without training: what seeds come to is made up, all else is as by a driver."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
import torch
from mlflow.tracking._tracking_service import utils

from search.run import projection
from search.run.sync import AtOnce
from search.store.ended_seed import EndedSeed, TrainedBy
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.file import parse_study
from search.study.trial import Configuration
from search.tracking.tracker import Tracker
from search.tracking.tracking import FINISHED, KILLED, connect
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
def quickly() -> Iterator[None]:
    """Without what takes seconds: pictures and decoded additions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection, "verify", lambda spec, theta_P: SimpleNamespace(correct=RIGHT, margin=None))
        patch.setattr(projection, "_write_picture", lambda *given: None)
        patch.setattr(projection, "_draw", lambda *given: None)
        yield


def study_of(text=STUDY, **changes):
    study = parse_study(text, "test")
    known = study.model_dump(mode="json", by_alias=True) | changes
    return type(study).model_validate_json(json.dumps(known)) if changes else study


def empty_home(folder) -> Home:
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

    def __init__(self, home: Home, study):
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

    def seeds(self, numbers=(), work=(), grokked=(), changes: Mapping[int, dict] | None = None, shown=True,
              confirmation=False):  # fmt: skip
        """Record seeds of the first configuration, or pairs. changes: of some results, by their seeds' numbers.
        shown: MLflow has it too.
        """
        work = self._claimed(numbers, work, confirmation)
        results = {}
        for configuration, seed, _ in work:
            n = seed.init_seed
            result = replace(result_of(configuration, n, n in grokked), **(changes or {}).get(n, {}))
            results[configuration.key, n, seed.data_seed] = EndedSeed.of(result)
        self.records.record(results, TRAINED_BY)
        self._show(work if shown else (), FINISHED)

    def censored(self, numbers=(), work=()):
        """Record seeds that were ended from outside."""
        work = self._claimed(numbers, work)
        keys = [(c.key, s.init_seed, s.data_seed) for c, s, _ in work]
        self.records.record({}, TRAINED_BY, states=dict.fromkeys(keys, b"0" * 500))
        self.records.censor(dict.fromkeys(keys, 0), "interrupted")
        self._show(work, KILLED)

    def _claimed(self, numbers, work, confirmation=False):
        pairs = list(work) or [(self.configuration, n) for n in numbers]
        claimed = [(configuration, Seed.of(n), confirmation) for configuration, n in pairs]
        self.records.claim(claimed)
        return claimed

    def _show(self, work, status):
        for configuration in dict.fromkeys(c for c, *_ in work):
            projection.write_configuration(self.records, self.tracker, configuration, status)

    def write_pages(self):
        """What MLflow shows of the study as a whole."""
        projection.Projection(self.records, self.tracker, AtOnce(), projection.write_study).note_study()

    def done(self) -> Path:
        self.records.lease.release()
        return self.home.path


class Silent:
    """A display that nobody looks at."""

    def due(self):
        return False

    def say(self, line):
        pass


def records_of(home: Home | Path | str, study: str = "sweep") -> StudyRecords:
    return StudyRecords(Ledger(home if isinstance(home, Home) else Home(home)), study)


def recorded(folder, *trials, text=STUDY, **more) -> Path:
    """A home with one study and trials of its first configuration's seeds."""
    study = Recorder(empty_home(folder), study_of(text))
    for numbers in trials:
        study.seeds(numbers, **more)
    return study.done()


@cache
def _two_studies() -> TemporaryDirectory[str]:
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


def two_studies(folder="runs") -> Path:
    """A home with two studies, one of them with seeds that never ended. Recorded once, and copied."""
    forget_places()
    home = Home(shutil.copytree(_two_studies().name, folder))
    connect(home)  # it is where it is now
    return home.path


def forget_places() -> None:
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
