"""`adder-search thresholds`: what certificates say beside the Reflection's three numbers."""

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import call, fails_with_one

CERTIFICATES = Path(__file__).parents[1] / "certificates"


@pytest.fixture
def some(tmp_path):
    """By hand 34, trained 57 and 54, folded 46, tied 17 and 12: all verified."""
    for name in ("34p-by-hand", "57p", "54p", "46p", "17p", "12p"):
        shutil.copytree(CERTIFICATES / name, tmp_path / name)
    return tmp_path


def by_threshold(folder):
    found = json.loads(call("thresholds", folder, "--json").stdout)
    return {(r["threshold"], r["standard"]): r for r in found}


def told(row):
    return {c: (row[c]["numbers"], row[c]["certificate"]) for c in ("inside", "across", "constants")}


def test_each_threshold_has_its_smallest_certificate_by_each_count(some):
    rows = by_threshold(some)
    assert {t: r["published"] for (t, _), r in rows.items()} == {
        "representable": 40, "learnable": 75, "maintainable": 62,
    }  # fmt: skip
    smallest = {"inside": (17, "17p"), "across": (12, "12p"), "constants": (15, "12p")}
    assert told(rows["representable", "verified"]) == told(rows["maintainable", "verified"]) == smallest
    learnt = rows["learnable", "verified"]
    assert told(learnt) == {"inside": (54, "54p"), "across": (54, "54p"), "constants": (56, "54p")}
    assert len(rows) == 3


def test_what_is_only_qualified_has_a_row_where_it_is_smaller(some):
    about = json.loads((some / "12p" / "verification.json").read_text())
    (some / "12p" / "verification.json").write_text(json.dumps(about | {"verified": False, "correct": 9_950}))
    rows = by_threshold(some)
    assert told(rows["maintainable", "verified"])["across"] == (17, "17p")
    assert told(rows["maintainable", "qualified"])["across"] == (12, "12p")
    assert ("learnable", "qualified") not in rows
    (some / "12p" / "verification.json").write_text(
        json.dumps(about | {"verified": False, "qualified": False})
    )
    assert told(by_threshold(some)["representable", "verified"])["across"] == (17, "17p")


def test_by_hand_is_no_evidence_of_learning(some):
    for name in ("17p", "12p", "46p"):
        shutil.rmtree(some / name)
    rows = by_threshold(some)
    assert told(rows["representable", "verified"])["across"] == (34, "34p-by-hand")
    assert ("maintainable", "verified") not in rows
    shown = call("thresholds", some).stdout.splitlines()
    assert shown[1].split()[:5] == ["representable", "verified", "40", "34", "(34p-by-hand)"]


def test_the_certificates_that_come_along_are_read_without_a_word(monkeypatch):
    monkeypatch.chdir(CERTIFICATES.parents[1])
    rows = json.loads(call("thresholds", "--json").stdout)
    assert all(row["across"]["numbers"] < row["published"] for row in rows)


def test_bad_input_is_one_line_each(some, here):
    assert "no such folder" in fails_with_one(2, "thresholds", some / "nowhere")
    (some / "12p" / "verification.json").write_text("[]")
    assert "not what `verify --json` says" in fails_with_one(2, "thresholds", some)
    (some / "12p" / "verification.json").write_text("{}")
    (some / "12p" / "theta.safetensors").unlink()
    assert "no such file" in fails_with_one(2, "thresholds", some)
