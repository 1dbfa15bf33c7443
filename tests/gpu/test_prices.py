"""What GPUs are expected to do, and how many seeds and banks they get by it."""

import json
from dataclasses import replace

import pytest

from gpu.driver import Gpu
from gpu.prices import BY_MPS, CARDS, H100, SPEEDS, describe_cards, measured_name, price
from model import preset
from search.run.estimate import estimate
from search.run.packing import Capacity, placement_of
from search.run.speeds import CORES
from search.store.home import Home
from search.study.file import parse_study
from tests import ROOT
from tests.unit.test_packing import MANY, WIDE, slots

EXPERIMENT = ROOT / "lab" / "2026-11-26-gpu"
A100 = Gpu("NVIDIA A100-SXM4-40GB", "sm_80", 108, 163 << 10, 1_410, "CUDA 13.0")


@pytest.fixture
def a100(monkeypatch):
    """The GPU that is here."""
    return lambda: monkeypatch.setattr("gpu.prices.gpus", lambda: ((A100,), ""))


def test_a_gpus_bank_has_a_wave_of_slots(a100):
    text = MANY.replace("count: 70", "count: 10000")
    study = parse_study(text, "test")
    assert slots(study, 1, gpu=1) == 1_056
    assert slots(study, 4, gpu=1) == 1_056
    assert slots(study, 4, gpu=0.25) == 264
    assert slots(parse_study(text.replace("57p", "170p"), "test"), 1, gpu=1) == 528
    a100()
    assert slots(study, 1, gpu=1) == 648
    asked = parse_study(text + "resources: {slots: 32}\n", "test")
    assert slots(asked, 1, gpu=1) == 32


WAVES = {"57p": 1_056, "54p": 1_056, "100p": 1_056, "170p": 528, "242p": 264, "262p": 528, "62p": 264}


def test_the_model_of_speed_is_what_was_measured():
    for name, file in (("H200", "gpu.json"), ("H100", "gpu-h100.json")):
        measured = json.loads((EXPERIMENT / file).read_text())
        rates = {"57p": measured["speed"]["seed_steps_per_s"]["1056"]}
        rates |= {name: part["seed_steps_per_s"] for name, part in measured["shapes"].items() if name in WAVES}
        gpu = replace(H100, name=measured["card"]["device"])
        assert measured_name(gpu) == name
        for of, speed in SPEEDS.items():
            assert speed.wave_rate(gpu) == pytest.approx(rates[of], rel=0.001)
    for of in SPEEDS:
        expected = price(preset(of))
        assert (expected.preset, expected.wave) == (of, WAVES[of])
        assert expected.rate(expected.wave) == pytest.approx(rates[of], rel=0.001)
    assert SPEEDS.keys() == CORES.keys(), "a core's plan and a GPU's go by one preset"
    quarters, whole = (measured["quarters"][n] for n in ("four_processes_by_mps", "one_process"))
    assert pytest.approx(quarters / whole, abs=0.01) == BY_MPS
    expected = price(preset("57p"))
    assert expected.rate(1_057) < 0.51 * expected.rate(1_056), "two waves for one seed more"


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
    speed, gpu = SPEEDS["57p"], next(gpu for gpu in CARDS if gpu.name == card)
    assert measured_name(gpu) == ""
    assert speed.wave_rate(gpu) == pytest.approx(share * speed.wave_rate(H100))


@pytest.mark.parametrize(("name", "processors"), [("NVIDIA H100 PCIe", 114), ("NVIDIA GH200 480GB", 144)])
def test_a_gpu_of_other_processors_was_not_measured(name, processors):
    assert measured_name(replace(H100, name=name, processors=processors)) == ""


def test_what_every_gpu_is_expected_to_do_is_said_once_and_which_were_measured():
    measured, expected = describe_cards("57p")
    assert measured == "seed-steps/s of 57p (seeds at once), measured: H100 3,810,000 (1,056), H200 3,820,000 (1,056)"
    said, cards = expected.split(": ")
    assert said == "expected by processors and clock, not measured"
    names = {gpu.name for gpu in CARDS} - {"H100", "H200"}
    assert all(f"{name} " in cards and f"{name} " not in measured for name in names)


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
    share, fits = placement_of(study, node, side_by_side=by_mps)
    assert (share["GPU"], fits) == (gpu, Capacity(side, gpu))
    if 0 < gpu < 1:
        assert slots(study, side, gpu) == study.seeds.count, "a bank has all seeds of its program at once"


@pytest.mark.parametrize(
    ("text", "resources", "there", "says"),
    [
        (ATLAS, "{}", True, ["on the GPU, 16 banks side by side by MPS", "as measured of 57p and 54p on an H100"]),
        (ATLAS, "{}", False, ["a GPU is faster from 77 seeds of one program on", "on a core of a busy Xeon"]),
        (ATLAS, "{gpu: 0.25}", False, ["on the GPU, 4 banks in turns"]),
        (WIDE, "{gpu: 1}", True, ["below 272 seeds of one program 16 cores", "as measured of 170p on an H100"]),
    ],
)
def test_a_plan_of_a_machine_with_a_gpu_says_what_it_went_by(text, resources, there, says, monkeypatch, tmp_path):
    monkeypatch.setattr("gpu.mps.is_available", lambda: there)
    for module in ("packing", "estimate"):
        monkeypatch.setattr(f"search.run.{module}.local_resources", lambda: {"CPU": 16.0, "GPU": 1.0})
    plan = estimate(parse_study(f"{text}resources: {resources}\n", "test"), Home(tmp_path / "runs"))
    assert [words for words in says if words not in plan] == [], plan
    assert "seed-steps/s of " in plan and "not measured: T4 " in plan


def test_a_plan_for_a_gpu_that_was_not_measured_says_so(a100, monkeypatch, tmp_path):
    a100()
    for module in ("packing", "estimate"):
        monkeypatch.setattr(f"search.run.{module}.local_resources", lambda: {"CPU": 4.0, "GPU": 1.0})
    plan = estimate(parse_study(MANY.replace("count: 70", "count: 1000"), "test"), Home(tmp_path / "runs"))
    assert "expected of 57p on NVIDIA A100-SXM4-40GB by an H100's speed, not measured" in plan, plan
    rate = 1_056 / 277.0e-6 * 648 / 1_056 * 1_410 / 1_980
    assert f"{rate:,.0f} seed-steps/s a bank" in plan, plan
