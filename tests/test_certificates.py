"""The checkpoints in docs/certificates are what docs/results.md says of them."""

import json
from pathlib import Path

import pytest

from model import verify
from trainer.checkpoint import Checkpoint

FOLDERS = sorted((Path(__file__).parents[1] / "docs" / "certificates").iterdir())


@pytest.mark.parametrize("folder", FOLDERS, ids=[f.name for f in FOLDERS])
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
