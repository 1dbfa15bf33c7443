"""Rounds are cut into trials; those that can share a bank together; and what was interrupted goes on."""

import pytest

from search.errors import UserError
from search.run.gpu_cost import fewest_for_gpu, gpu_rate
from search.run.packing import Capacity, TrialShapes, placement, placement_of
from search.study.file import parse_study
from search.study.resources import Resources
from search.study.trial import Configuration
from tests.planners import SWEEP, drain, numbers, planner_of, rows_of
from trainer import Outcome
from trainer.engine.cuda.driver import Gpu


def shape(study, concurrent, on_gpu=False):
    return TrialShapes(study).of(Configuration(*study.listed[0]).program, Capacity(concurrent, on_gpu))


A100 = Gpu("A100", "sm_80", 108, 163 << 10, "")
MANY = SWEEP.replace("count: 5", "count: 70").replace("resources: {seeds_per_trial: 2}\n", "")


@pytest.mark.parametrize(
    ("seeds", "concurrent", "size"),
    [(16, 1, 16), (16, 2, 8), (17, 2, 9), (64, 2, 32), (200, 2, 64), (3, 8, 1), (1, 1, 1), (5, 0, 5)],
)
def test_a_round_is_spread_over_the_trials_that_fit(seeds, concurrent, size):
    study = parse_study(MANY.replace("count: 70", f"count: {seeds}"), "test")
    assert shape(study, concurrent) == (size, min(size, 16))


def test_a_gpus_trial_has_a_wave_of_slots(monkeypatch):
    text = MANY.replace("count: 70", "count: 10000")
    study = parse_study(text, "test")
    assert shape(study, 1, on_gpu=True) == (4_224, 1_056)
    assert shape(study, 4, on_gpu=True) == (2_500, 1_056)
    quarters = parse_study(text + "resources: {gpu: 0.25}\n", "test")
    assert shape(quarters, 4, on_gpu=True) == (1_056, 264)
    monkeypatch.setattr("search.study.resources.gpus", lambda: ((A100,), ""))
    assert shape(study, 1, on_gpu=True) == (2_592, 648)
    asked = parse_study(text + "resources: {slots: 32}\n", "test")
    assert shape(asked, 1, on_gpu=True) == (128, 32)


@pytest.mark.parametrize(
    ("asked", "there", "share", "fits"),
    [
        ({"cpu": 1, "gpu": 0.25}, {"CPU": 8.0, "GPU": 1.0}, {"cpu": 1, "gpu": 0.25}, Capacity(4, True)),
        ({"cpu": 1, "gpu": 0.25}, {"CPU": 3.0, "GPU": 1.0}, {"cpu": 1, "gpu": 0.25}, Capacity(3, True)),
        ({"cpu": 2, "gpu": 0}, {"CPU": 5.0, "GPU": 1.0}, {"cpu": 2, "gpu": 0.0}, Capacity(2)),
        ({"cpu": 1}, {"CPU": 4.0, "GPU": 2.0}, {"cpu": 1, "gpu": 1.0}, Capacity(2, True)),
        ({"cpu": 1}, {"CPU": 4.0}, {"cpu": 1, "gpu": 0.0}, Capacity(4)),
    ],
)
def test_as_many_trials_fit_as_have_their_share(asked, there, share, fits):
    assert placement(Resources(**asked), there) == (share, fits)


@pytest.mark.parametrize(("seeds", "cores", "on_gpu"), [(60, 16, False), (60, 8, True), (5_000, 64, True)])
def test_few_seeds_are_trained_on_cpus(seeds, cores, on_gpu):
    """Unless the study says that it wants a GPU."""
    text, node = MANY.replace("count: 70", f"count: {seeds}"), {"CPU": cores, "GPU": 1.0}
    assert placement_of(parse_study(text, "test"), node)[1].on_gpu == on_gpu
    assert placement_of(parse_study(text + "resources: {gpu: 1}\n", "test"), node)[1].on_gpu


def test_the_model_of_a_gpus_speed():
    assert (fewest_for_gpu(8), round(gpu_rate(1_056, 1_056) / 1e6, 2)) == (45, 3.81)
    assert gpu_rate(1_057, 1_056) < 0.51 * gpu_rate(1_056, 1_056), "two waves for one seed more"


