"""A study's life from the command line: in the background, stopped, limited, extended, begun afresh."""

import subprocess
import sys

import pytest

from tests.commands import COMMAND, adder_search, own_environment
from tests.reference import QUICK, check_whole, expected, rows_of, write_study

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(240)]

LONG = QUICK | {"name": "away", "recipe": QUICK["recipe"] | {"steps": 4_000}}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_a_study_in_the_background_is_alone_and_is_stopped_and_resumed_by_name(tmp_path):
    file, home = write_study(tmp_path, LONG), tmp_path / "adder-runs"
    # not through `running`, which ends a command's descendants with it
    words = [str(COMMAND), "run", file, "--detach"]
    said = subprocess.run(
        words, cwd=tmp_path, env=own_environment(), capture_output=True, text=True, timeout=120
    )
    assert said.returncode == 0 and "away: runs as process" in said.stdout, said
    try:
        second = adder_search("run", file, cwd=tmp_path)
        assert (second.code, second.out) == (2, ""), second
        assert "study away is already being run by" in second.err and second.err.count("\n") == 1
    finally:
        stopped = adder_search("stop", "away", cwd=tmp_path)
    assert stopped.code == 0 and "To go on:\n  adder-search run away" in stopped.out, stopped
    assert {r["outcome"] for r in rows_of(home, "away")} <= {"censored"}
    (log,) = (home / "logs").glob("away-*.log")
    assert "To go on:\n  adder-search run away" in log.read_text()
    again = adder_search("stop", "away", cwd=tmp_path)
    assert (again.code, again.err) == (2, "error: study away is not running\n")

    (tmp_path / "away.yaml").unlink()  # the ledger knows it
    said = adder_search("resume", "away", "--max-hours", "0.0001", cwd=tmp_path)
    assert said.code == 130, said
    assert {(r["outcome"], r["reason"]) for r in rows_of(home, "away")} <= {
        ("censored", "stopped"),
        ("censored", "time limit"),
    }


def test_a_finished_study_is_extended_by_editing_its_file_or_begun_afresh(tmp_path):
    home = tmp_path / "adder-runs"
    short = QUICK | {"seeds": {"first": 5, "count": 2}}
    assert adder_search("run", write_study(tmp_path, short), cwd=tmp_path).code == 0
    before = rows_of(home, "quick")
    said = adder_search("run", write_study(tmp_path, QUICK), cwd=tmp_path)
    assert said.code == 0, said
    assert rows_of(home, "quick")[:2] == before, "what was recorded stays as it is"
    check_whole(home, QUICK, tmp_path, expected(QUICK))

    said = adder_search("run", write_study(tmp_path, short), "--fresh", cwd=tmp_path)
    assert said.code == 0, said
    assert said.out.startswith("quick-2: a fresh start of ")
    fresh = short | {"name": "quick-2"}
    check_whole(home, fresh, tmp_path, expected(fresh))

    into_search = short | {"space": {"recipe.lr": {"float": [0.01, 0.02]}}}
    said = adder_search("run", write_study(tmp_path, into_search), cwd=tmp_path)
    assert said.code == 2 and "was begun as a list, the file now has a space" in said.err
    confirmed = short | {"confirm": {"seeds": [5]}, "seeds": [90]}
    said = adder_search("run", write_study(tmp_path, confirmed), cwd=tmp_path)
    assert said.code == 2 and "confirm.seeds: 5 was a seed of the search" in said.err
