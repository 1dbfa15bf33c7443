"""A study's life from the command line: in the background, stopped, limited, extended, begun afresh."""

import re
import subprocess
import sys

import pytest
import yaml

from search.cli.run import _renamed
from search.errors import UserError
from search.run.extension import check_extension
from search.store.ledger import Ledger
from search.store.tracking import connect
from search.study.file import parse_study
from tests.commands import COMMAND, adder_search, own_environment
from tests.processes import wait_until
from tests.reference import QUICK, check_whole, expected, rows_of, write_study

pytestmark = pytest.mark.end_to_end

LONG = QUICK | {"name": "away", "recipe": QUICK["recipe"] | {"steps": 4_000}}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_a_study_in_the_background_is_alone_and_is_stopped_and_resumed_by_name(tmp_path):
    file, home = write_study(tmp_path, LONG), tmp_path / "adder-runs"
    # not through `running`, which ends a command's descendants with it
    words = [str(COMMAND), "run", file, "--detach"]
    said = subprocess.run(words, cwd=tmp_path, env=own_environment(), capture_output=True, text=True)
    assert said.returncode == 0 and "away: runs as process" in said.stdout, said
    try:
        wait_until(
            lambda: any(r["outcome"] == "running" for r in rows_of(home, "away")), "nothing has begun to run"
        )
        second = adder_search("run", file, cwd=tmp_path)
        assert (second.code, second.out) == (2, ""), second
        assert "study away is already being run by" in second.err and second.err.count("\n") == 1
    finally:
        stopped = adder_search("stop", "away", cwd=tmp_path)
    assert stopped.code == 0 and "To go on:\n  adder-search run away" in stopped.out, stopped
    assert {(r["outcome"], r["reason"]) for r in rows_of(home, "away")} == {("censored", "stopped")}
    (log,) = (home / "logs").glob("away-*.log")
    assert "To go on:\n  adder-search run away" in log.read_text()
    again = adder_search("stop", "away", cwd=tmp_path)
    assert (again.code, again.err) == (2, "error: study away is not running\n")

    (tmp_path / "away.yaml").unlink()  # the ledger knows it
    said = adder_search("resume", "away", "--max-hours", "0.0001", cwd=tmp_path)
    assert said.code == 130, said
    assert "To go on:\n  adder-search run away" in said.out


def test_a_finished_study_is_extended_by_editing_its_file(tmp_path):
    home = tmp_path / "adder-runs"
    short = QUICK | {"seeds": {"first": 5, "count": 2}}
    assert adder_search("run", write_study(tmp_path, short), cwd=tmp_path).code == 0
    before = rows_of(home, "quick")
    said = adder_search("run", write_study(tmp_path, QUICK), cwd=tmp_path)
    assert said.code == 0, said
    assert rows_of(home, "quick")[:2] == before, "what was recorded stays as it is"
    check_whole(home, QUICK, tmp_path, expected(QUICK))


# ---- what a file may not become, and new names


def row(number, confirmation=False):
    return {"init_seed": number, "data_seed": number, "confirmation": confirmation}


def study(**changes):
    return parse_study(yaml.safe_dump(QUICK | changes), "test")


SEARCHED = {"space": {"recipe.lr": {"float": [0.01, 0.02]}}}


@pytest.mark.parametrize(
    ("before", "now", "rows", "problem"),
    [
        ({}, SEARCHED, [], "was begun as a list, the file now has a space"),
        (SEARCHED, {}, [], "was begun as a search, the file now has no space"),
        ({}, {"confirm": {"seeds": [90]}}, [row(90)], "confirm.seeds: 90 was a seed of the search"),
        ({}, {"seeds": [5, 90]}, [row(90, True)], "seeds: 90 was used to confirm"),
    ],
)
def test_a_file_that_would_mix_what_cannot_be_compared_is_refused(before, now, rows, problem):
    known = study(**before).model_dump(mode="json", by_alias=True)
    with pytest.raises(UserError, match=re.escape(f"study quick: {problem}")):
        check_extension(study(**now), known, rows)


@pytest.mark.parametrize(
    "now",
    [
        {"seeds": {"first": 1, "count": 90}},
        {"recipe": QUICK["recipe"] | {"steps": 120}},
        {"until": {"grokked": 2, "max_seeds": 16}},
        {"confirm": {"seeds": [91]}},
    ],
)
def test_a_file_that_asks_for_more_goes_on(now):
    check_extension(study(**now), study().model_dump(mode="json", by_alias=True), [row(5), row(92, True)])
    check_extension(study(**now), None, [])


def test_a_fresh_start_takes_the_next_name_that_is_free(home):
    ledger = Ledger(home)
    client = connect(home, f"sqlite:///{home.mlflow_db}")
    assert _renamed(study(), ledger, client).name == "quick-2"
    ledger.hold("quick-2", {}, None)
    client.create_experiment("quick-3")
    fresh = _renamed(study(**SEARCHED), ledger, client)
    assert fresh == study(**SEARCHED, name="quick-4")