@pytest.mark.parametrize(
    ("asked", "nodes", "fits"),
    [
        ({"cpu": 2, "gpu": 0}, [{"CPU": 3.0}, {"CPU": 3.0}], Capacity(2)),  # and not six halves
        ({"cpu": 1}, [{"CPU": 0.0}, {"CPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}], Capacity(2, True)),
        (
            {"gpu": 0.5, "accelerator_type": "H200"},
            [{"CPU": 8.0, "GPU": 1.0, "accelerator_type:H200": 1.0}, {"CPU": 8.0, "GPU": 4.0}],
            Capacity(2, True),
        ),
    ],
)
def test_a_trial_is_on_one_node_of_the_kind_that_is_asked_for(asked, nodes, fits):
    share, found = placement(Resources(**asked), *nodes)
    assert found == fits
    assert share.get("accelerator_type:H200", 0) == (0.001 if "accelerator_type" in asked else 0)


@pytest.mark.parametrize(
    ("asked", "nodes", "says"),
    [
        (
            {"cpu": 4, "gpu": 0},
            [{"CPU": 3.0}, {"CPU": 3.0}],
            "resources.cpu: a trial asks for 4, there are 3 on",
        ),
        (
            {"accelerator_type": "H200"},
            [{"CPU": 3.0, "GPU": 1.0}],
            "resources.accelerator_type: no node has H200",
        ),
        ({"cpu": 1}, [], "resources.cpu: a trial asks for 1, there are 0"),
        ({"cpu": 2, "gpu": 1}, [{"CPU": 2.0}, {"CPU": 1.0, "GPU": 1.0}], "no node has all"),
    ],
)
def test_why_nothing_fits_is_said(asked, nodes, says):
    with pytest.raises(UserError) as refused:
        placement(Resources(**asked), *nodes)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("resources", "ahead", "sizes", "slots"),
    [
        ("{}", 1, [64, 6], 16),
        ("{}", 2, [18, 18, 18, 16], 16),
        ("{}", 8, [9, 9, 9, 9, 9, 9, 9, 7], 9),
        ("{slots: 40}", 2, [35, 35], 35),
        ("{slots: 4, seeds_per_trial: 30}", 2, [18, 18, 18, 16], 4),
        ("{slots: 30, seeds_per_trial: 30}", 2, [30, 30, 10], 30),
    ],
)
def test_the_trials_of_a_round_have_equal_slots(resources, ahead, sizes, slots, home):
    planner = planner_of(MANY + f"resources: {resources}\n", home, ahead=ahead)
    trials = drain(planner)
    assert [len(t.work) for t in trials] == sizes
    assert {t.slots for t in trials} == {slots}
    assert [n for trial in numbers(trials) for n in trial] == list(range(1, 71)), "in order"


@pytest.mark.parametrize("ended", [[0], [1], [3], [0, 2], [1, 2, 3], []])
def test_after_an_interruption_the_trials_that_are_left_are_the_same(ended, home):
    trials = drain(planner_of(MANY, home, ahead=4))
    rows = [r for i, t in enumerate(trials) for r in rows_of(t, Outcome.FAILED if i in ended else "censored")]
    for trial in trials:
        trial.write(home.trial(trial.study, trial.key))
    again = drain(planner_of(MANY, home, rows, ahead=4))
    left = [t for i, t in enumerate(trials) if i not in ended]
    assert again == left and [t.key for t in again] == [t.key for t in left]


def test_a_trials_key_is_that_of_its_pairs_and_slots(home):
    def key(text):
        return planner_of(text, home, ahead=1).next().key

    assert key(SWEEP) == key(SWEEP + "stop: {hopeless: off}\n"), "a resumed trial may change it"
    assert key(SWEEP) == key(SWEEP.replace("{seeds_per_trial: 2}", "{seeds_per_trial: 2, save_every: 1}"))
    assert key(SWEEP) != key(SWEEP.replace("{seeds_per_trial: 2}", "{seeds_per_trial: 2, slots: 1}"))
    assert key(SWEEP) != key(SWEEP.replace("first: 1", "first: 2"))


TWO = """
name: two
configurations:
  - {model: 57p}
  - {model: 67p}
  - {model: 57p, recipe: {lr: 0.01}}
  - {model: 57p, recipe: {batch: 128}}
recipe: {steps: 1000}
seeds: {first: 1, count: 3}
"""


def test_configurations_of_one_program_share_a_trial(home):
    trials = drain(planner_of(TWO, home, ahead=1))
    sizes = [[c.spec.params for c in t.configurations] for t in trials]
    assert sizes == [[57, 57], [67], [57]] and numbers(trials) == [[1, 2, 3, 1, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert all(t.slots == len(t.work) for t in trials)
    assert trials[2].configurations[0].recipe.batch == 128, "another batch is another program"


CHANGES = ["stop: {hopeless: off}", "resources: {slots: 8}", "recipe: {steps: 2000}"]


@pytest.mark.parametrize("change", CHANGES)
def test_an_interrupted_trial_goes_on_only_as_what_it_was(change, home):
    """After a change of its rule, its slots or its recipe the seeds are planned anew."""
    trials = drain(planner_of(MANY, home, ahead=1))
    trials[0].write(home.trial("sweep", trials[0].key))
    rows = rows_of(trials[0], Outcome.CENSORED)
    assert drain(planner_of(MANY, home, rows, ahead=1))[0] == trials[0]
    text = MANY.replace("recipe: {steps: 1000}\n", "") if change.startswith("recipe") else MANY
    found = drain(planner_of(text + change + "\n", home, rows, ahead=1))
    assert trials[0] not in found and sum(len(t.work) for t in found) == 70


def test_what_was_begun_on_a_gpu_goes_on_without_one(home):
    trial = drain(planner_of(MANY + "resources: {gpu: 0.25}\n", home, ahead=1))[0]
    trial.write(home.trial("sweep", trial.key))
    rows = rows_of(trial, Outcome.CENSORED)
    for text in (MANY, MANY + "resources: {gpu: 0, cpu: 2}\n"):
        after = drain(planner_of(text, home, rows, ahead=4))[0]
        assert (after.key, after.work, after.slots) == (trial.key, trial.work, trial.slots)
        assert after.resources == parse_study(text, "test").resources
