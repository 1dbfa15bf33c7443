"""Rounds are cut into trials; those that can share a bank together; and what was interrupted goes on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from model import preset
from search.errors import UserError
from search.run.estimate import estimate
from search.run.gpu_cost import BY_MPS, CARDS, H100, SPEEDS, describe_cards, measured_name, speed_of
from search.run.packing import Capacity, TrialShapes, placement, placement_of
from search.store.home import Home
from search.study.file import parse_study
from search.study.resources import Resources
from search.study.trial import Configuration
from tests.planners import SWEEP, drain, numbers, planner_of, rows_of
from trainer import Outcome
from trainer.engine.cuda.driver import Gpu


def shape(study, concurrent, gpu=0.0):
    return TrialShapes(study).of(Configuration(*study.listed[0]).program, Capacity(concurrent, gpu))


EXPERIMENT = Path(__file__).parents[2] / "lab" / "2026-11-26-gpu"
A100 = Gpu("NVIDIA A100-SXM4-40GB", "sm_80", 108, 163 << 10, 1_410, "CUDA 13.0")
MANY = SWEEP.replace("count: 5", "count: 70").replace("resources: {seeds_per_trial: 2}\n", "")


@pytest.mark.parametrize(
    ("seeds", "concurrent", "size"),
    [(17, 1, 17), (17, 2, 9), (200, 2, 64), (3, 8, 1), (5, 0, 5)],
)
def test_a_round_is_spread_over_the_trials_that_fit(seeds, concurrent, size):
    study = parse_study(MANY.replace("count: 70", f"count: {seeds}"), "test")
    assert shape(study, concurrent) == (size, min(size, 16))


def test_a_gpus_trial_has_a_wave_of_slots(monkeypatch):
    text = MANY.replace("count: 70", "count: 10000")
    study = parse_study(text, "test")
    assert shape(study, 1, gpu=1) == (4_224, 1_056)
    assert shape(study, 4, gpu=1) == (2_500, 1_056)
    assert shape(study, 4, gpu=0.25) == (1_056, 264)
    assert shape(parse_study(text.replace("57p", "170p"), "test"), 1, gpu=1) == (2_112, 528)
    monkeypatch.setattr("search.run.gpu_cost.gpus", lambda: ((A100,), ""))
    assert shape(study, 1, gpu=1) == (2_592, 648)
    asked = parse_study(text + "resources: {slots: 32}\n", "test")
    assert shape(asked, 1, gpu=1) == (128, 32)


WAVES = {"57p": 1_056, "54p": 1_056, "100p": 1_056, "170p": 528, "242p": 264, "262p": 528, "62p": 264}


def test_the_model_of_speed_is_what_was_measured():
    cores = json.loads((EXPERIMENT / "cores.json").read_text())
    for name, file in (("H200", "gpu.json"), ("H100", "gpu-h100.json")):
        measured = json.loads((EXPERIMENT / file).read_text())
        rates = {"57p": measured["speed"]["seed_steps_per_s"]["1056"]}
        rates |= {name: part["seed_steps_per_s"] for name, part in measured["shapes"].items() if name in WAVES}
        gpu = replace(H100, name=measured["card"]["device"])
        assert measured_name(gpu) == name
        for speed in SPEEDS:
            assert speed.wave_rate(gpu) == pytest.approx(rates[speed.preset], rel=0.001)
    for speed in SPEEDS:
        assert speed.wave == WAVES[speed.preset] and speed.core == cores[speed.preset]
        assert speed.gpu_rate(speed.wave) == pytest.approx(rates[speed.preset], rel=0.001)
    quarters, whole = (measured["quarters"][n] for n in ("four_processes_by_mps", "one_process"))
    assert pytest.approx(quarters / whole, abs=0.01) == BY_MPS
    speed = speed_of(preset("57p"))
    assert speed.gpu_rate(1_057) < 0.51 * speed.gpu_rate(1_056), "two waves for one seed more"


@pytest.mark.parametrize(
    ("card", "share"),
    [
        ("T4", 80 / 1_056 * 1_590 / 1_980),  # 40 processors, each with one block of two seeds
        ("L4", 116 / 1_056 * 2_040 / 1_980),
        ("A100", 648 / 1_056 * 1_410 / 1_980),
        ("RTX 3090", 164 / 1_056 * 1_695 / 1_980),
        ("RTX 4090", 256 / 1_056 * 2_520 / 1_980),
        ("RTX 5090", 340 / 1_056 * 2_407 / 1_980),
    ],
)
def test_a_gpu_that_was_not_measured_is_expected_to_be_as_fast_as_its_wave_and_clock(card, share):
    speed, gpu = speed_of(preset("57p")), next(gpu for gpu in CARDS if gpu.name == card)
    assert measured_name(gpu) == ""
    assert speed.wave_rate(gpu) == pytest.approx(share * speed.wave_rate(H100))


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        (replace(H100, name="NVIDIA H100 80GB HBM3"), "H100"),
        (replace(H100, name="NVIDIA H200"), "H200"),
        (replace(H100, name="NVIDIA H100 PCIe", processors=114), ""),
        (replace(H100, name="NVIDIA GH200 480GB", processors=144), ""),
        (A100, ""),
    ],
)
def test_a_gpu_of_fewer_processors_was_not_measured(gpu, name):
    assert measured_name(gpu) == name


def test_what_every_gpu_is_expected_to_do_is_said_once_and_which_were_measured():
    measured, expected = describe_cards(speed_of(preset("57p")))
    assert measured == "seed-steps/s of 57p (seeds at once), measured: H100 3,810,000 (1,056), H200 3,820,000 (1,056)"
    said, cards = expected.split(": ")
    assert said == "expected by processors and clock, not measured"
    names = {gpu.name for gpu in CARDS} - {"H100", "H200"}
    assert all(f"{name} " in cards and f"{name} " not in measured for name in names)


def test_a_spec_is_as_fast_as_the_measured_one_most_like_it():
    alike = {"46p": "54p", "67p": "57p", "187p": "170p", "456p": "262p", "122p": "62p"}
    assert {name: speed_of(preset(name)).preset for name in alike} == alike


ATLAS = """
name: atlas
model: 57p
combine: [shared_norm, rank1_out, tie_vo, frozen_spiral, tie_fc2_head, no_eos]
seeds: {first: 1, count: 32}
"""


@pytest.mark.parametrize(
    ("text", "node", "by_mps", "gpu", "side"),
    [
        (ATLAS, (16, 1), True, 0.0625, 16),  # a bank a core
        (ATLAS, (12, 1), True, 0.0833, 12),
        (ATLAS, (64, 1), True, 0.0312, 32),  # MPS serves 48
        (ATLAS, (16, 4), True, 0.25, 16),
        (ATLAS, (16, 1), False, 0.0, 16),  # one after another would be slower than 16 cores
        (ATLAS, (2, 1), False, 1.0, 1),
        (ATLAS + "resources: {cpu: 0.25}\n", (2, 1), True, 0.125, 8),
        (ATLAS.replace("count: 32", "count: 300"), (16, 1), True, 0.3333, 3),  # so many waves
        (ATLAS.replace("count: 32", "count: 600"), (16, 1), True, 1.0, 1),
        (ATLAS.replace("count: 32", "count: 8"), (16, 1), True, 0.0, 16),
        (MANY, (8, 1), True, 1.0, 1),  # one program
        (MANY, (16, 1), True, 0.0, 16),  # few seeds
        (MANY + "resources: {gpu: 1}\n", (16, 1), True, 1.0, 1),  # unless it is asked for
    ],
)
def test_banks_of_few_seeds_share_a_gpu_where_they_train_side_by_side(text, node, by_mps, gpu, side):
    study, node = parse_study(text, "test"), {"CPU": float(node[0]), "GPU": float(node[1])}
    share, fits = placement_of(study, node, by_mps=by_mps)
    assert (share["gpu"], fits) == (gpu, Capacity(side, gpu))
    if 0 < gpu < 1:
        size, slots = shape(study, side, gpu)
        assert size == slots == study.seeds.count, "a bank has all seeds of its program at once"


@pytest.mark.parametrize(
    ("asked", "nodes", "share", "fits"),
    [
        ({"cpu": 1, "gpu": 0.25}, [{"CPU": 8.0, "GPU": 1.0}], {"cpu": 1, "gpu": 0.25}, Capacity(4, 0.25)),
        ({"cpu": 1, "gpu": 0.25}, [{"CPU": 3.0, "GPU": 1.0}], {"cpu": 1, "gpu": 0.25}, Capacity(3, 0.25)),
        ({"cpu": 2, "gpu": 0}, [{"CPU": 5.0, "GPU": 1.0}], {"cpu": 2, "gpu": 0.0}, Capacity(2)),
        ({"cpu": 1}, [{"CPU": 4.0, "GPU": 2.0}], {"cpu": 1, "gpu": 1.0}, Capacity(2, 1.0)),
        ({"cpu": 1}, [{"CPU": 4.0}], {"cpu": 1, "gpu": 0.0}, Capacity(4)),
        ({"cpu": 2, "gpu": 0}, [{"CPU": 3.0}, {"CPU": 3.0}], {}, Capacity(2)),  # and not three
        ({"cpu": 1}, [{"CPU": 0.0}, {"CPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}], {"gpu": 1.0}, Capacity(2, 1.0)),
        (
            {"gpu": 0.5, "accelerator_type": "H200"},
            [{"CPU": 8.0, "GPU": 1.0, "accelerator_type:H200": 1.0}, {"CPU": 8.0, "GPU": 4.0}],
            {"accelerator_type:H200": 0.001},
            Capacity(2, 0.5),
        ),
        ({"cpu": 0.1, "gpu": 0.1}, [{"CPU": 16.0, "GPU": 1.0}], {}, Capacity(10, 0.1)),
        ({"cpu": 0.25, "gpu": 0}, [{"CPU": 2.0}], {}, Capacity(8)),
    ],
)
def test_as_many_trials_fit_as_have_their_share_on_one_node_of_the_kind_that_is_asked_for(asked, nodes, share, fits):
    found, capacity = placement(Resources(**asked), *nodes)
    assert capacity == fits and found.items() >= share.items()
    assert ("accelerator_type:H200" in found) == ("accelerator_type" in asked)


@pytest.mark.parametrize(
    ("asked", "nodes", "says"),
    [
        ({"cpu": 4, "gpu": 0}, [{"CPU": 3.0}, {"CPU": 3.0}], "resources.cpu: a bank asks for 4, there are 3 on"),
        ({"accelerator_type": "H200"}, [{"CPU": 3.0, "GPU": 1.0}], "resources.accelerator_type: no node has H200"),
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


@pytest.mark.parametrize("ended", [[0, 2], [1, 2, 3], []])
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


@pytest.mark.parametrize("change", ["stop: {hopeless: off}", "resources: {slots: 8}", "recipe: {steps: 2000}"])
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


WIDE = MANY.replace("57p", "170p")
UNLIKE = MANY.replace("model: 57p", "configurations: [{model: 57p}, {model: 170p}]").replace("count: 70", "count: 16")


@pytest.mark.parametrize(
    ("text", "resources", "there", "says"),
    [
        (ATLAS, "{}", True, ["on the GPU, 16 banks side by side by MPS", "as measured of 57p and 54p on an H100"]),
        (ATLAS, "{}", False, ["a GPU is faster from 77 seeds of one program on", "on a core of a busy Xeon"]),
        (ATLAS, "{gpu: 0.25}", False, ["on the GPU, 4 banks in turns"]),
        (WIDE, "{gpu: 1}", True, ["below 272 seeds of one program 16 cores", "as measured of 170p on an H100"]),
        (WIDE, "{gpu: 0}", True, ["5,681 seed-steps/s a bank (as measured of 170p on a core of a busy Xeon)"]),
        (UNLIKE, "{gpu: 0}", True, ["8,557 seed-steps/s a bank (as measured of 57p and 170p on a core of a busy"]),
        (MANY, "{gpu: 0, compiled: false}", True, ["at 100 seed-steps/s a bank (a guess until"]),
    ],
)
def test_a_plan_says_what_it_went_by(text, resources, there, says, monkeypatch, tmp_path):
    monkeypatch.setattr("search.run.mps.is_available", lambda: there)
    for module in ("packing", "estimate"):
        monkeypatch.setattr(f"search.run.{module}.local_resources", lambda: {"CPU": 16.0, "GPU": 1.0})
    plan = estimate(parse_study(f"{text}resources: {resources}\n", "test"), Home(tmp_path / "runs"))
    assert [words for words in says if words not in plan] == [], plan
    may_use_gpu = "gpu: 0," not in resources and "gpu: 0}" not in resources
    assert ("seed-steps/s of " in plan) == ("not measured: T4 " in plan) == may_use_gpu


def test_a_plan_for_a_gpu_that_was_not_measured_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("search.run.gpu_cost.gpus", lambda: ((A100,), ""))
    for module in ("packing", "estimate"):
        monkeypatch.setattr(f"search.run.{module}.local_resources", lambda: {"CPU": 4.0, "GPU": 1.0})
    plan = estimate(parse_study(MANY.replace("count: 70", "count: 1000"), "test"), Home(tmp_path / "runs"))
    assert "expected of 57p on NVIDIA A100-SXM4-40GB by an H100's speed, not measured" in plan, plan
    rate = 1_056 / 277.0e-6 * 648 / 1_056 * 1_410 / 1_980
    assert f"{rate:,.0f} seed-steps/s a bank" in plan, plan
