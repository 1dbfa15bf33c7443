"""Homes with records, made without training: through the ledger and the tracker, as a driver makes them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from search.holdings import FolderHome

from search.evidence.frames import read
from search.run.driver import Driver
from search.store import tracking
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.part import Part
from search.store.tracker import Tracker
from search.store.tracking import connect, tracking_uri
from search.study.file import parse_study
from search.study.trial import Configuration, Trial
from trainer import Outcome, Pair, Result, Seed

STUDY = """
name: sweep
about: what it asks
model: 57p
recipe: {steps: 3000, fade_start: 100, fade_end: 200}
seeds: {first: 1, count: 4}
"""
ENVIRONMENT = {"code": "0", "threads": 1}


@pytest.fixture
def quick(monkeypatch):
    """Without what takes seconds: pictures, decoded additions, a new store's migrations."""
    right = SimpleNamespace(correct=9_000)
    monkeypatch.setattr(tracking, "verify", lambda spec, theta_P: right)
    monkeypatch.setattr(tracking.Tracker, "_picture", lambda *given: None)
    monkeypatch.setattr(merge, "log_evidence", lambda *given: None)
    monkeypatch.setattr(holdings, "connect", _connect)


def _connect(home, uri):
    if uri == f"sqlite:///{home.mlflow_db}" and not home.mlflow_db.exists():
        shutil.copy(_empty_store(), home.mlflow_db)
    return connect(home, uri)


def study_of(text=STUDY, **changes):
    study = parse_study(text, "test")
    known = study.model_dump(mode="json", by_alias=True) | changes
    return type(study).model_validate_json(json.dumps(known)) if changes else study


@cache
def _empty_store() -> Path:
    """An MLflow store with nothing in it: to make one takes seconds."""
    folder = Path(mkdtemp(prefix="adder-search-test-"))
    connect(Home(folder), f"sqlite:///{folder / 'mlflow.db'}")
    return folder / "mlflow.db"


def empty_home(folder) -> Home:
    home = Home(folder)
    home.create()
    shutil.copy(_empty_store(), home.mlflow_db)
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
    )


def trial_of(study, *work, confirmation=False):
    """A trial of pairs (configuration, number)."""
    pairs = tuple((c, Seed.of(n)) for c, n in work)
    return Trial(study.name, pairs, 4, study.resources, study.stop, confirmation)


class Recorder:
    """A study in a home, to which trials are added."""

    def __init__(self, home: Home, study):
        self.home, self.study, self.ledger = home, study, Ledger(home)
        self.tracker = Tracker(connect(home, tracking_uri(home, study.tracking_uri)), home, study)
        definition = study.model_dump(mode="json", by_alias=True)
        self.ledger.hold(study.name, definition, study.tracking_uri)
        self.tracker.asked()

    @property
    def configuration(self):
        return Configuration(*self.study.listed()[0])

    def trial(self, numbers=(), work=(), grokked=(), changes=None, publish=True, confirmation=False):
        """Record a trial of the first configuration's seeds, or of pairs."""
        work = list(work) or [(self.configuration, n) for n in numbers]
        trial = trial_of(self.study, *work, confirmation=confirmation)
        self.ledger.claim(trial)
        folder = self.home.trial(self.study.name, trial.key)
        trial.write(folder)
        for configuration in trial.configurations:
            part = trial.part(configuration)
            results = [
                replace(
                    result_of(c, s.init_seed, s.init_seed in grokked), **(changes or {}).get(s.init_seed, {})
                )
                for c, s in part.work
            ]
            about = {"environment": ENVIRONMENT, "seed_steps_per_s": 5.0}
            Part(part, results, about).write(folder / "results" / configuration.key)
            self.ledger.record(part, results, 5.0, ENVIRONMENT)
        if publish:
            Driver.publish(self, trial)
            for configuration in trial.configurations:
                Driver.conclude(self, configuration)
        return trial

    def _rows_of(self, configuration):
        return self.ledger.rows(self.study.name, configuration.key)

    def censored(self, numbers):
        """A trial that was ended from outside."""
        trial = trial_of(self.study, *[(self.configuration, n) for n in numbers])
        self.ledger.claim(trial)
        folder = self.home.trial(self.study.name, trial.key)
        trial.write(folder)
        (folder / "bank.state").write_bytes(b"x" * 500)
        self.ledger.censor([trial], "interrupted")
        return trial

    def done(self) -> Path:
        self.ledger.release(self.study.name)
        return self.home.path


def recorded(folder, *trials, text=STUDY, **more) -> Path:
    """A home with one study and trials of its first configuration's seeds."""
    study = Recorder(empty_home(folder), study_of(text))
    for numbers in trials:
        study.trial(numbers, **more)
    return study.done()


def frames(folder, study="sweep"):
    """All that `records` gives of a study, without what differs between homes: MLflow's ids."""
    home = FolderHome(folder)
    client = connect(home, f"sqlite:///{home.mlflow_db}")
    found = {of: read(client, study, of) for of in ("seeds", "configurations", "curves")}
    order = ["configuration", "init_seed", "data_seed", "step"]
    dropped = ["experiment_id", "run_id"]
    return {
        of: f.drop(columns=dropped, errors="ignore")
        .sort_values([c for c in order if c in f.columns], ignore_index=True)
        for of, f in found.items()
    }  # fmt: skip


def assert_same(one, other):
    for of in one:
        pd.testing.assert_frame_equal(one[of], other[of], check_like=True)


def thetas(folder, study="sweep"):
    """θ of every seed that MLflow has, by configuration and seed."""
    home, found = FolderHome(folder), []
    client = connect(home, f"sqlite:///{home.mlflow_db}")
    experiment = client.get_experiment_by_name(study)
    for run in client.search_runs([experiment.experiment_id], f"tags.`{tracking.KEY_TAG}` != ''"):
        found += tracking.load_seeds(client, run, home.path)
    pairs = {(s.configuration.key, s.result.pair.seed) for s in found}
    assert len(found) == len(pairs), "a seed is there twice"
    return {(s.configuration.key, s.result.pair.seed): s.result.theta_P.tolist() for s in found}


def snapshot(folder):
    """Every file of a folder and its bytes."""
    return {p.relative_to(folder): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}
