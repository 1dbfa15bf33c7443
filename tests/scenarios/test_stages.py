"""A study whose seeds go through stages: what is said of them, and a checkpoint that is trained again."""

import json

import pytest

from search.errors import UserError
from search.study.file import parse_study
from tests import CERTIFICATES
from tests.commands import call, done
from tests.scenarios.studies import STAGED, run
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.recipe.stages import end_of, road_of

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here", "nobody_spared")


def test_what_is_left_after_each_stage_is_said_and_a_seed_comes_out_again(here):
    said = run(STAGED, here)
    assert "left of 3 seeds: 3 after wide, 3 after two (9 tries), 0 after tied" in said.output
    assert "left of 3 seeds: 0 after wide" in said.output, "none is good enough there"
    home = ("--home", "home")
    seeds = json.loads(done("status", "staged", "--seeds", "--json", *home))["seeds"]
    through = next(seed for seed in seeds if len(json.loads(seed["stages"])) == 3)
    chosen = ("--configuration", through["configuration"], "--seed", through["init_seed"])
    done("pull", "staged", *chosen, "-o", "best", *home)
    again = call("rerun", "best", "--json")
    assert json.loads(again.output)["numbers_different"] == 0


def test_no_rule_ends_a_seed_that_goes_through_stages():
    """The rule for hopeless seeds is off, and the plan says so; what a file asks for is refused."""
    staged = json.dumps({name: value for name, value in STAGED.items() if name != "stop"})
    assert parse_study(staged, "x").kind.rules([]) == [
        ("Hopeless rule", "off: no rule ends a seed that goes through stages")
    ]
    screened = STAGED | {"stop": {"screen": {"at": 400, "keep": {"token": 0.3}}}}
    with pytest.raises(UserError, match=r"stop\.screen: no rule ends a seed that goes through stages"):
        parse_study(json.dumps(screened), "x")


@pytest.mark.parametrize("task", ["", "task: addition\n"])
def test_a_stage_goes_into_the_form_of_a_checkpoint(task):
    form = CERTIFICATES / "7p"
    stages = f"""
  stages:
    - {{name: "57", model: 57p}}
    - {{name: small, model: 46p, into: {{checkpoint: {form}}}, recipe: {{steps: 1000, ramp: 500}}}}
"""
    study = parse_study(f"name: s\n{task}model: {{checkpoint: {form}}}\nseeds: [1]\nrecipe:{stages}", "s.yaml")
    ((spec, recipe),) = study.listed
    assert spec == end_of(road_of(recipe)) == Checkpoint.load(form).spec
    with pytest.raises(UserError, match=r"s.yaml: recipe.stages\[1\].into.checkpoint: nowhere: no such file"):
        parse_study(f"name: s\nmodel: 57p\nseeds: [1]\nrecipe:{stages.replace(str(form), 'nowhere')}", "s.yaml")
