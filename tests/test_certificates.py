"""The checkpoints in docs/certificates are what docs/results.md says of them."""

import json
from pathlib import Path

import pytest

from model import verify
from trainer.checkpoint import Checkpoint

FOLDERS = sorted((Path(__file__).parents[1] / "docs" / "certificates").iterdir())
QUICK = ("34p-by-hand", "46p", "456p")
BY_TIER = [pytest.param(f, id=f.name, marks=() if f.name in QUICK else pytest.mark.full) for f in FOLDERS]


@pytest.mark.parametrize("folder", BY_TIER)
def test_a_certificate_can_be_recomputed(folder):
    checkpoint = Checkpoint.load(folder)
    written = json.loads((folder / "verification.json").read_text())
    found = verify(checkpoint.spec, checkpoint.theta_P).as_dict()
    assert found["params"] == written["params"] == checkpoint.spec.params
    assert folder.name.split("-")[0] == f"{checkpoint.spec.params}p"
    assert (found["correct"], found["total"]) == (written["correct"], written["total"])
    assert found["qualified"] and found["verified"] == written["verified"]


def test_the_results_page_names_every_certificate():
    page = (FOLDERS[0].parents[1] / "results.md").read_text()
    assert all(f"certificates/{f.name}" in page for f in FOLDERS)
