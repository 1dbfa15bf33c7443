"""Folds of presets, and the command. That the answers stay the same is in tests/contract."""

from pathlib import Path

import pytest

from model import preset
from model.families.split_subspace import folds
from model.fold import fold
from tests import CERTIFICATES
from tests.commands import call, done
from tests.specs import some_theta
from trainer.checkpoints.checkpoint import Checkpoint

FOLDED = """
    242p 203, 226p 187, 214p 175, 203p 167, 187p 167, 170p 160, 141p 118, 133p 107, 100p 76, 90p 66,
    80p 66, 78p 64, 75p 61, 74p 60, 72p 61, 71p 60, 70p 56, 67p 56, 64p 56, 61p 56, 57p 46, 54p 46, 47p 46,
    46p 46,
    777p 756, 763p 756, 582p 579, 456p 453, 311p 288, 262p 236,
    62p 54, 52p 46, 95p 78, 58p 50, 58p-kv 55, 49p 48, 44p 42, 36p 36
"""
"""What an arc leaves unread of 62: a column of keys, two norm weights, a row of the MLP's second layer."""


@pytest.mark.parametrize(("name", "count"), [pair.split() for pair in FOLDED.split(",")])
def test_what_remains(name, count):
    folded = fold(preset(name), some_theta(preset(name))[0])
    assert folded.spec.params == len(folded.theta_P) == int(count)


@pytest.mark.parametrize("first", [0.0, 1e-42, 1e-38])
def test_what_cannot_be_divided_by_stays(first):
    """The output's row begins with 0, as at the start, or with next to nothing: a quotient would overflow."""
    spec = preset("57p")
    tensors = {name: t[0].clone() for name, t in spec.layout.split(some_theta(spec)).items()}
    tensors["out_B"][0, 0] = first
    folded = fold(spec, spec.layout.join(tensors))
    assert folded.spec == preset("47p") and folded.theta_P.isfinite().all()


# The command


def test_a_trained_54_becomes_46(here):
    said = done("fold", CERTIFICATES / "earlier/54p", "-o", "small", "--pairs", 2_000)
    assert "small: 54p folded to 46 parameters, nothing trained again" in said
    assert "official: 10,010 of 10,010 right, 0 answered differently" in said
    assert "fresh: 2,000 of 2,000 right, 0 answered differently" in said
    folded, parent = Checkpoint.load(Path("small")), Checkpoint.load(CERTIFICATES / "earlier/54p")
    assert folded.spec.params == 46 and "unit_out" in folded.spec.applied()
    assert folded.provenance["trained_again"] is False
    assert folded.provenance["folded_from"]["params"] == 54
    assert folded.provenance["folded_from"]["provenance"] == parent.provenance
    assert folded.provenance["compared"]["fresh"]["different_answers"] == 0
    assert (folded.seed, folded.recipe) == (parent.seed, parent.recipe)
    written = Checkpoint.load(CERTIFICATES / "46p")
    assert folded.spec == written.spec and folded.theta_P.tolist() == written.theta_P.tolist()
    assert "10010/10010 VERIFIED" in call("verify", "small").stdout


def test_answers_that_differ_are_a_failure(monkeypatch, here):
    direct = folds.direct

    def wrong(spec, tensors):
        return {name: t * (0.5 if name == "form" else 1) for name, t in direct(spec, tensors).items()}

    monkeypatch.setattr(folds, "direct", wrong)
    result = call("fold", CERTIFICATES / "54p", "-o", "small", "--pairs", 0)
    assert result.exit_code == 1 and "the two forms do not answer alike" in result.stderr
