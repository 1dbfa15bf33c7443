"""What a person sees: the MLflow UI on a finished study, in a real browser."""

import re

import pytest

from tests.browser import chromium, click, page_of, screenshots_folder, served, visible
from tests.processes import wait_until

pytestmark = pytest.mark.end_to_end


@pytest.fixture(scope="module")
def ui(smoke):
    with served(smoke.folder) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory):
    return screenshots_folder(tmp_path_factory.mktemp("screenshots"))


def test_a_person_finds_the_study_its_run_the_parameters_and_the_metrics(smoke, ui, browser, screenshots):
    browser.get(f"{ui.address}/#/experiments?workflowType=machine_learning")
    visible(browser, "Experiments", "smoke")
    browser.save_screenshot(str(screenshots / "1-experiments.png"))

    printed = ui.printed()
    assert f"{ui.address} shows {smoke.home}" in printed
    browser.get(page_of(ui, "smoke"))
    browser.refresh()
    name = re.search(r"57p [0-9a-f]{6}", visible(browser, "smoke", "Run Name", "57p "))[0]
    browser.save_screenshot(str(screenshots / "2-runs.png"))

    click(browser, name)
    visible(browser, name, "Finished", "grok_rate", "final.failed", "recipe.lr")
    shown = visible(browser, "Parameters (").split("Parameters (")[1].splitlines()
    for parameter, value in (("recipe.lr", "0.02"), ("model.tie_fc2_head", "True"), ("params", "57")):
        assert shown[shown.index(parameter) + 1] == value
    browser.save_screenshot(str(screenshots / "3-run.png"))

    page = browser.current_url.partition("?")[0]
    browser.get(f"{page}/model-metrics")
    visible(browser, "best_exact", f"{name} (best_exact)")
    browser.save_screenshot(str(screenshots / "4-metrics.png"))

    browser.get(f"{page}/artifacts/curves.png")
    visible(browser, "curves.png", "best", "trials")
    wait_until(lambda: browser.find_elements("xpath", "//img[starts-with(@src, 'blob:')]"), "the picture")
    browser.save_screenshot(str(screenshots / "5-artifacts.png"))
