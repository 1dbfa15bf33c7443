"""What a person sees in the MLflow UI, in a real browser, and that `ui` ends with all that it started."""

import os
import signal
import time
from pathlib import Path

import pytest

from search.store.home import Home
from search.store.ledger import Ledger
from search.study.file import parse_study
from search.study.trial import Configuration
from search.tracking.tracker import Tracker
from search.tracking.tracking import connect, tracking_uri
from search.tracking.views import write_views
from tests.browser import (
    chromium,
    click,
    is_healthy,
    page_of,
    screenshots_folder,
    seen,
    served,
    started,
    visible,
)
from tests.made_up import record, record_child
from tests.processes import wait_until

pytestmark = pytest.mark.end_to_end
SEEDS, GROKKED = 16, (0, 3, 12, 1, 0, 5)
"""Of each configuration: as many seeds, and how many of those grokked."""
STUDY = f"""
name: recipes
about: which learning rate and share of carry problems grok most often
model: 57p
recipe: {{steps: 10000, eval_every: 500}}
space:
  recipe.lr: {{float: [0.005, 0.08], log: true}}
  recipe.carry_mix: {{float: [0.2, 0.8]}}
seeds: {{first: 770, count: {SEEDS}}}
"""
PICTURE = Path(__file__).parents[1] / "docs" / "57p-curves.png"


def configurations():
    """Those of the study, in an order that is not that of their rates."""
    study = parse_study(STUDY, "test")
    for i in range(len(GROKKED)):
        values = {"recipe.lr": round(0.01 * 1.3**i, 4), "recipe.carry_mix": round(0.8 - 0.1 * i, 1)}
        yield Configuration(*study.configuration(values))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a home with the study is, and its views in it."""
    folder = tmp_path_factory.mktemp("ui")
    home = Home(folder / "adder-runs")
    home.create()
    Ledger(home)
    study = parse_study(STUDY, "test")
    tracker = Tracker(connect(home, tracking_uri(home)), home, study)
    for made, grokked in zip(configurations(), GROKKED, strict=True):
        run = record(tracker, made, SEEDS, grokked)
        tracker.client.log_artifact(run, str(PICTURE))
        if grokked:
            record_child(tracker, run)
    tracker.study_run()
    write_views(tracker.client, study, tracker.experiment)
    return folder


@pytest.fixture(scope="module")
def ui(folder):
    with served(folder) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory):
    return screenshots_folder(tmp_path_factory.mktemp("screenshots"))


def test_the_first_screen_says_which_configuration_groks_how_often_and_how_sure(ui, browser, screenshots):
    browser.set_window_size(1_366, 768)  # a small laptop's
    browser.get(page_of(ui, "recipes", "table"))
    visible(browser, f"{len(GROKKED)} matching runs")
    columns = ("metrics.`final.grok_rate`", "metrics.`final.grok_rate_low`", "metrics.`final.grok_rate_high`",
               "metrics.`final.seeds`", "params.`recipe.lr`", "params.`recipe.carry_mix`")  # fmt: skip

    def shows():
        return all(len(seen(browser, column)) > len(GROKKED) for column in columns)

    wait_until(shows, "columns on the screen")
    browser.refresh()
    wait_until(shows, "columns on the screen of a page that was loaded again")
    browser.save_screenshot(str(screenshots / "1-table.png"))

    shown = {c.split("`")[1]: seen(browser, c) for c in columns}
    assert [texts[0] for texts in shown.values()] == list(shown), "a column's name is cut off"
    order = sorted(range(len(GROKKED)), key=lambda i: -GROKKED[i])
    rates = [float(text) for text in shown["final.grok_rate"][1:]]
    assert rates == [GROKKED[i] / SEEDS for i in order]
    ends = zip(rates, shown["final.grok_rate_low"][1:], shown["final.grok_rate_high"][1:], strict=True)
    assert all(float(low.rstrip("…")) <= rate < float(high.rstrip("…")) for rate, low, high in ends)
    assert shown["final.seeds"][1:] == [str(SEEDS)] * len(GROKKED)
    made = [c.recipe for c in configurations()]
    best = {made[i].lr for i in order if GROKKED[i] == 12}
    assert {float(shown["recipe.lr"][1])} == best and float(shown["recipe.carry_mix"][1]) == 0.6


def test_the_charts_are_what_was_searched_against_the_rate_and_the_curves(ui, browser, screenshots):
    browser.set_window_size(1_500, 1_400)
    browser.get(page_of(ui, "recipes", "charts"))
    visible(browser, "What was searched", "Parallel Coordinates", "recipe.lr", "recipe.carry_mix")
    drawn = ".js-plotly-plot .scatterlayer path.js-line"
    wait_until(lambda: browser.find_elements("css selector", drawn), "a curve")
    visible(browser, "final.grok_rate", "best_exact", "median_exact", "loss")
    wait_until(lambda: browser.find_elements("css selector", ".parcoords svg .axis"), "the axes")
    browser.save_screenshot(str(screenshots / "2-charts.png"))
    axes = {axis.text for axis in browser.find_elements("css selector", ".parcoords svg .dimension .label")}
    assert axes == {"recipe.lr", "recipe.carry_mix", "final.grok_rate"}


def test_a_person_finds_a_configurations_parameters_metrics_and_pictures(ui, browser, screenshots):
    best = next(c for c, grokked in zip(configurations(), GROKKED, strict=True) if grokked == 12)
    browser.get(page_of(ui, "recipes", "table"))
    click(browser, best.title)
    visible(browser, best.title, "Finished", "final.failed", "Child runs", "seed 770")
    text = visible(browser, "Parameters (")
    assert "Evaluation runs" not in text, "a page about language models"
    shown = text.split("Parameters (")[1].splitlines()
    for parameter, value in (("recipe.carry_mix", "0.6"), ("model.tie_fc2_head", "True"), ("params", "57")):
        assert shown[shown.index(parameter) + 1] == value
    browser.save_screenshot(str(screenshots / "3-run.png"))

    page = browser.current_url.partition("?")[0]
    browser.get(f"{page}/artifacts/{PICTURE.name}")
    visible(browser, PICTURE.name)
    wait_until(lambda: browser.find_elements("xpath", "//img[starts-with(@src, 'blob:')]"), "the picture")
    browser.save_screenshot(str(screenshots / "4-artifacts.png"))


# ---- the end


def test_ui_ends_while_it_is_coming_up(folder):
    with started(folder) as (command, address):
        command.wait_for(lambda: address in command.printed(), "its address")
        time.sleep(1)  # it loads MLflow's server
        _ends(command, signal.SIGTERM)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("seconds", [0, 0.5, 2, 4])
def test_ui_ends_with_all_that_it_started_whenever_that_is(folder, number, seconds):
    with started(folder) as (command, address):
        command.wait_for(lambda: address in command.printed(), "its address")
        time.sleep(seconds)
        _ends(command, number)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGINT])
def test_ui_ends_with_all_that_it_started_while_it_serves(folder, number):
    with started(folder) as (command, address):
        command.wait_for(lambda: is_healthy(address), "health")
        _ends(command, number, code=0 if number == signal.SIGINT else -number)


def _ends(command, number, code=None):
    os.kill(command.process.pid, number)
    said = command.wait(10)
    assert said.code == (-number if code is None else code) and said.err == ""
    assert command.gone(10), "it left processes behind"
