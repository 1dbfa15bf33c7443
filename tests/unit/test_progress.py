"""Snapshots of a run, and how they are shown."""

from dataclasses import replace

import pytest
from rich.console import Console
from search.run.tally import TrialReport

from search.run.progress import Display, Progress
from search.run.snapshot import Snapshot, describe
from search.run.workers import Workers
from tests.planners import drain, planner_of, rows_of
from trainer import Outcome

STUDY = "name: any\nmodel: 57p\nrecipe: {steps: 1000}\nseeds: {first: 1, count: 4}\n"
STUDY += "resources: {seeds_per_trial: 2}\n"


@pytest.fixture
def run(home):
    """A run of two trials, each with a worker; `report` takes what one says of its seeds."""
    planner = planner_of(STUDY + "until: {grokked: 1, max_seeds: 4}\n", home)
    begin = lambda trial, worker: trial.write(home.trial("any", trial.key))  # noqa: E731
    workers = Workers(planner.study, home, planner, begin)
    progress = Progress(planner, workers)
    for trial in drain(planner):
        workers.add(trial)
    return progress


def seed(step, outcome="running", exact=0.0, grok_step=None):
    return {"outcome": outcome, "step": step, "best_exact": exact, "grok_step": grok_step}


def report(run, number, *seeds, rate=100.0):
    worker = list(run.workers)[number]
    trial = worker.last
    rows = [
        facts | {"configuration": c.key, "seed": (s.init_seed, s.data_seed), "budget": 1000}
        for (c, s), facts in zip(trial.work, seeds, strict=True)
    ]
    trial_report, steps = TrialReport.of(rows), sum(r["step"] for r in rows)
    speed = {"seed_steps_per_s": rate, "seed_steps": steps, "train_s": steps / rate if rate else 0.0}
    run.planner.update_progress(trial, trial_report)
    run.take(worker, {"phase": "training", **speed}, [trial_report])


def test_a_snapshot_counts_seeds_and_time(run):
    before = run.snapshot()
    assert (before.running, before.seconds_left, before.compiling, before.seeds) == (0, None, False, (0, 4))
    assert describe(before)[0] == (
        "seeds 0 of up to 4, 4 waiting for their processes to start, 0 grokked, 0 not grokked"
    )
    run.take(next(iter(run.workers)), {"phase": "compiling"}, [])
    assert " 4, 4 compiling, 0 grokked" in describe(run.snapshot())[0]
    report(run, 0, seed(0), seed(0), rate=0.0)
    assert " 4, 2 training, 2 waiting, 0 grokked" in describe(run.snapshot())[0]
    assert describe(run.snapshot())[-1] == "0:00", "the first line says what they do"
    report(run, 0, seed(250, "grokked", 1.0, grok_step=250), seed(250, exact=0.3), rate=5.0)
    report(run, 1, seed(500, "diverged"), seed(500), rate=5.0)
    now = run.snapshot()
    assert (now.running, now.grokked, now.not_grokked, now.best_exact) == (2, 1, 1, 1.0)
    assert (now.seed_steps_per_s, now.compiling, now.seeds, now.is_open) == (10.0, False, (2, 4), True)
    at_250 = 250 + 500 / 2  # half are expected to end at 500, as one of two has
    assert now.seconds_left == pytest.approx((at_250 + 500) / 10.0, abs=2), "of those that have not ended"
    key = next(iter(run.planner.study_run.states))
    assert run.steps() == {(key, 1, 1): 250, (key, 2, 2): 250, (key, 3, 3): 500, (key, 4, 4): 500}


SNAPSHOT = Snapshot(
    configurations=(8, 26), seeds=(40, 208), running=16, grokked=5, not_grokked=35,
    best="fade 5,000, decay 0.014: 3 of 8", best_exact=1.0, seed_steps_per_s=9_000.0,
    seconds_left=3_720.0, compiling=False, elapsed_s=65.0,
)  # fmt: skip


def test_a_confirmation_is_told_from_the_search(home):
    planner = planner_of(STUDY + "confirm: {configurations: 1, seeds: {first: 101, count: 2}}\n", home)
    progress = Progress(planner, Workers(planner.study, home, planner, lambda trial, worker: None))
    for trial in drain(planner):
        planner.complete_trial(trial, rows_of(trial, Outcome.GROKKED))
    assert progress.snapshot().confirming == 0
    confirming, *_ = drain(planner)
    assert confirming.confirmation and progress.snapshot().confirming == 1
    now = replace(SNAPSHOT, configurations=(3, 3), confirming=1, seeds=(48, 64))
    assert describe(now)[0].startswith("configurations 3 of 3, confirming 1 of them on fresh seeds, runs 48 of 64")


def test_a_display_names_the_best_configuration_and_what_is_left():
    assert describe(SNAPSHOT) == [
        "configurations 8 of 26, runs 40 of 208, 16 training, 5 grokked, 35 not grokked",
        "best: fade 5,000, decay 0.014: 3 of 8 grokked",
        "1:05, 9,000 seed-steps/s, about 1:02:00 left",
    ]


def test_a_seed_that_is_to_hold_is_shown_if_nothing_else_is_needed(run, tmp_path):
    grokked = seed(250, "running", 1.0, grok_step=250)
    report(run, 0, grokked, seed(250))
    report(run, 1, seed(250, "censored"), seed(250, "censored"))
    assert run.snapshot().holding == {}, "another one trains"
    report(run, 0, grokked, seed(250, "censored"))
    snapshot = run.snapshot()
    (hold,) = {c.recipe.hold for t in run.planner.running.values() for c in t.configurations}
    assert snapshot.holding == {"1": hold}
    file = tmp_path / "shown"
    with file.open("w") as out, Display(Console(file=out)) as display:
        display.show(snapshot)
    assert f"waits for seed 1 to hold for {hold:,} steps" in file.read_text()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_display_shows_a_snapshot(terminal, run, tmp_path):
    report(run, 0, seed(10, exact=0.25), seed(10))
    file = tmp_path / "shown"
    with file.open("w") as out, Display(Console(file=out, force_terminal=terminal, width=100)) as display:
        assert display.due()
        display.show(run.snapshot())
        assert not display.due()
    for words in ("2 training", "0.2500", "seed-steps/s", "0:00"):
        assert words in file.read_text()
