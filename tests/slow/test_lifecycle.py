"""A study's life from the command line: in the background, stopped, limited, extended, begun afresh."""

import sys

import pytest
import yaml

from search.cli.run import _renamed
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.file import parse_study
from search.tracking.tracking import connect
from tests import ROOT
from tests.commands import call, done, fails_with_one
from tests.processes import wait_until
from tests.reference import QUICK, client_of, rows_of, write_study

pytestmark = pytest.mark.end_to_end

LONG = QUICK | {"name": "away", "recipe": QUICK["recipe"] | {"steps": 4_000}, "seeds": [5]}


@pytest.fixture(params=["alone", pytest.param("ray", marks=pytest.mark.full)])
def background(request, here, monkeypatch):
    """Processes of --detach train by themselves, or by real Ray."""
    if request.param == "alone":
        (python := here / "python").write_text(
            f'#!/bin/sh\nshift 3\ncd {ROOT}\nexec {sys.executable} -m tests.in_process "$@"\n'
        )
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        monkeypatch.setenv("LEASE_S", "6")


@pytest.mark.usefixtures("background")
def test_a_study_in_the_background_is_alone_and_is_stopped_by_name(here):
    file, home = write_study(here, LONG), here / "adder-runs"
    client_of(home)  # its tables, which take a process of its own seconds
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


# ---- new names


SEARCHED = {"space": {"recipe.lr": {"float": [0.01, 0.02]}}}


def study(**changes):
    return parse_study(yaml.safe_dump(QUICK | changes), "test")


def test_a_fresh_start_takes_the_next_name_that_is_free(home):
    ledger = Ledger(home)
    client = connect(home, f"sqlite:///{home.mlflow_db}")
    assert _renamed(study(), ledger.list_studies(), client).name == "quick-2"
    StudyRecords(ledger, "quick-2").lease.acquire()
    client.create_experiment("quick-3")
    fresh = _renamed(study(**SEARCHED), ledger.list_studies(), client)
    assert fresh == study(**SEARCHED, name="quick-4")
