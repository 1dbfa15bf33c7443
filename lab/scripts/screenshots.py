"""Make the pictures of the pages: `python -m lab.scripts.screenshots HOME STUDY FOLDER`; chromium must be installed.

STUDY-report.png, -dark.png and -narrow.png are of its report, STUDY-ui.png of its table in MLflow's UI. The tutorial's
pictures, docs/tutorial-report.png and docs/tutorial-ui.png, are those of its study `again`, renamed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

COMMAND = [sys.executable, "-P", "-m", "adder_search"]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
PORT, WAIT_S, DRAWN_MS = 5077, 120.0, 20_000


def picture(address: str, target: Path, width: int, height: int, *flags: str) -> None:
    """Write a picture of a page as a browser with a profile of its own shows it."""
    with tempfile.TemporaryDirectory() as profile:
        size = [
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            f"--screenshot={target.resolve()}",
        ]
        subprocess.run(["chromium", *FLAGS, *size, *flags, address], check=True, capture_output=True, timeout=180)


def reports(home: str, study: str, folder: Path) -> None:
    """Write the pictures of a study's report."""
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "page.html")
        subprocess.run([*COMMAND, "report", study, "-o", str(page), "--home", home], check=True)
        for name, width, flags in (("report", 1300, ()), ("dark", 1300, (DARK,)), ("narrow", 500, ())):
            picture(page.as_uri(), folder / f"{study}-{name}.png", width, 1450, *flags)


def interface(home: str, study: str, folder: Path) -> None:
    """Write a picture of a study's table in MLflow's UI."""
    words = [*COMMAND, "ui", "--no-browser", "--no-auth", "--port", str(PORT), "--home", home]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            lines = iter(server.stdout.readline, "")
            next(line for line in lines if line.strip() == study)
            address = re.sub(r"^\s*\w+\s+", "", next(lines)).strip()
            _wait(f"http://127.0.0.1:{PORT}/health")
            picture(address, folder / f"{study}-ui.png", 1500, 470, f"--virtual-time-budget={DRAWN_MS}")
        finally:
            server.terminate()


def _wait(address: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise TimeoutError(address)


if __name__ == "__main__":
    home, study, folder = sys.argv[1:]
    reports(home, study, Path(folder))
    interface(home, study, Path(folder))
