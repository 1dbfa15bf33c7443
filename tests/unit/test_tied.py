"""A tied spec: ties as data over any family, and everything that reads specs reads it."""

import json
import pickle

import pytest
import torch

from model import make_spec, preset, verify
from model.tied import Tied, constrained, free, project, selection_matrix, shared, tie, zeroed
from search.study.trial import Configuration
from tests import CERTIFICATES
from tests.commands import call, done, refusal
from tests.specs import some_theta, some_tokens
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.step import step

WORDS = ["form[0,2] = 0", "form[1,0] = -form[0,1]", "norm[0,1] = norm[0,0]", "fc1[0,3] = -equals[1]"]
BASES = {
    "46p": WORDS,
    "54p": ["fc1[0,0] = -fc1[1,1]", "head[0,4] = 0"],
    "133p": ["fc1[0,0] = fc1[1,1]"],
    "456p": ["tokens[0,0] = -tokens[3,1]"],
    "62p": ["q[0,0] = -q[1,1]"],
}
every_base = pytest.mark.parametrize("name", BASES)


def tied(name="46p"):
    base = preset(name)
    return Tied(base=base, ties=constrained(base, BASES[name]))


# What ties are


def test_constraints_in_words_and_back():
    base = preset("46p")
    spec = Tied(base=base, ties=constrained(base, WORDS))
    assert spec.params == 42
    assert Tied(base=base, ties=constrained(base, spec.spelt())) == spec
    assert set(spec.spelt()) >= {"form[0,2] = 0", "form[1,0] = -form[0,1]", "norm[0,1] = norm[0,0]"}


def test_what_two_sets_share_holds_in_both_and_nothing_else():
    """Entry by entry: tied in what is shared where both tie them so, and only there."""
    base = preset("46p")
    one = constrained(base, ["form[0,2] = 0", "form[1,1] = form[0,0]", "fc1[1,0] = -fc1[0,0]", "arc[1] = 0"])
    other = constrained(base, ["form[1,1] = form[0,0]", "fc1[1,0] = fc1[0,0]", "arc[1] = 0", "arc[2] = form[0,0]"])
    both = shared(one, other)
    assert both == constrained(base, ["form[1,1] = form[0,0]", "arc[1] = 0"])
    assert shared(one, one) == one and shared(one, free(46)) == free(46) == shared(free(46), other)
    assert shared(one, constrained(base, ["form[1,2] = 0"], one)) == one


def test_numbers_are_those_of_the_nearest_theta_that_keeps_the_ties(monkeypatch):
    spec = tied()
    theta, matrix = some_theta(spec.base, 2), selection_matrix(spec.ties).float()
    numbers = project(spec.ties, theta)
    assert torch.allclose(spec.untie(numbers), theta @ torch.linalg.pinv(matrix) @ matrix, atol=1e-6)
    assert torch.equal(project(spec.ties, spec.untie(numbers)), numbers)
    monkeypatch.setattr("model.tied.MOST_PRODUCTS", 1)
    assert torch.equal(project(spec.ties, theta), numbers), "one at a time"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["form[0,3] = 0"], "form[0,3] is no number of this model"),
        (["form[0,0] = form[0,1]", "form[0,0] = -form[0,1]"], "contradicts another tie"),
        ([f"norm[0,{n}] = 0" for n in range(5)], "nothing but zeros in norm"),
    ],
)
def test_ties_that_cannot_be(words, says):
    assert says in refusal(ValueError, make_spec, "tied", base=preset("46p").as_dict(), ties=words)


def test_a_tied_base_is_refused_before_it_is_made():
    """A stranger's may have bases in bases, deeper than Python calls."""
    values = tied().as_dict()
    for _ in range(600):
        values = {"family": "tied", "base": values, "ties": []}
    assert refusal(ValueError, make_spec, **values) == "base must be a spec that is not tied itself"


# It is a spec like any other


@every_base
def test_it_goes_through_plain_values_and_keys(name):
    spec = tied(name)
    again = make_spec(**json.loads(json.dumps(spec.as_dict())))
    assert again == spec == pickle.loads(pickle.dumps(spec)) and hash(again) == hash(spec)
    recipe = Recipe()
    keys = {Configuration(s, recipe).key for s in (spec, spec.base, tie(spec, zeroed(spec.ties, 0)))}
    assert len(keys) == 3 and Configuration(make_spec(**spec.as_dict()), recipe).key in keys


@every_base
def test_it_is_its_base_on_theta_spread(name):
    spec = tied(name)
    assert spec.params == spec.layout.size == spec.base.params - len(BASES[name])
    for fact in ("vocabulary", "decoded", "answers", "prompt"):
        assert getattr(spec, fact) == getattr(spec.base, fact)
    theta, tokens = some_theta(spec, 2), some_tokens(spec, 2)
    assert torch.equal(step.loss(spec, theta, tokens), step.loss(spec.base, spec.untie(theta), tokens))
    assert torch.equal(spec.initial(3), project(spec.ties, spec.base.initial(3)[None])[0])


# Commands and files


def test_commands_read_it(here):
    spec, folder = tied(), here / "tied"
    theta = project(spec.ties, Checkpoint.load(CERTIFICATES / "46p").theta_P[None])[0]
    Checkpoint(spec, theta, seed={"init_seed": 800, "data_seed": 800}).save(folder)
    right = int(call("verify", folder).stdout.split(": ")[1].split("/")[0])
    assert right == verify(spec, theta).correct
    shown = call("models", folder).stdout
    assert "46p tied to 42" in shown and "form[0,2] = 0" in shown
    assert "43 numbers with ties inside tensors, 42 with ties across tensors, 43 with hard-wired" in shown
    untied = done("models", "46p")
    assert "46 with ties across tensors, 47 with hard-wired constants of trained tensors, 49 with all" in untied
    described = json.loads(call("models", folder, "--json").stdout)[0]
    assert described["params"] == 42 and "norm[0,1] = norm[0,0]" in described["ties"]
