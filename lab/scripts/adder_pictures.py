"""The pictures of docs/explain.md, from the page of `adder-search explain` in a headless Chromium."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from selenium import webdriver

from adders.explain.explain import Shown, explain
from trainer.checkpoints.checkpoint import Checkpoint

ROOT = Path(__file__).parents[2]
PICTURES = {
    "57p-reads": ("57p", ".look table"),
    "57p-axis": ("57p", ".axis"),
    "6p-numbers": ("6p", "#numbers .theta"),
}
"""Name: certificate, and the part of its page."""
DIGIT = 4
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,3000")


def main() -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as folder:
        for option in (*OPTIONS, f"--user-data-dir={folder}/profile"):
            options.add_argument(option)
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        browser = webdriver.Chrome(options=options, service=service)
        for name, (certificate, part) in PICTURES.items():
            checkpoint = Checkpoint.load(ROOT / "lab/certificates" / certificate)
            page = Path(folder) / f"{certificate}.html"
            page.write_text(explain([Shown(certificate, checkpoint)]), encoding="utf-8")
            browser.get(page.as_uri())
            browser.execute_script(f"go({DIGIT})")
            browser.find_element("css selector", part).screenshot(str(ROOT / f"docs/{name}.png"))
        browser.quit()


if __name__ == "__main__":
    main()
