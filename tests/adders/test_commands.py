"""Commands on adders, given what they cannot write."""

import json
from pathlib import Path

import pytest

from model import PRESETS
from tests.commands import done, fails_with_one
from tests.unit.test_cli_checkpoints import checkpoint as untrained  # noqa: F401
from tests.unit.test_cli_checkpoints import said_before
from tests.unit.test_hostile import checkpoint

pytestmark = pytest.mark.usefixtures("here")


def test_an_export_replaces_no_other_file(untrained):  # noqa: F811
    Path("s.py").write_text("of the user's")
    says = "s.py: exists and has other text; choose another file with -o"
    assert fails_with_one(2, "export", untrained, "-o", "s.py") == says
    for _ in range(2):
        done("export", untrained, "-o", "t.py")
    assert Path("s.py").read_text() == "of the user's"


@pytest.mark.parametrize(
    "words",
    [
        "finish untrained -o untrained", "prove untrained -o .", "prove untrained -o nowhere/x",
        "explain untrained -o .", "explain untrained -o nowhere/x", "export untrained -o .",
        "export untrained -o file/x",
    ],
)  # fmt: skip
def test_where_nothing_can_be_written_is_said_before_the_work(words, untrained, monkeypatch):  # noqa: F811
    work = "adders.finishing.finish.finish", "adders.proof.prover.prove", "adders.explain.explain.explain"
    said_before(words, work, monkeypatch)


def nested(depth):
    return json.loads('{"a": ' * depth + "1" + "}" * depth)


def test_provenance_that_no_submission_can_hold():
    path = checkpoint("deep", PRESETS["57p"], provenance=nested(900))
    said = fails_with_one(2, "export", path)
    assert said.endswith("provenance is nested more than 90 deep: Python reads no such literal")
    assert not Path("submission.py").exists()
    done("export", checkpoint("less", PRESETS["57p"], provenance=nested(90)))
    compile(Path("submission.py").read_text(), "submission.py", "exec")
