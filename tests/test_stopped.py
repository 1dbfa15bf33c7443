"""A study that goes on until enough seeds have grokked: its share is too high for that, and each command that
prints it prints the interval for stopping there.
"""

import json

import pytest

from search.cli import texts
from search.stats.intervals import stopped, wilson
from search.store.home import Home
from search.store.ledger import Ledger
from tests.commands import call
from tests.homes import Recorder, empty_home, quickly, study_of

STUDY = """
name: sweep
model: 57p
recipe: {steps: 3000, fade_start: 100, fade_end: 200}
toggle: [tie_vo]
seeds: {first: 1, count: 4}
until: {grokked: 1, max_seeds: 8}
confirm: {configurations: 1, seeds: {first: 90001, count: 4}}
"""
LOW, HIGH = stopped(1, 3, 3)
RIGHT = f"{LOW:.1%} to {HIGH:.1%}"
WRONG = ["{:.1%} to {:.1%}".format(*wilson(k, n)) for k, n in ((1, 4), (3, 8), (2, 8))]
"""Of the search as if it had not stopped, and of search and confirmation together."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The third of four seeds grokked, its partner's too, and then two of four fresh ones."""
    folder = tmp_path_factory.mktemp("home")
    with quickly():
        study = Recorder(empty_home(folder), study_of(STUDY))
        study.trial((1, 2, 3, 4), grokked=(3,))
        study.trial((90001, 90002, 90003, 90004), grokked=(90001, 90002), confirmation=True)
        study.trial(work=[(study.configurations[1], n) for n in (1, 2, 3, 4)], grokked=(3,))
        study.done()
    return folder


def said(home, *words):
    found = call(*words, "--home", home)
    assert found.exit_code == 0, found.stderr
    return found.stdout


def is_right(text, right=RIGHT):
    assert right in text, text
    assert not [wrong for wrong in WRONG if wrong in text]


def test_what_a_run_says_at_its_end(home):
    study, rows = study_of(STUDY), Ledger(Home(home)).list_seeds("sweep")
    lines = texts._rates(study, rows, {})
    assert sum(RIGHT in line and "1 of 4" in line and "negative binomial" in line for line in lines) == 2
    assert [line for line in lines if "2 of 4" in line and "1 of 4 in the search" in line]


def test_best(home):
    text = said(home, "best", "sweep")
    is_right(text)
    assert f"1 of 4 (stopped there: {RIGHT})" in text and "2 of 4 (15.0% to 85.0%)" in text
    (row,) = json.loads(said(home, "best", "sweep", "--json"))["front"]
    assert (row["grok_rate_low"], row["grok_rate_high"]) == pytest.approx((LOW, HIGH)) and row["stopped"]


def test_table(home):
    text = said(home, "table", "sweep", "--ui", "")
    assert f"(stopped there: {100 * LOW:.1f}–{100 * HIGH:.1f})" in text and "negative binomial" in text
    cells = json.loads(said(home, "table", "sweep", "--format", "json"))
    assert [(c["with_low"], c["with_high"]) for c in cells] == [pytest.approx((LOW, HIGH))]


def test_report(home, tmp_path):
    page = tmp_path / "report.html"
    said(home, "report", "sweep", "-o", page)
    is_right(page.read_text())


def test_records(home, tmp_path):
    file = tmp_path / "c.json"
    said(home, "records", "sweep", "-o", file)
    rows = json.loads(file.read_text())
    assert [(r["grok_rate_low"], r["grok_rate_high"], r["stopped"]) for r in rows] == [
        (pytest.approx(LOW), pytest.approx(HIGH), True)
    ] * 2


def test_status_of_one_configuration(tmp_path):
    with quickly():
        study = Recorder(empty_home(tmp_path), study_of(STUDY.replace("toggle: [tie_vo]\n", "")))
        study.trial((1, 2, 3, 4), grokked=(3,))
        study.trial((90001, 90002, 90003, 90004), grokked=(90001, 90002), confirmation=True)
        study.done()
    text = said(tmp_path, "status")
    is_right(text)
    assert "grok rate 1/4 (95 % interval for stopping there" in text
