"""A study whose seeds go through stages: what is said of them, and a checkpoint that is trained again."""

import json

import pytest

from tests.commands import call, done
from tests.scenarios.studies import STAGED, run

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here", "nobody_spared")


def test_what_is_left_after_each_stage_is_said_and_a_seed_comes_out_again(here):
    said = run(STAGED, here)
    assert said.exit_code == 0, said.output
    assert "left of 3 seeds: 3 after wide, 3 after two (9 tries), 0 after tied" in said.output
    assert "left of 3 seeds: 0 after wide" in said.output, "none is good enough there"
    home = ("--home", "home")
    seeds = json.loads(done("status", "staged", "--seeds", "--json", *home))["seeds"]
    through = next(seed for seed in seeds if len(json.loads(seed["stages"])) == 3)
    chosen = ("--configuration", through["configuration"], "--seed", through["init_seed"])
    done("pull", "staged", *chosen, "-o", "best", *home)
    again = call("rerun", "best", "--json")
    assert json.loads(again.output)["numbers_different"] == 0
