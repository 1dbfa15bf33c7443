"""A study that goes on until enough seeds have grokked: every command prints the interval for stopping there."""

import json

import pytest

from search.cli import render
from search.stats.intervals import mid_p, stopped
from tests.commands import done
from tests.homes import Recorder, empty_home, quickly, records_of, study_of

STUDY = study_of(
    toggle=["tie_vo"],
    until={"grokked": 1, "max_seeds": 8},
    confirm={"configurations": 1, "seeds": {"first": 90001, "count": 4}},
)
LOW, HIGH = stopped(1, 3, 3)
RIGHT = f"{LOW:.1%} to {HIGH:.1%}"
WRONG = ["{:.1%} to {:.1%}".format(*mid_p(k, n)) for k, n in ((1, 4), (3, 8), (2, 8))]
"""Of the search as if it had not stopped, and of search and confirmation together."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The third of four seeds grokked, its partner's too, and then two of four fresh ones."""
    with quickly():
        study = Recorder(empty_home(tmp_path_factory.mktemp("home")), STUDY)
        study.seeds((1, 2, 3, 4), grokked=(3,))
        study.seeds((90001, 90002, 90003, 90004), grokked=(90001, 90002), confirmation=True)
        study.seeds((1, 2, 3, 4), study.configurations[1], grokked=(3,))
        return study.done()


def has_right_interval(text):
    return RIGHT in text and not any(wrong in text for wrong in WRONG)


def test_the_end_of_a_run(home):
    lines = render._rates(STUDY, records_of(home).list_seeds(), {})
    place = "in the file's order 1 of the first 3 seeds grokked"
    assert sum(RIGHT in line and "1 of 4 grokked, then it stopped" in line and place in line for line in lines) == 2
    assert any("2 of 4" in line and "1 of 4 in the search" in line for line in lines)


def test_best(home):
    text = done("best", "sweep", "--home", home)
    assert has_right_interval(text)
    assert f"1 of 4 (stopped at a success; {RIGHT})" in text and "2 of 4 (9.4% to 90.6%)" in text
    (row,) = json.loads(done("best", "sweep", "--json", "--home", home))["front"]
    assert (row["grok_rate_low"], row["grok_rate_high"]) == pytest.approx((LOW, HIGH)) and row["stopped"]


def test_table(home):
    text = done("table", "sweep", "--ui", "", "--home", home)
    assert "went on until enough seeds had grokked has too high a share, and no ratio" in text
    (cell,) = json.loads(done("table", "sweep", "--format", "json", "--home", home))
    assert (cell["pairs"], cell["ratio"]) == (0, None)
    assert cell["with_at_most"] == pytest.approx(HIGH)


def test_report_and_records(home, tmp_path):
    page, file = tmp_path / "report.html", tmp_path / "c.json"
    done("report", "sweep", "-o", page, "--home", home)
    assert has_right_interval(page.read_text())
    done("records", "sweep", "-o", file, "--home", home)
    rows = json.loads(file.read_text())
    assert len(rows) == 2 and all(r["stopped"] for r in rows)
    assert all((r["grok_rate_low"], r["grok_rate_high"]) == pytest.approx((LOW, HIGH)) for r in rows)
