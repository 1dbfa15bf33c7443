"""`start`: a study whose seeds begin at another's θ, chosen once, with what led to it in every record."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model import preset
from model.tied import Tied, constrained
from model.transfer import transfer
from search.errors import UserError
from search.study.ancestors import ancestors_of
from search.study.file import parse_study
from tests import CERTIFICATES
from tests.banks import finish
from tests.commands import call, done, refusal
from tests.commands import says as alike
from tests.homes import forget_places, quickly, records_of
from tests.in_process import without_ray
from tests.reference import client_of, rows_of, runs_of, write_study
from tests.scenarios.studies import SHORT, run
from tracking.shown import ANCESTOR_TAGS, TIED_TAG
from tracking.store import KEY_TAG, PARENT_TAG
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here")

RECIPE = SHORT["recipe"]
PARENT = SHORT | {"name": "parent", "seeds": [1, 2, 3]}
CHILD = SHORT | {"name": "child", "seeds": [7, 8]}
TIES = ["form[0,2] = 0", "norm[0,1] = norm[0,0]"]
TIED = {"model": {"base": "46p", "ties": TIES}, "recipe": RECIPE | {"ramp": 4}}


@pytest.fixture(scope="module")
def made(tmp_path_factory, few_selection_problems):
    """A home in which the parent study has run."""
    folder = tmp_path_factory.mktemp("parent")
    with without_ray(), quickly():
        done("run", write_study(folder, PARENT), "--home", folder / "home")
    return folder / "home"


@pytest.fixture
def parent(made, here):
    """That home, here."""
    forget_places()
    client_of(shutil.copytree(made, here / "home"))  # it is where it is now


def child_of(start, **changes):
    return CHILD | {"start": {"grokked": False, **start}} | changes


def configurations(name):
    return records_of("home", name).list_configurations()


def pulled(study, seed, target="pulled"):
    done("pull", study, "--seed", seed, "-o", target, "--home", "home")
    return Checkpoint.load(Path(target))


def trained(spec, recipe, seed, start, ties=None):
    pair = Pair(Recipe(**recipe), Seed.of(seed), start, ties)
    return finish(Bank(spec, [pair])).result(0)


def parents_theta(seed):
    return tuple(trained(preset("57p"), RECIPE, seed, None).theta_P.tolist())


def test_seeds_begin_at_the_theta_that_was_asked_for_and_say_so(here, parent):
    run(child_of({"study": "parent", "seed": 2}), here)
    (found,) = configurations("child").values()
    start = parents_theta(2)
    assert found.start.theta_of(Seed.of(7)) == start
    made = pulled("child", 8)
    assert torch.equal(made.theta_P, trained(preset("57p"), RECIPE, 8, start).theta_P)
    assert made.provenance["trained"] == "from a parent"
    assert made.provenance["start"]["theta"] == list(start)
    parent, own = ancestors_of(made)
    assert (parent["study"], parent["seed"], parent["model"]) == ("parent", "2", "57p")
    assert (own["study"], own["seed"], own["tied"], own["how"]) == ("child", "8", [], [])
    plain = parse_study(json.dumps(CHILD), "").listed
    assert found.key != replace(found, start=None).key and (found.spec, found.recipe) == plain[0]


def test_mlflow_has_the_parent_its_parent_and_the_ties(here, parent):
    run(child_of({"study": "parent", "seed": 2}), here)
    run(child_of({"study": "child", "seed": 7}, name="grandchild", **TIED), here)
    client = client_of(here / "home")
    first, second, third = (
        next(run for run in runs_of(client, name) if KEY_TAG in run.data.tags)
        for name in ("parent", "child", "grandchild")
    )
    tags, params = third.data.tags, third.data.params
    assert tags[ANCESTOR_TAGS[0]] == params["recipe.start"] == "child, seed 7 of 57p"
    assert tags[ANCESTOR_TAGS[1]] == "parent, seed 2 of 57p"
    assert tags[TIED_TAG] == params["model.ties"] == ", ".join(TIES)
    assert tags[PARENT_TAG] == second.info.run_id and second.data.tags[PARENT_TAG] == first.info.run_id


def test_the_best_are_chosen_once(here, parent):
    asked = child_of({"study": "parent", "best": 2})
    run(asked, here)
    before = configurations("child")
    assert len(before) == 2 and len(rows_of(here / "home", "child")) == 4
    run(PARENT | {"seeds": [1, 2, 3, 4, 5, 6, 9, 10]}, here)
    run(asked | {"seeds": [7, 8, 9]}, here)
    assert configurations("child") == before and len(rows_of(here / "home", "child")) == 6
    assert "nothing left to train" in run(asked | {"seeds": [7, 8, 9]}, here).stdout


def test_each_seed_may_go_on_from_its_own(here, parent):
    run(child_of({"study": "parent", "each": True}, seeds=[1, 3]), here)
    (found,) = configurations("child").values()
    for seed in (1, 3):
        start = parents_theta(seed)
        assert found.start.theta_of(Seed.of(seed)) == start
        wanted = trained(preset("57p"), RECIPE, seed, start)
        assert torch.equal(pulled("child", seed, f"own-{seed}").theta_P, wanted.theta_P)
    assert ancestors_of(Checkpoint.load(Path("own-3")))[0]["seed"] == "3"
    more = write_study(here, child_of({"study": "parent", "each": True}, seeds=[1, 2, 3]))
    (line,) = call("run", more, "--home", "home", code=2).stderr.splitlines()
    assert alike(line, f"error: {more}: study child: start.each: no θ is kept for seed 2: *"), line


def test_into_ties_by_a_ramp(here, parent):
    run(child_of({"study": "parent", "seed": 3}, **TIED), here)
    made = pulled("child", 7)
    base, ties = preset("46p"), constrained(preset("46p"), TIES)
    begun = tuple(transfer(preset("57p"), torch.tensor(parents_theta(3)), base).theta_Q.tolist())
    wanted = trained(base, TIED["recipe"], 7, begun, ties)
    assert made.spec == Tied(base=base, ties=ties) and made.theta_P.shape == (44,)
    assert torch.equal(made.spec.untie(made.theta_P[None])[0], wanted.theta_P)
    assert wanted.best_step >= 4, "before the ramp has ended nothing counts"
    own = ancestors_of(made)[-1]
    assert own["tied"] == TIES and own["how"][0].startswith("folded: ")
    done("rerun", "pulled")


def test_what_cannot_be_started_from_is_one_line(here, parent):
    Checkpoint(spec=preset("57p"), theta_P=preset("57p").initial(1)).save(Path("raw"))
    refused = {
        "start.study: a study cannot start from itself": {"study": "child"},
        "start.study: study 'paernt' has no records in *; did you mean parent?": {"study": "paernt"},
        "start: of study parent 1 seeds are asked for, 0 grokked": {"study": "parent"},
        "start: of study parent seed 9*": {"study": "parent", "seed": 9},
        "start: of study parent seed 2 has not grokked*": {"study": "parent", "seed": 2},
        "start.each: study parent has no θ of seed 7": {"study": "parent", "each": True},
        "start.checkpoint: nowhere: no such checkpoint": {"checkpoint": "nowhere"},
        "start.checkpoint: raw: has not grokked, 5,000 of *": {"checkpoint": "raw"},
        "start: a θ of family low_rank cannot become one of split_subspace": {"checkpoint": str(CERTIFICATES / "512p")},
    }
    for says, start in refused.items():
        file = write_study(here, CHILD | {"start": start})
        (line,) = call("run", file, "--home", "home", code=2).stderr.splitlines()
        assert alike(line, f"error: {file}: {says}"), line
    assert not rows_of(here / "home", "child")
    run(child_of({"study": "parent", "seed": 2}), here)
    (found,) = configurations("child").values()
    assert found.start.theta_of(Seed.of(7)) == parents_theta(2), "what was refused has left nothing"


def test_a_tied_model_is_spelt_by_a_checkpoint_or_a_file(here):
    Path("ties.yaml").write_text("- form[0,2] = 0\n- norm[0,1] = norm[0,0]\n")
    spec = Tied(base=preset("46p"), ties=constrained(preset("46p"), TIES))
    Checkpoint(spec=spec, theta_P=spec.initial(1)).save(Path("tied"))
    recipe = {"recipe": RECIPE | {"ramp": 4}}
    for model in ({"base": "46p", "ties": "ties.yaml"}, {"checkpoint": "tied"}, {"base": "46p", "ties": TIES}):
        study = parse_study(json.dumps(CHILD | recipe | {"model": model}), "x")
        assert study.listed[0][0] == spec
        again = type(study).model_validate_json(study.model_dump_json(by_alias=True))
        assert again.listed == study.listed, "what is recorded needs no file"
    entry = {"configurations": [{"model": {"checkpoint": "tied"}}]}
    assert parse_study(json.dumps(CHILD | recipe | entry), "x").listed[0][0] == spec
    for model, says in (
        ({"checkpoint": "nowhere"}, "model.checkpoint: nowhere: no such file"),
        ({"checkpoint": "ties.yaml"}, "model.checkpoint: ties.yaml: not a checkpoint, which has a spec"),
        ({"base": "46p", "ties": "nothing.yaml"}, "model.ties: nothing.yaml: no such file"),
    ):
        text = json.dumps(CHILD | recipe | {"model": model})
        assert refusal(UserError, parse_study, text, "x") == f"x: {says}"
