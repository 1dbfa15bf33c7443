"""A study's life from the command line: one run by real Ray as a stranger meets it; in the background, stopped; begun
afresh.
"""

import pytest

from search.run.entry import renamed
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.file import load_study
from tests.commands import adder_search, call, done, fails_with_one
from tests.homes import study_of
from tests.processes import wait_until
from tests.reference import QUICK, check_whole, expected, rows_of, write_study
from tracking.mirror import MLFLOW
from tracking.store import connect

pytestmark = pytest.mark.end_to_end

SMOKE = load_study("smoke").model_dump(mode="json", by_alias=True)
LONG = QUICK | {"name": "away", "recipe": QUICK["recipe"] | {"steps": 4_000}, "seeds": [5]}


@pytest.mark.full
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
    check_whole(tmp_path / "adder-runs", SMOKE, expected(SMOKE))


@pytest.mark.full
def test_a_study_in_the_background_is_alone_and_is_stopped_by_name(here):
    file, home = write_study(here, LONG), here / "adder-runs"
    connect(Home(home), creates=True)  # its tables, which take a process of its own seconds
    assert "away: runs as process" in done("run", file, "--detach")
    try:
        wait_until(lambda: any(r["outcome"] == "running" for r in rows_of(home, "away")), "nothing has begun to run")
        second = call("run", file)
        assert second.exit_code == 2 and "study away is already being run by" in second.stderr
    finally:
        stopped = call("stop", "away")
    assert stopped.exit_code == 0 and "To go on:\n  adder-search run away" in stopped.stdout, stopped
    assert {(r["outcome"], r["reason"]) for r in rows_of(home, "away")} == {("censored", "stopped")}
    (log,) = (home / "logs").glob("away-*.log")
    assert "To go on:\n  adder-search run away" in log.read_text()
    assert fails_with_one(2, "stop", "away") == "study away is not running"


def test_a_fresh_start_takes_the_next_name_that_is_free_in_ledger_and_mlflow(home):
    ledger, client = Ledger(home), connect(home, creates=True)
    StudyRecords(ledger, "sweep-2").lease.acquire()
    client.create_experiment("sweep-3")
    searched = {"space": {"recipe.lr": {"float": [0.01, 0.02]}}}
    fresh = renamed(study_of(**searched), ledger.list_studies(), lambda name: MLFLOW.has(home, name))
    assert fresh == study_of(**searched, name="sweep-4")
