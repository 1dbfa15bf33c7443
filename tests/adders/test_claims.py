"""Verdicts that a stranger has written are claims, which a proof decides (tests/unit/test_verdicts.py)."""

import json
import re
from pathlib import Path

import pytest

from model.verdict import COUNTEREXAMPLE, PROVED, UNDECIDED
from search.store.verdicts import beside, sealed, settle
from tests.commands import done
from tests.unit.test_verdicts import RIGHT, WRONG, forged, own_cache, undecided  # noqa: F401

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def no_time(undecided, monkeypatch):  # noqa: F811
    """None is enough for a proof, for the page of `explain` neither."""
    monkeypatch.setattr("adders.explain.explain.decide_soon", undecided)


def test_a_forged_proof_is_refuted():
    claim = beside(forged(), WRONG.spec, WRONG.theta_P)
    assert (claim["verdict"], claim["claimed"]) == (UNDECIDED, PROVED)
    assert settle(claim, WRONG.spec, WRONG.theta_P)["verdict"] == COUNTEREXAMPLE
    refuted = beside(forged(RIGHT, COUNTEREXAMPLE), RIGHT.spec, RIGHT.theta_P)
    assert settle(refuted, RIGHT.spec, RIGHT.theta_P)["verdict"] == PROVED


def test_on_a_page_a_proof_of_another_program_is_none(no_time):
    folder = forged(RIGHT, PROVED)
    values = json.loads((folder / "proof.json").read_text()) | {"program_sha256": "0" * 64}
    (folder / "proof.json").write_text(json.dumps(sealed(values)))
    done("explain", folder, "-o", "page.html", "--home", "none")
    assert '"verdict": "PROVED"' not in Path("page.html").read_text()


def test_a_claim_that_takes_too_long_is_called_one_everywhere(no_time):
    folder = forged()
    done("export", folder)
    assert '"PROVED"' not in (source := Path("submission.py").read_text()) and "'PROVED'" not in source
    done("publish", folder, "-o", "hub", "--home", "none")
    card = Path("hub/theirs/README.md").read_text()
    assert re.search(r"\| claimed, not checked here: proved right on all .* \(adder-search prove decides it\)", card)
    assert '"PROVED"' not in Path("hub/theirs/config.json").read_text()
    done("explain", folder, "-o", "page.html", "--home", "none")
    assert '"verdict": "UNDECIDED"' in Path("page.html").read_text()
