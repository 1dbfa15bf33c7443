"""How many seeds share a bank, what fits on a machine, and what was interrupted goes on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from model import preset
from search.errors import UserError
from search.run.estimate import estimate
from search.run.gpu_cost import BY_MPS, CARDS, H100, SPEEDS, describe_cards, measured_name, speed_of
from search.run.packing import BankShapes, Capacity, placement, placement_of
from search.store.home import Home
from search.study.file import parse_study
from search.study.resources import Resources
from search.study.trial import Configuration
from tests.planners import SWEEP, finish, numbers, planner_of, row_of, taken
from trainer import Outcome, Recipe
from trainer.engine.cuda.driver import Gpu


def slots(study, concurrent, gpu=0.0):
    return BankShapes(study).slots_of(Configuration(*study.listed[0]).program, Capacity(concurrent, gpu))


EXPERIMENT = Path(__file__).parents[2] / "lab" / "2026-11-26-gpu"
A100 = Gpu("NVIDIA A100-SXM4-40GB", "sm_80", 108, 163 << 10, 1_410, "CUDA 13.0")
MANY = SWEEP.replace("count: 5", "count: 70").replace("resources: {slots: 2}\n", "")


@pytest.mark.parametrize(
    ("seeds", "concurrent", "size"),
    [(17, 1, 16), (17, 2, 9), (200, 2, 16), (3, 8, 1), (5, 0, 5)],
)
def test_a_round_is_spread_over_the_banks_that_fit(seeds, concurrent, size):
    study = parse_study(MANY.replace("count: 70", f"count: {seeds}"), "test")
    assert slots(study, concurrent) == size


def test_a_gpus_bank_has_a_wave_of_slots(monkeypatch):
    text = MANY.replace("count: 70", "count: 10000")
    study = parse_study(text, "test")
    assert slots(study, 1, gpu=1) == 1_056
    assert slots(study, 4, gpu=1) == 1_056
    assert slots(study, 4, gpu=0.25) == 264
    assert slots(parse_study(text.replace("57p", "170p"), "test"), 1, gpu=1) == 528
    monkeypatch.setattr("search.run.gpu_cost.gpus", lambda: ((A100,), ""))
    assert slots(study, 1, gpu=1) == 648
    asked = parse_study(text + "resources: {slots: 32}\n", "test")
    assert slots(asked, 1, gpu=1) == 32


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
    assert (share["GPU"], fits) == (gpu, Capacity(side, gpu))
    if 0 < gpu < 1:
        assert slots(study, side, gpu) == study.seeds.count, "a bank has all seeds of its program at once"


@pytest.mark.parametrize(
    ("asked", "nodes", "share", "fits"),
    [
        ({"cpu": 1, "gpu": 0.25}, [{"CPU": 8.0, "GPU": 1.0}], {"CPU": 1, "GPU": 0.25}, Capacity(4, 0.25)),
        ({"cpu": 1, "gpu": 0.25}, [{"CPU": 3.0, "GPU": 1.0}], {"CPU": 1, "GPU": 0.25}, Capacity(3, 0.25)),
        ({"cpu": 2, "gpu": 0}, [{"CPU": 5.0, "GPU": 1.0}], {"CPU": 2, "GPU": 0.0}, Capacity(2)),
        ({"cpu": 1}, [{"CPU": 4.0, "GPU": 2.0}], {"CPU": 1, "GPU": 1.0}, Capacity(2, 1.0)),
        ({"cpu": 1}, [{"CPU": 4.0}], {"CPU": 1, "GPU": 0.0}, Capacity(4)),
        ({"cpu": 2, "gpu": 0}, [{"CPU": 3.0}, {"CPU": 3.0}], {}, Capacity(2)),  # and not three
        ({"cpu": 1}, [{"CPU": 0.0}, {"CPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}], {"GPU": 1.0}, Capacity(2, 1.0)),
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
def test_as_many_workers_fit_as_have_their_share_on_one_node_of_the_kind_that_is_asked_for(asked, nodes, share, fits):
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


@pytest.mark.parametrize("ended", [[1, 30], [5, 6, 70], []])
@pytest.mark.parametrize("of", [MANY, MANY + "until: {grokked: 1, max_seeds: 90}\n"])
def test_after_an_interruption_what_was_begun_goes_first(ended, of, home):
    """And all that is left is trained."""
    planner = planner_of(of, home)
    begun = [*taken(planner, "a"), *taken(planner, "b")]
    rows = [row_of(p, Outcome.FAILED if p.seed.init_seed in ended else Outcome.CENSORED) for p in begun]
    again = planner_of(of, home, rows)
    left = [n for n in numbers(begun) if n not in ended]
    first = [*taken(again, "a"), *taken(again, "b")]
    assert sorted(numbers(first))[: len(left)] == sorted(left)[: len(first)]
    assert again.queued_seeds + len(first) >= 70 - len(set(ended) & set(numbers(begun)))


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


def test_configurations_of_one_program_share_a_bank(home):
    planner = planner_of(TWO, home, ahead=1)
    banks = finish(planner)[0]
    sizes = [list(dict.fromkeys(p.configuration.spec.params for p in pairs)) for pairs in banks]
    assert sizes == [[57], [67], [57]] and [numbers(b) for b in banks] == [[1, 2, 3, 1, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert banks[2][0].configuration.recipe.batch == 128, "another batch is another program"


def test_what_the_file_has_no_more_does_not_go_on(home):
    planner = planner_of(TWO, home, ahead=1)
    rows = [row_of(pair, Outcome.CENSORED) for pair in taken(planner)]
    fewer = TWO.replace("  - {model: 57p, recipe: {lr: 0.01}}\n", "").replace("count: 3", "count: 2")
    left = [(p.configuration.recipe.lr, p.seed.init_seed) for p in taken(planner_of(fewer, home, rows, ahead=1))]
    assert left == [(Recipe().lr, 1), (Recipe().lr, 2)]


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
