"""A headless browser and a running MLflow UI, for the tests of what a person sees."""

import contextlib
import os
import shutil
import signal
import urllib.request
from types import SimpleNamespace

import pytest

from tests.commands import running
from tests.processes import PATIENCE_S, free_port, wait_until

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1500,1400",
)  # fmt: skip


@contextlib.contextmanager
def started(folder, *options):
    """`adder-search ui` on a folder's home, without a terminal, and its address."""
    port = free_port()
    with running("ui", "--port", port, *options, cwd=folder) as command:
        yield command, f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def served(folder):
    """A running `adder-search ui`: its address and what it printed. Who asks before it is up waits and
    is served; nothing else runs, so nothing can be left; and it ends as a supervisor ends it.
    """
    with started(folder) as (command, address):
        command.wait_for(lambda: address in command.printed(), "its address")
        with urllib.request.urlopen(f"{address}/health", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        yield SimpleNamespace(address=address, printed=command.printed)
        assert command.descendants() == []
        os.kill(command.process.pid, signal.SIGTERM)
        said = command.wait(30)
        assert said.code == -signal.SIGTERM and "Traceback" not in said.err, said


def page_of(ui, study, what):
    """The address that the command printed below a study's name, for a browser that has opened the first."""
    _, _, mine = ui.printed().partition(f"\n  {study}\n")
    return next(line.split()[1] for line in mine.splitlines() if line.split()[0] == what)


def entrance_of(ui):
    """The address with the token that the command printed first."""
    return ui.printed().split()[0]


@contextlib.contextmanager
def chromium(profile):
    """Selenium's driver of a headless Chromium; without one the tests are skipped."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("no browser here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        found.set_page_load_timeout(PATIENCE_S)
        yield found
    finally:
        found.quit()


def visible(browser, *words):
    """Wait until the page shows all these words."""

    def text():
        shown = browser.execute_script("return document.body ? document.body.innerText : ''")
        return all(word in shown for word in words) and shown

    return wait_until(text, f"the page shows {words}")
