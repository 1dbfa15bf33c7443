"""What a person sees: the MLflow UI on a finished study, in a real browser."""

import os
import re
import shutil
import signal
import socket
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.commands import running

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(240)]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1500,1400",
)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, what, timeout=90):
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not after {timeout} s"
        time.sleep(0.25)
    return found


def is_healthy(address):
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def ui(smoke):
    """A running `adder-search ui`: its address and what it printed. Ended as a supervisor ends it."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with running("ui", "--port", str(port), cwd=smoke.folder) as command:
        wait_until(lambda: is_healthy(address) or command.process.poll() is not None, "health")
        assert command.process.poll() is None, command.wait()
        yield SimpleNamespace(address=address, printed=command.printed)
        os.kill(command.process.pid, signal.SIGTERM)
        said = command.wait(30)
        assert said.code == 128 + signal.SIGTERM
        assert "Traceback" not in said.err
        assert command.gone(), "the server left processes behind"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no browser here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(option)
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    found.set_page_load_timeout(90)
    yield found
    found.quit()


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory):
    folder = Path(os.environ.get("ADDER_SEARCH_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def visible(browser, *words, timeout=90):
    """Wait until the page shows all these words."""

    def text():
        shown = browser.execute_script("return document.body ? document.body.innerText : ''")
        return all(word in shown for word in words) and shown

    return wait_until(text, f"the page shows {words}", timeout)


def click(browser, text):
    """Click on the link that says this, as soon as there is one."""
    find = f"//a[normalize-space(.)='{text}']"
    wait_until(lambda: browser.find_elements("xpath", find), f"a link that says {text}")
    browser.execute_script("arguments[0].click()", browser.find_elements("xpath", find)[0])


def test_a_person_finds_the_study_its_run_the_parameters_and_the_metrics(smoke, ui, browser, screenshots):
    browser.get(f"{ui.address}/#/experiments?workflowType=machine_learning")
    visible(browser, "Experiments", "smoke")
    browser.save_screenshot(str(screenshots / "1-experiments.png"))

    printed = ui.printed()
    assert f"{ui.address} shows {smoke.home}" in printed
    (link,) = (line.split()[1] for line in printed.splitlines() if line.startswith("  smoke: "))
    browser.get(link)
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
    wait_until(lambda: browser.find_elements("xpath", "//img[starts-with(@src, 'blob:')]"), "the picture", 30)
    browser.save_screenshot(str(screenshots / "5-artifacts.png"))
