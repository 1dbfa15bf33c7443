"""What runs in a trial: a bank with more pairs than slots, its results on disk, and seeds given up."""

import threading
import time
from dataclasses import replace

import pytest
import torch

from model import PRESETS
from search.run import worker
from search.store.results import WorkerAssignment, read_parts
from search.study.resources import Resources
from search.study.stopping import Stop
from search.study.trial import Configuration, Trial
from trainer import FutilityRule, Outcome, Recipe, Seed

pytestmark = pytest.mark.usefixtures("few_selection_problems")

RECIPE = Recipe(steps=6, batch=8, eval_every=2, hold=0, curriculum=(), fade_start=2, fade_end=6)
CONFIGURATION = Configuration(PRESETS["57p"], RECIPE)
ALWAYS = FutilityRule(checkpoints=((0.3, 1.1, 1.1),))  # calls every seed hopeless at the first evaluation


def trial_of(*seeds, slots=2, stop=False):
    resources = Resources(gpu=0, compiled=False, save_every=1)
    work = tuple((CONFIGURATION, Seed.of(n)) for n in seeds)
    return Trial("study", work, slots, resources, Stop(hopeless=stop))


def run(trial, folder):
    """The reports of a trial that runs to its end, and the results that it left."""
    trial.write(folder)
    reports = list(worker.run_trial(folder))
    (part,) = read_parts(folder)
    return reports, part


@pytest.fixture
def always(monkeypatch):
    """A rule without hope, and of three seeds the second spared."""
    monkeypatch.setattr(worker, "FUTILITY_RULE", ALWAYS)
    monkeypatch.setattr("trainer.bank.tracker.is_spared", lambda seed: seed == Seed.of(2))


def outcomes(report):
    (tally,) = report["tallies"].values()
    return tally["states"]


def test_pairs_beyond_the_slots_wait_and_follow(tmp_path):
    trial = trial_of(5, 6, 7, 8, 9, slots=2)
    reports, part = run(trial, tmp_path)
    assert [r["phase"] for r in reports] == ["compiling"] + ["training"] * 10 + ["done"]
    assert outcomes(reports[1]) == {"running": 2, "queued": 3}
    assert outcomes(reports[5]) == {"failed": 2, "running": 2, "queued": 1}
    assert part.trial == trial
    ended = [(r.pair.seed, r.outcome, r.steps) for r in part.results]
    assert ended == [(seed, Outcome.FAILED, 6) for _, seed in trial.work]
    assert part.about["environment"]["slots"] == 2 and part.about["environment"]["engine"] == "programs"
    _, alone = run(trial_of(9, slots=2), tmp_path / "alone")
    assert torch.equal(part.results[4].theta_P, alone.results[0].theta_P)


@pytest.mark.usefixtures("always")
def test_hopeless_seeds_are_given_up_but_for_those_spared(tmp_path):
    reports, part = run(trial_of(1, 2, 3, stop=True), tmp_path)
    ended = [(r.outcome, r.steps, r.hopeless_step, len(r.curve_EM)) for r in part.results]
    given_up = (Outcome.GIVEN_UP, 2, 2, 1)
    assert ended == [given_up, (Outcome.FAILED, 6, 2, 3), given_up]
    assert outcomes(reports[2]) == {"given_up": 1, "running": 2}, "its slot is taken at once"


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_gpu_is_for_workers_whose_place_is_on_one(on_gpu, tmp_path, monkeypatch):
    """With `gpu: auto` few seeds have places on CPUs, while the GPU is another study's."""
    devices, whole = [], worker.bank_of
    monkeypatch.setattr(worker, "is_declared", lambda: True)
    monkeypatch.setattr(worker, "bank_of", lambda t, device, rule: devices.append(device) or whole(t, "cpu", rule))
    trial = trial_of(1)
    replace(trial, resources=trial.resources.model_copy(update={"gpu": "auto"})).write(tmp_path)
    list(worker.train_reporting({"folder": tmp_path, "on_gpu": on_gpu}))
    assert devices == ["cuda" if on_gpu else "cpu"]


def test_a_trial_that_has_ended_leaves_nothing_in_the_bank(tmp_path):
    """What follows it in its slots goes on."""
    first, second = trial_of(5, 6, slots=3), trial_of(7, slots=3)
    for trial in (first, second):
        trial.write(tmp_path / trial.key)
    folder = tmp_path / first.key
    WorkerAssignment((first.key, second.key)).write(folder)
    session = worker.WorkerSession(folder, worker.Shared())
    assert session.run_next()
    session.bank.end([0, 1])
    assert session.write_results(session.rows()) == [first.key]
    assert [p.seed for p in session.bank.pairs] == [Seed.of(7)] and session.load_assigned() == []
    while session.bank.advance():
        assert session.rows()[0]["outcome"] == ("running" if session.rows()[0]["step"] < RECIPE.steps else "failed")
    assert session.write_results(session.rows()) == [second.key]
    session.release()
    _, alone = run(trial_of(7, slots=3), tmp_path / "alone")
    (part,) = read_parts(tmp_path / second.key)
    assert torch.equal(part.results[0].theta_P, alone.results[0].theta_P)


def test_a_worker_that_died_after_its_results_has_nothing_left_to_do(tmp_path):
    trial = trial_of(1, 2)
    run(trial, tmp_path)
    assert list(worker.run_trial(tmp_path)) == []


def test_who_waits_ends_as_soon_as_nothing_is_left(tmp_path):
    trial = trial_of(5)
    trial.write(folder := tmp_path / trial.key)
    WorkerAssignment((trial.key,), wait_s=60.0).write(folder)
    reports = worker.run_trial(folder)
    assert "done" in [next(reports)["phase"] for _ in range(6)]
    told = threading.Timer(0.5, WorkerAssignment((trial.key,)).write, [folder])
    told.start()
    since = time.monotonic()
    assert list(reports) == []
    told.join()
    assert 0.3 < time.monotonic() - since < 20
