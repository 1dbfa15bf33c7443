"""Every place that shows a rate shows the same interval, and none where no seed has ended."""

import json

import pandas as pd
import pytest

from reports.arms import read_arms
from search.analysis.frames import configuration_rows, records, seeds_of
from search.cli import render
from search.stats.counting import GrokRate, few_digits
from search.stats.intervals import LEVEL, exact_high, mid_p
from tests.commands import done
from tests.homes import Recorder, empty_home, quickly, records_of, study_of
from trainer import Outcome

RUNG = "token 0.35 at 1000"
STUDY = study_of(
    stop={"screen": {"at": 1_000, "keep": {"token": 0.35}}},
    confirm={"configurations": 1, "hopeless": True, "seeds": {"first": 90001, "count": 8}},
)
CALLED = {"screen": RUNG}
ENDED = {"outcome": Outcome.SCREENED, **CALLED}
GIVEN_UP = {"outcome": Outcome.GIVEN_UP, "hopeless_step": 2_000}
SEARCH = mid_p(1, 8)[0], mid_p(1 + 4 * exact_high(0, 2, LEVEL), 8)[1]
"""One of eight grokked; the screen ended four, and none of two that it spared grokked."""
FRESH = mid_p(1, 4)[0], mid_p(3, 4)[1]
"""One of four grokked, and two were given up without any that was spared."""


def shown(interval):
    return "{:.1%} to {:.1%}".format(*interval)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with quickly():
        place = empty_home(tmp_path_factory.mktemp("home"))
        study = Recorder(place, STUDY)
        study.seeds(range(1, 9), grokked=(3,), changes={**dict.fromkeys((4, 5, 6, 7), ENDED), 1: CALLED, 2: CALLED})
        fresh = dict.fromkeys((90003, 90004), GIVEN_UP)
        study.seeds(range(90001, 90005), grokked=(90001,), changes=fresh, confirmation=True)
        study.done()
        unended = Recorder(place, study_of(name="unended"))
        unended.censored(range(1, 5))
        return unended.done()


def metrics_of(home, study):
    """What MLflow has of a study's first configuration."""
    shown = Recorder(records_of(home).home, study)
    run = shown.tracker.client.get_run(shown.tracker.run_of(shown.configuration).id)
    shown.done()
    return run.data.metrics


def test_text(home, tmp_path, monkeypatch):
    monkeypatch.setattr("reports.report.image_of", lambda figure, suffix: b"SVG")  # pictures take seconds
    page = tmp_path / "report.html"
    done("report", "sweep", "-o", page, "--home", home)
    run = "\n".join(render._rates(STUDY, records_of(home).list_seeds(), {}))
    for text in (run, done("status", "sweep", "--home", home), page.read_text()):
        assert shown(SEARCH) in text and shown(FRESH) in text
        assert "2 of 12 grokked" not in text, "nothing is pooled"
    for text in (done("status", "sweep", "--home", home), page.read_text()):
        assert "4 of 8" in text and "4 of 12" not in text, "what rules did is of the search too"
        assert f"{few_digits(1e6 / (8 * STUDY.listed[0][1].steps), 3)} grokked per million" in text
    assert f"1 of 8 ({shown(SEARCH)})" in done("best", "--home", home)
    assert f"1 of 4 ({shown(FRESH)})" in done("best", "--home", home)


def test_data(home, tmp_path):
    (best,) = json.loads(done("best", "--json", "--home", home))["front"]
    (status,) = json.loads(done("status", "sweep", "--json", "--home", home))["studies"]
    done("records", "sweep", "-o", file := tmp_path / "rows.json", "--home", home)
    (recorded,) = json.loads(file.read_text())
    mlflow = {name.removeprefix("final."): value for name, value in metrics_of(home, STUDY).items()}
    for row in (best, recorded, mlflow):
        assert (row["grok_rate"], row["grok_rate_low"], row["grok_rate_high"]) == pytest.approx((1 / 8, *SEARCH))
        assert (row["confirmation_low"], row["confirmation_high"]) == pytest.approx(FRESH)
        assert (row["grokked"], row["seeds"], row["confirmation_seeds"]) == (1, 8, 4)
    for name in ("seed_steps", "grokked_per_million"):
        assert status[name] == recorded[name] == mlflow[name], name
    assert status["interval"] == pytest.approx(SEARCH) and status["confirmation_interval"] == pytest.approx(FRESH)
    rows = records_of(home)
    for seeds in ([], rows.list_seeds()):
        (arm,) = read_arms(configuration_rows(rows), seeds)
        assert (arm.grokked, arm.n) == (1, 8) and arm.interval == pytest.approx(SEARCH)


def test_rows_without_the_columns_of_a_rule_have_the_widest_interval(home):
    frame = records("sweep", home=home)
    frame = frame[~frame["confirmation"]]
    assert GrokRate.of(seeds_of(frame)).interval == SEARCH
    without = frame.drop(columns=["screen"])
    assert GrokRate.of(seeds_of(without)).interval == (SEARCH[0], mid_p(1 + 4, 8)[1])


def test_nothing_is_known_where_no_seed_has_ended(home, tmp_path):
    (status,) = json.loads(done("status", "unended", "--json", "--home", home))["studies"]
    unknown = ("grok_rate", "interval", "best_exact", "grokked_per_million", "core_s_per_grokked")
    assert [status[name] for name in unknown] == [None] * 5
    done("records", "unended", "-o", file := tmp_path / "rows.csv", "--home", home)
    (row,) = pd.read_csv(file).to_dict("records")
    rates = ("grok_rate", "grok_rate_low", "grok_rate_high", "confirmation_rate", "confirmation_high")
    for name in (*rates, "best_exact", "grokked_per_million", "core_s_per_grokked", "median_grok_step"):
        assert row[name] != row[name], name
    metrics = metrics_of(home, study_of(name="unended"))
    named = {name for name in metrics if any(word in name for word in ("rate", "best", "per", "rank", "median"))}
    assert not named and metrics["final.censored"] == 4
    seeds = records("unended", home=home)
    assert seeds[["best_step", "best_exact", "best_token"]].isna().all(axis=None)
    assert "4 interrupted" in done("status", "unended", "--home", home)


@pytest.mark.parametrize("of", ["seeds", "configurations", "curves"])
def test_a_file_without_rows_has_its_columns(of, home, tmp_path):
    Recorder(records_of(home).home, study_of(name="empty")).done()
    study = "unended" if of == "curves" else "empty"
    done("records", study, "--of", of, "-o", file := tmp_path / "rows.csv", "--home", home)
    columns = list(pd.read_csv(file))
    assert len(columns) >= 9 and set(columns) <= set(records("sweep", of, home=home))
