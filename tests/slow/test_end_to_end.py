"""The real command with real Ray, Optuna and MLflow, as a stranger meets it: one run to its end."""

import pytest

from search.study.file import load_study
from tests.commands import adder_search
from tests.reference import check_whole, expected

pytestmark = pytest.mark.end_to_end

SMOKE = load_study("smoke").model_dump(mode="json", by_alias=True)


def test_a_run_in_a_folder_of_things_that_must_not_be_taken_for_ours(tmp_path):
    """It says what came of it and what to type next. Records are those of training without Ray, to the bit."""
    marker = tmp_path / "a-decoy-was-imported"
    decoy = f"open({str(marker)!r}, 'w').close()\nprint('decoy')\nraise RuntimeError('decoy')\n"
    for name in ("model/__init__.py", "search.py", "trainer/__init__.py", "studies/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(decoy)
    said = adder_search("run", "smoke", cwd=tmp_path)
    assert (said.code, said.err) == (0, ""), said
    assert not marker.exists() and not any(sign in said.out for sign in ("decoy", "\x1b", "\r"))
    lines = said.out.splitlines()
    assert "smoke: 0 of 4 grokked: 0.0% (95 % interval 0.0% to 52.7%)" in lines
    assert {"  adder-search report smoke -o smoke.html", "  adder-search ui"} <= set(lines)
    assert "pull smoke" not in said.out, "nothing grokked"
    check_whole(tmp_path / "adder-runs", SMOKE, tmp_path, expected(SMOKE))
