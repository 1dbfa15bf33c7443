"""Snapshots of a run, and how they are shown."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from search.run.messages import Report, Speed
from search.run.progress import Display, Progress
from search.run.snapshot import Snapshot, describe
from search.run.workers import COMPILING, TRAINING, Workers
from tests.planners import end, planner_of, row_of, taken
from trainer import Outcome

STUDY = "name: any\nmodel: 57p\nrecipe: {steps: 1000}\nseeds: {first: 1, count: 4}\n"
STUDY += "resources: {slots: 2}\n"


@pytest.fixture
def run(home):
    """A run of two workers with two seeds each; `report` takes what one says of its seeds."""
    planner = planner_of(STUDY + "until: {grokked: 1, max_seeds: 4}\n", home)
    workers = Workers(planner.study, planner)
    for name in (workers.add(), workers.add()):
        planner.take(name)
    return Progress(planner, workers)


def report(run, number, *seeds, rate=100.0, best_exact=0.0):
    """Steps of a worker's seeds; -1 for one that is perfect at step 250 and goes on."""
    worker = list(run.workers)[number]
    pairs = run.planner.banks[worker.name].pairs
    steps = {n: 250 if step < 0 else step for n, step in zip(pairs, seeds, strict=True)}
    perfect = [n for n, step in zip(pairs, seeds, strict=True) if step < 0]
    total = sum(steps.values())
    speed = Speed(rate, total, total / rate if rate else 0.0)
    said = Report(worker.name, 0, 1, steps=steps, perfect=perfect, speed=speed, best_exact=best_exact)
    run.workers.accept(said)
    worker.phase = TRAINING
    run.take(said)
    run.planner.update(worker.name, steps, perfect)


def ended(run, number, place, outcome):
    """A worker's seed has ended."""
    worker = list(run.workers)[number].name
    pair = list(run.planner.banks[worker].pairs.values())[place]
    end(run.planner, worker, [pair], [replace(row_of(pair, outcome), steps=pair.step)])


def test_a_snapshot_counts_seeds_and_time(run):
    before = run.snapshot()
    assert (before.running, before.seconds_left, before.compiling, before.seeds) == (0, None, False, (0, 4))
    assert describe(before)[0] == (
        "seeds 0 of up to 4, 4 waiting for their processes to start, 0 grokked, 0 not grokked"
    )
    next(iter(run.workers)).phase = COMPILING
    assert " 4, 4 compiling, 0 grokked" in describe(run.snapshot())[0]
    report(run, 0, 0, 0, rate=0.0)
    assert " 4, 2 training, 2 waiting, 0 grokked" in describe(run.snapshot())[0]
    assert describe(run.snapshot())[-1] == "0 s", "the first line says what they do"
    report(run, 0, 250, 250, rate=5.0, best_exact=1.0)
    report(run, 1, 500, 500, rate=5.0)
    ended(run, 1, 0, Outcome.DIVERGED)
    now = run.snapshot()
    assert (now.running, now.grokked, now.not_grokked, now.best_exact) == (3, 0, 1, 1.0)
    assert (now.seed_steps_per_s, now.compiling, now.seeds, now.is_open) == (10.0, False, (1, 4), True)
    assert now.seconds_left > 0
    key = next(iter(run.planner.study_run.states))
    assert run.steps() == {(key, 1, 1): 250, (key, 2, 2): 250, (key, 4, 4): 500}
    report(run, 0, -1, 250)
    assert run.snapshot().grokked == 1, "it has grokked as soon as it was perfect"


SNAPSHOT = Snapshot(
    configurations=(8, 26), seeds=(40, 208), running=16, grokked=5, not_grokked=35,
    best="fade 5,000, decay 0.014: 3 of 8", best_exact=1.0, seed_steps_per_s=9_000.0,
    seconds_left=3_720.0, compiling=False, elapsed_s=65.0,
)  # fmt: skip


def test_the_best_so_far_is_of_all_its_seeds_not_of_those_that_ended(home):
    planner = planner_of(STUDY + "configurations: [{recipe: {lr: 0.01}}, {recipe: {lr: 0.02}}]\n", home)
    progress = Progress(planner, Workers(planner.study, planner))
    pairs = taken(planner)
    end(planner, "a", pairs[:1], [row_of(pairs[0], Outcome.GROKKED)])
    assert progress.snapshot().best.endswith(": 1 of 4")


def test_a_confirmation_is_told_from_the_search(home):
    two = "configurations: [{recipe: {lr: 0.01}}, {recipe: {lr: 0.02}}]\n"
    planner = planner_of(STUDY + two + "confirm: {configurations: 1, seeds: {first: 101, count: 2}}\n", home, ahead=1)
    progress = Progress(planner, Workers(planner.study, planner))
    while not (pairs := taken(planner))[0].confirmation:
        assert progress.snapshot().confirming == 0
        end(planner, "a", pairs, [row_of(pair, Outcome.GROKKED) for pair in pairs])
    assert progress.snapshot().confirming == 1
    end(planner, "a", pairs, [row_of(pair, Outcome.FAILED) for pair in pairs])
    assert progress.snapshot().best.endswith(": 4 of 4"), "of the search's seeds alone"
    now = replace(SNAPSHOT, configurations=(3, 3), confirming=1, seeds=(48, 64))
    assert describe(now)[0].startswith("configurations 3 of 3, confirming 1 of them on fresh seeds, runs 48 of 64")


def test_what_a_study_says_before_it_trains_is_printed_as_it_is(capsys):
    kind = SimpleNamespace(goal="most [b]", warnings=lambda: [("too long", "stage [/wide]: 7,000")])
    Display(Console()).begin(SimpleNamespace(name="staged", about="why [wide]?", kind=kind))
    assert capsys.readouterr().out == "staged  why [wide]?\nsought: most [b]\ntoo long: stage [/wide]: 7,000\n"


def test_a_display_names_the_best_configuration_and_what_is_left():
    assert describe(SNAPSHOT) == [
        "configurations 8 of 26, runs 40 of 208, 16 training, 5 grokked, 35 not grokked",
        "best so far: fade 5,000, decay 0.014: 3 of 8 grokked",
        "1 min 5 s, 9,000 seed-steps/s, about 1 h 2 min left",
    ]
    holding = describe(replace(SNAPSHOT, grokked=7))[0]
    assert holding.endswith(" 7 grokked (2 of them still training, to hold), 35 not grokked"), "these have not ended"
    nothing = replace(SNAPSHOT, best="", grokked=0, best_exact=0.25)
    assert describe(nothing)[1] == "best exact match 0.2500"
