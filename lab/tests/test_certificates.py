"""The notebook's checkpoints are what docs/results.md says of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from adders.proof import attention, columns
from adders.proof.file import decide
from lab.pages import maker
from lab.scripts.moved_form import rescaled, shared_entries
from lab.stages import EarlierStage
from model import preset, verify
from search.run.rerun import read_request, train_again
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint

FOLDERS = sorted(p.parent for p in (Path(__file__).parents[1] / "certificates").glob("*/checkpoint.json"))
OTHERS = sorted(p.parent for p in Path(__file__).parents[1].glob("2*/*/checkpoint.json"))
QUICK = ("34p-by-hand", "46p", "456p", "17p-inside")
ADDERS = [p for p in (*FOLDERS, *OTHERS) if (p / "verification.json").exists()]
BY_TIER = [pytest.param(f, id=f.name, marks=() if f.name in QUICK else pytest.mark.full) for f in ADDERS]
OF_OTHER_TASKS = [p for p in OTHERS if p not in ADDERS]


@pytest.mark.parametrize("folder", BY_TIER)
def test_a_certificate_can_be_recomputed(folder):
    checkpoint = Checkpoint.load(folder)
    written = json.loads((folder / "verification.json").read_text())
    found = verify(checkpoint.spec, checkpoint.theta_P).as_dict()
    assert found["params"] == written["params"] == checkpoint.spec.params
    assert folder.name.split("-")[0] == f"{checkpoint.spec.params}p"
    assert (found["correct"], found["total"]) == (written["correct"], written["total"])
    assert found["qualified"] and found["verified"] == written["verified"]


@pytest.mark.parametrize("folder", OF_OTHER_TASKS, ids=lambda folder: folder.name)
def test_a_net_of_another_task_is_right_again(folder):
    checkpoint = Checkpoint.load(folder)
    found = verify(checkpoint.spec, checkpoint.theta_P)
    assert not checkpoint.spec.adds and found.correct == found.total


def is_decided_everywhere_in_a_minute(folder):
    """Not by this machine alone, and not 170p, which takes nine minutes."""
    return json.loads((folder / "proof.json").read_text())["level"] == "any" and folder.name != "170p"


DECIDED = [p for p in (*FOLDERS, *OTHERS) if (p / "proof.json").exists() and is_decided_everywhere_in_a_minute(p)]


@pytest.mark.full
@pytest.mark.parametrize("folder", DECIDED, ids=lambda folder: folder.name)
def test_a_verdict_is_reached_again(folder, monkeypatch):
    """And no sum of weights comes near 0, where cases were once left out."""
    checkpoint, written = Checkpoint.load(folder), json.loads((folder / "proof.json").read_text())
    least = []
    for module in (attention, columns):
        monkeypatch.setattr(module, "require_weight", least.append)
    assert decide(checkpoint.spec, checkpoint.theta_P, limit_s=300)["verdict"] == written["verdict"]
    assert min(least) > 0.99


def is_trained_by_the_engine_alone(folder):
    """From scratch, and not finished by curvature, which rounds as the machine does."""
    checkpoint = Checkpoint.load(folder)
    recipes = [checkpoint.recipe, *(stage["recipe"] for stage in checkpoint.provenance.get("stages", ()))]
    is_finished = any(recipe.get("finish_above", 1) < 1 for recipe in recipes)
    return checkpoint.provenance.get("trained") == "from scratch" and not is_finished


TRAINED = list(filter(is_trained_by_the_engine_alone, FOLDERS))


@pytest.mark.full
@pytest.mark.parametrize("folder", TRAINED, ids=lambda folder: folder.name)
def test_a_certificate_from_scratch_is_trained_again_to_the_bit(folder):
    """Those of one run in several stages from their first step."""
    checkpoint = Checkpoint.load(folder)
    again = train_again(checkpoint, read_request(checkpoint))
    assert again.same and again.stages == 1 + len(checkpoint.provenance.get("stages", ()))


def test_a_stage_may_hand_on_some_of_its_entries():
    about = {"spec": preset("57p").as_dict(), "recipe": Recipe().as_dict(), "entries": [3, 1]}
    assert EarlierStage.of(about).following_theta(torch.arange(57.0), preset("46p")).tolist() == [3.0, 1.0]


@pytest.mark.parametrize("name", ["13p", "13p-one-run"])
def test_a_norm_without_weights_but_the_last_is_an_exact_rewriting(name):
    parent = Checkpoint.load(FOLDERS[0].with_name(name))
    rewritten = Checkpoint.load(FOLDERS[0].with_name({"13p": "12p-inside"}.get(name, "12p-one-run")))
    base = replace(parent.spec.base, structured_norm1=True)
    theta_P = rescaled(parent.spec.base, parent.spec.untie(parent.theta_P[None])[0])
    theta_P = theta_P[list(shared_entries(parent.spec.base, base))]
    assert rewritten.spec.base == base and torch.equal(rewritten.spec.untie(rewritten.theta_P[None])[0], theta_P)


def test_six_numbers_of_five_digits_are_enough_and_of_four_are_not():
    checkpoint = Checkpoint.load(FOLDERS[0].with_name("6p"))
    rounded = maker(FOLDERS[0].parent).rounded
    correct = [verify(checkpoint.spec, rounded(checkpoint.theta_P, digits)).correct for digits in (5, 4)]
    assert correct[0] == 10_010 > correct[1]
