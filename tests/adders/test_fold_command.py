"""`adder-search fold`."""

from dataclasses import replace
from pathlib import Path

import torch

from model import preset
from model.families.split_subspace import folds
from tests import CERTIFICATES
from tests.adders.test_prove import certificate
from tests.commands import call, done, fails_with_one
from tests.unit.test_cli_checkpoints import said_before
from tests.unit.test_tied import tied
from trainer.checkpoints.checkpoint import Checkpoint


def test_a_trained_54_becomes_46(here):
    said = done("fold", CERTIFICATES / "earlier/54p", "-o", "small", "--pairs", 2_000)
    assert "small: 54p folded to 46 parameters, nothing trained again" in said
    assert "official: 10,010 of 10,010 right, 0 answered differently" in said
    assert "fresh: 2,000 of 2,000 right, 0 answered differently" in said
    folded, parent = Checkpoint.load(Path("small")), certificate("earlier/54p")
    assert folded.spec.params == 46 and "unit_out" in folded.spec.applied()
    assert folded.provenance["trained_again"] is False
    assert folded.provenance["folded_from"]["params"] == 54
    assert folded.provenance["folded_from"]["provenance"] == parent.provenance
    assert folded.provenance["compared"]["fresh"]["different_answers"] == 0
    assert (folded.seed, folded.recipe) == (parent.seed, parent.recipe)
    written = certificate("46p")
    assert folded.spec == written.spec and folded.theta_P.tolist() == written.theta_P.tolist()
    assert "10,010/10,010 VERIFIED" in call("verify", "small").stdout


def test_answers_that_differ_are_a_failure(monkeypatch, here):
    direct = folds.direct

    def wrong(spec, tensors):
        return {name: t * (0.5 if name == "form" else 1) for name, t in direct(spec, tensors).items()}

    monkeypatch.setattr(folds, "direct", wrong)
    result = call("fold", CERTIFICATES / "54p", "-o", "small", "--pairs", 0)
    assert result.exit_code == 1 and "the two forms do not answer alike" in result.stderr


def test_where_nothing_can_be_written_is_said_before_the_work(here, monkeypatch):
    spec = preset("57p")
    Checkpoint(spec, spec.initial(3)).save(Path("untrained"))
    folded = (replace(Checkpoint.load(Path("untrained")), theta_P=torch.zeros(57)), ["a fold"])
    monkeypatch.setattr("adders.folding.folded.fold_checkpoint", lambda given: folded)
    said_before("fold untrained -o untrained", ("adders.folding.folded.compare_checkpoints",), monkeypatch)


def test_what_has_no_smaller_form_is_said(here):
    spec = tied()
    Checkpoint(spec, spec.initial(3)).save(Path("tied"))
    assert "smallest form known" in fails_with_one(2, "fold", "tied", "-o", "x")
