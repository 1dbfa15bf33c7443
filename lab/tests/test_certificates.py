"""The notebook's checkpoints are what docs/results.md says of them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from adders.export import export_source
from adders.proof import attention, columns
from adders.proof.file import decide
from lab.pages import maker
from lab.scripts.moved_form import rescaled, shared_entries
from model import verify
from model.adderboard import uniform_pairs
from model.decode import add
from model.tasks import ADDITION
from search.run.rerun import read_request, train_again
from trainer.checkpoints.checkpoint import Checkpoint

FOLDERS = sorted(p.parent for p in (Path(__file__).parents[1] / "certificates").glob("*/checkpoint.json"))
OTHERS = sorted(p.parent for p in Path(__file__).parents[1].glob("2*/*/checkpoint.json"))
QUICK = ("34p-by-hand", "46p", "456p", "17p-inside")
BY_TIER = [pytest.param(f, id=f.name, marks=() if f.name in QUICK else pytest.mark.full) for f in FOLDERS + OTHERS]


@pytest.mark.parametrize("folder", BY_TIER)
def test_a_certificate_can_be_recomputed(folder):
    checkpoint = Checkpoint.load(folder)
    written = json.loads((folder / "verification.json").read_text())
    found = verify(checkpoint.spec, checkpoint.theta_P).as_dict()
    assert found["params"] == written["params"] == checkpoint.spec.params
    assert folder.name.split("-")[0] == f"{checkpoint.spec.params}p"
    assert (found["correct"], found["total"]) == (written["correct"], written["total"])
    assert found["qualified"] and found["verified"] == written["verified"]


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
    assert train_again(checkpoint, read_request(checkpoint)).same


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


TIED = [f for f in FOLDERS if '"family": "tied"' in (f / "checkpoint.json").read_text()]
ELSEWHERE = """
import json, runpy, sys
pairs, found = json.load(open("pairs.json")), {}
for name in sys.argv[1:]:
    submission = runpy.run_path(name)
    model, metadata = submission["build_model"]()
    found[name] = metadata["params"], [submission["add"](model, a, b) for a, b in pairs]
assert not {"model", "trainer", "search", "adders"} & sys.modules.keys()
print(json.dumps(found))
"""


@pytest.mark.full
def test_exports_of_tied_certificates_run_in_another_directory(tmp_path):
    """With torch alone, in a process of their own, on edge cases and pairs that nobody chose by."""
    pairs = ADDITION.edge_cases() + uniform_pairs(len(TIED), 10)
    (tmp_path / "pairs.json").write_text(json.dumps(pairs))
    said = {}
    for folder in TIED:
        its = Checkpoint.load(folder)
        source = export_source(its.spec, its.theta_P, name=folder.name, author="a", provenance={})
        (tmp_path / f"{folder.name}.py").write_text(source)
        said[f"{folder.name}.py"] = [
            its.spec.params,
            add(its.spec, its.theta_P, *map(list, zip(*pairs, strict=True))),
        ]
    command = [sys.executable, "-I", "-c", ELSEWHERE, *said]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # the matrices are so small that a second one only waits
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == said
