"""`make audit` without a network: what recorded advisories say of the versions that are installed."""

import json
import runpy
import zipfile
from datetime import UTC, datetime

import pytest

from tests import ROOT

TOOL = runpy.run_path(str(ROOT / "requirements/audit.py"))
TODAY = datetime(2026, 11, 22, tzinfo=UTC)


def advisory(name="Py_Arrow", ecosystem="PyPI", events=(), **more):
    affected = {
        "package": {"ecosystem": ecosystem, "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": events}, {"type": "GIT", "events": [{"introduced": "0"}]}],
    }
    return {"id": "PYSEC-1", "modified": "2026-11-20T08:00:00Z", "affected": [affected], **more}


def audit(tmp_path, record):
    place = tmp_path / "all.zip"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(record))
    return TOOL["audit"](place, TODAY, {"py-arrow": "2.5.1"})


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ("introduced 0, fixed 2.5.1", 0),
        ("introduced 0, fixed 2.5.1.post1", 1),
        ("introduced 0, last_affected 2.5.1", 1),
        ("introduced 0, last_affected 2.5.0", 0),
        ("introduced 2.10", 0),
        ("introduced 1, fixed 2, introduced 2.4, fixed 2.6", 1),
        ("fixed 2.6, introduced 2.10, introduced 0", 1),
        ("introduced no version", 1),
    ],
)
def test_a_version_in_a_range_is_found(events, code, tmp_path, capsys):
    listed = [{kind: version} for kind, version in (event.split(" ", 1) for event in events.split(", "))]
    assert audit(tmp_path, advisory(events=listed, summary="a hole")) == code
    assert ("py-arrow 2.5.1: PYSEC-1: a hole" in capsys.readouterr().out) == bool(code)


def test_a_record_that_cannot_tell_fails(tmp_path, capsys):
    assert audit(tmp_path, advisory(ecosystem="npm")) == 1
    assert audit(tmp_path, advisory("other", modified="2026-10-01T00:00:00Z")) == 1
    said = capsys.readouterr().err
    assert "nothing is known" in said and "52 days old" in said


def test_every_version_that_is_installed_is_compared():
    pins = TOOL["pins"]()
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, version = line.partition("==")
        assert not version or pins[name.lower().replace("_", "-").replace(".", "-")] == version
    assert pins["nvidia-cublas"] and pins["torch"] == "2.13.0"


def test_without_a_record_the_index_is_asked_and_must_answer():
    recipe = (ROOT / "Makefile").read_text().partition("\naudit:")[2].partition("\nendif")[0]
    command, _, otherwise = recipe.partition("pip-audit ")[2].partition(" || ")
    assert "--strict" in command and "constraints.txt" in command and "exit 1" in otherwise
