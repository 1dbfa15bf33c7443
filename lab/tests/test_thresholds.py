"""`adder-search thresholds`: the smallest certificates beside the Reflection's three numbers."""

import json
import shutil
from pathlib import Path

import pytest

from lab import thresholds
from search.store.verdicts import sealed
from tests.commands import call

CERTIFICATES = Path(__file__).parents[1] / "certificates"


def copied(name, folder, **changes):
    """Copy a certificate as if this user had proved it. changes: of its verdict."""
    shutil.copytree(CERTIFICATES / name, folder / name, dirs_exist_ok=True)
    file = folder / name / "proof.json"
    file.write_text(json.dumps(sealed(json.loads(file.read_text()) | changes)))


@pytest.fixture
def some(tmp_path):
    """By hand 34, trained 57 and 54, folded 46, tied 17 and 12: all proved."""
    for name in ("34p-by-hand", "57p", "54p", "46p", "17p", "12p"):
        copied(name, tmp_path)
    return tmp_path


def smallest(folder):
    """The certificates' names by threshold and standard, in the order inside, across, constants."""
    rows = json.loads(call("thresholds", folder, "--json").stdout)
    columns = ("inside", "across", "constants")
    return {(r["threshold"], r["standard"]): [r[c]["certificate"] for c in columns] for r in rows}


def test_each_threshold_has_its_smallest_certificate_by_each_count(some):
    assert smallest(some) == {
        ("representable", "proved"): ["17p", "12p", "12p"],
        ("learnable", "proved"): ["54p", "54p", "54p"],
        ("plainly", "proved"): ["54p", "54p", "54p"],
        ("maintainable", "proved"): ["17p", "12p", "12p"],
    }
    for name in ("17p", "12p", "46p"):
        shutil.rmtree(some / name)
    assert smallest(some) == {
        ("representable", "proved"): ["34p-by-hand"] * 3,
        ("learnable", "proved"): ["54p"] * 3,
        ("plainly", "proved"): ["54p"] * 3,
    }
    shown = call("thresholds", some).stdout.splitlines()
    assert shown[1].split()[:5] == ["representable", "proved", "40", "34", "(34p-by-hand)"]


def test_a_copied_start_and_a_run_by_ramps_are_kept_apart(some):
    for name in ("34p-from-scratch", "13p-one-run"):
        copied(name, some)
    rows = smallest(some)
    assert rows["learnable", "proved"] == ["34p-from-scratch"] * 3
    assert rows["plainly", "proved"] == ["54p"] * 3 and rows["one run", "proved"] == ["13p-one-run"] * 3
    assert "one run        proved             –  13 (13p-one-run)" in call("thresholds", some).stdout


def test_what_this_user_has_not_proved_of_todays_program_is_verified_at_most(some, monkeypatch):
    shutil.copy(CERTIFICATES / "12p/proof.json", some / "12p")
    assert smallest(some)["maintainable", "verified"] == ["17p", "12p", "12p"]
    monkeypatch.setattr(thresholds, "OURS", some)
    assert smallest(some)["maintainable", "proved"] == ["17p", "12p", "12p"], "the notebook's own"
    copied("12p", some, program_sha256="0" * 64)
    assert smallest(some)["maintainable", "verified"] == ["17p", "12p", "12p"]


def test_what_is_only_verified_or_qualified_has_a_row_where_it_is_smaller(some):
    (some / "12p" / "proof.json").unlink()
    rows = smallest(some)
    assert rows["maintainable", "proved"] == ["17p"] * 3
    assert rows["maintainable", "verified"] == ["17p", "12p", "12p"]
    file = some / "12p" / "verification.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about | {"verified": False, "correct": 9_950}))
    rows = smallest(some)
    assert rows["maintainable", "proved"] == ["17p"] * 3
    assert rows["maintainable", "qualified"] == ["17p", "12p", "12p"]
    assert ("learnable", "qualified") not in rows
    file.write_text(json.dumps(about | {"verified": False, "qualified": False}))
    assert smallest(some)["representable", "proved"] == ["17p"] * 3
