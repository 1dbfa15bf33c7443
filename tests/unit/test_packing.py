"""How many seeds share a bank, what fits on a machine, and what was interrupted goes on."""

import json

import pytest

from model import preset
from search.errors import UserError
from search.run.estimate import estimate
from search.run.packing import BankShapes, Capacity, placement
from search.run.speeds import CORES, measured_on_cores
from search.store.home import Home
from search.study.file import parse_study
from search.study.resources import Resources
from search.study.trial import Configuration
from tests import ROOT
from tests.commands import refusal
from tests.planners import SWEEP, numbers, planner_of, row_of, taken
from trainer import Outcome, Recipe


def slots(study, concurrent, gpu=0.0):
    return BankShapes(study).slots_of(Configuration(*study.listed[0]).program, Capacity(concurrent, gpu))


MANY = SWEEP.replace("count: 5", "count: 70").replace("resources: {slots: 2}\n", "")


@pytest.mark.parametrize(
    ("seeds", "concurrent", "size"),
    [(17, 1, 16), (17, 2, 9), (200, 2, 16), (3, 8, 1), (5, 0, 5)],
)
def test_a_round_is_spread_over_the_banks_that_fit(seeds, concurrent, size):
    study = parse_study(MANY.replace("count: 70", f"count: {seeds}"), "test")
    assert slots(study, concurrent) == size


@pytest.mark.parametrize(
    ("asked", "nodes", "share", "fits"),
    [
        ({"cpu": 1, "gpu": 0.25}, [{"CPU": 8.0, "GPU": 1.0}], {"CPU": 1, "GPU": 0.25}, Capacity(4, 0.25)),
        ({"cpu": 1, "gpu": 0.25}, [{"CPU": 3.0, "GPU": 1.0}], {"CPU": 1, "GPU": 0.25}, Capacity(3, 0.25)),
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
    assert says in refusal(UserError, placement, Resources(**asked), *nodes)


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


def test_what_the_file_has_no_more_does_not_go_on(home):
    planner = planner_of(TWO, home, ahead=1)
    rows = [row_of(pair, Outcome.CENSORED) for pair in taken(planner)]
    fewer = TWO.replace("  - {model: 57p, recipe: {lr: 0.01}}\n", "").replace("count: 3", "count: 2")
    left = [(p.configuration.recipe.lr, p.seed.init_seed) for p in taken(planner_of(fewer, home, rows, ahead=1))]
    assert left == [(Recipe().lr, 1), (Recipe().lr, 2)]


WIDE = MANY.replace("57p", "170p")
UNLIKE = MANY.replace("model: 57p", "configurations: [{model: 57p}, {model: 170p}]").replace("count: 70", "count: 16")


@pytest.mark.parametrize(
    ("text", "resources", "says"),
    [
        (WIDE, "{gpu: 0}", "5,681 seed-steps/s a bank (as measured of 170p on a core of a busy Xeon)"),
        (UNLIKE, "{gpu: 0}", "8,557 seed-steps/s a bank (as measured of 57p and 170p on a core of a busy"),
        (MANY, "{gpu: 0, compiled: false}", "at 100 seed-steps/s a bank (a guess until"),
    ],
)
def test_a_plan_says_what_it_went_by(text, resources, says, tmp_path):
    plan = estimate(parse_study(f"{text}resources: {resources}\n", "test"), Home(tmp_path / "runs"))
    assert says in plan and "seed-steps/s of " not in plan, "no GPU is wanted"


def test_a_spec_is_as_fast_as_the_measured_one_most_like_it():
    alike = {"46p": "54p", "67p": "57p", "187p": "170p", "456p": "262p", "122p": "62p"}
    assert {name: measured_on_cores(preset(name)) for name in alike} == alike


def test_the_model_of_a_cores_speed_is_what_was_measured():
    measured = ROOT / "lab" / "2026-11-26-gpu" / "cores.json"
    assert json.loads(measured.read_text()).items() >= CORES.items()
