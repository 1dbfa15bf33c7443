"""`adder-search fold`, and the hand-built adder that `forge` writes, on checkpoints of the repository."""

import json
from pathlib import Path

import pytest

from model.export import tricks
from tests.commands import call, fails_with_one
from trainer.checkpoints.checkpoint import Checkpoint

CERTIFICATES = Path(__file__).parents[1] / "lab" / "certificates"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_trained_54_becomes_46():
    result = call("fold", CERTIFICATES / "54p", "-o", "small", "--pairs", 2_000)
    assert result.exit_code == 0
    assert "small: 54p folded to 46 parameters, nothing trained again" in result.stdout
    assert "official: 10,010 of 10,010 right, 0 answered differently" in result.stdout
    assert "fresh: 2,000 of 2,000 right, 0 answered differently" in result.stdout
    folded, parent = Checkpoint.load(Path("small")), Checkpoint.load(CERTIFICATES / "54p")
    assert folded.spec.params == 46 and "unit_out" in tricks(folded.spec)
    assert folded.provenance["trained_again"] is False
    assert folded.provenance["folded_from"]["params"] == 54
    assert folded.provenance["folded_from"]["provenance"] == parent.provenance
    assert folded.provenance["compared"]["fresh"]["different_answers"] == 0
    assert (folded.seed, folded.recipe) == (parent.seed, parent.recipe)
    written = Checkpoint.load(CERTIFICATES / "46p")
    assert folded.spec == written.spec and folded.theta_P.tolist() == written.theta_P.tolist()
    assert "10010/10010 VERIFIED" in call("verify", "small").stdout


def test_57_becomes_46_and_says_so_in_json():
    found = json.loads(call("fold", CERTIFICATES / "57p", "-o", "small", "--pairs", 0, "--json").stdout)
    assert (
        found["params"] == [57, 46] and len(found["folds"]) == 3 and list(found["compared"]) == ["official"]
    )
    assert 0 < found["compared"]["official"]["largest_logit_difference"] < 0.1


def test_what_cannot_be_folded():
    line = fails_with_one(2, "fold", CERTIFICATES / "46p", "-o", "x")
    assert line.endswith("46p: 46 parameters is the smallest form known for it")
    assert fails_with_one(2, "fold", "nowhere", "-o", "x") == "nowhere: no such checkpoint"
    Path("taken").mkdir()
    Path("taken/mine.txt").touch()
    line = fails_with_one(2, "fold", CERTIFICATES / "54p", "-o", "taken", "--pairs", 0)
    assert line == "taken: exists and is no checkpoint alone; choose another folder with -o"


def test_answers_that_differ_are_a_failure(monkeypatch):
    from model.families.split_subspace import folds

    whole = folds.direct

    def wrong(spec, tensors):
        return {name: t * (0.5 if name == "form" else 1) for name, t in whole(spec, tensors).items()}

    monkeypatch.setattr(folds, "direct", wrong)
    result = call("fold", CERTIFICATES / "54p", "-o", "small", "--pairs", 0)
    assert result.exit_code == 1 and "the two forms do not answer alike" in result.stderr


def test_the_adder_built_by_hand_can_be_verified_and_exported():
    assert call("forge", "--ten-digits", "34").stdout == "34: 34 parameters, none of them trained\n"
    assert "34 parameters: 10010/10010 VERIFIED" in call("verify", "34").stdout
    assert call("export", "34", "-o", "submission.py").exit_code == 0
    assert fails_with_one(2, "forge", "1", "2", "--ten-digits", "x") == "--ten-digits goes alone"
