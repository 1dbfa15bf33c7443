"""forgeformer's page in a real browser: its model is Python's, one can step through it, it stays offline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model import forged
from search.cli.forge import PLACEHOLDER, html
from tests.browser import chromium

STEPS = 15
PAIRS = [(1, 1), (37, 46), (99, 99)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("page") / "forgeformer.html"
    target.write_text(html(forged.forge(37, 46)), encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def page(written: Path, browser: Any) -> Any:
    browser.get(written.as_uri())
    return browser


def text(page: Any, css: str) -> str:
    return str(page.execute_script("return document.querySelector(arguments[0]).innerText", css)).strip()


def type_into(page: Any, field: str, words: str) -> None:
    from selenium.webdriver import Keys

    page.find_element("id", field).send_keys(Keys.END, Keys.BACKSPACE * 4, words)


def press(page: Any, button: str) -> None:
    page.find_element("css selector", button).click()


def step(page: Any) -> str:
    return text(page, ".kicker").partition("step ")[2]


def matrix(page: Any, name: str) -> list[list[str]]:
    """A matrix of the step as it is shown."""
    script = """return [...document.querySelectorAll(`#stage table[data-name="${arguments[0]}"] tbody tr`)]
        .map(row => [...row.querySelectorAll("td")].map(cell => cell.innerText))"""
    return [[cell.replace("−", "-") for cell in row] for row in page.execute_script(script, name)]


# ---- the file


def test_the_page_needs_nothing_from_elsewhere(written: Path) -> None:
    source = written.read_text(encoding="utf-8")
    assert PLACEHOLDER not in source
    assert not re.search(r"https?:|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\b", source)
    assert re.findall(r"(?:src|href)\s*=\s*[\"']?([^\"'>\s]*)", source) == ["data:,"]


# ---- the model in it


@pytest.mark.parametrize("forging", forged.FORGINGS.values(), ids=forged.FORGINGS)
def test_its_states_are_pythons(page: Any, forging: forged.Forging) -> None:
    for a, b in PAIRS:
        here = forged.forge(a, b, forging)
        there = page.execute_script("return forge(...arguments)", a, b, forging.name)
        assert set(there["states"]) == set(forged.STATES)
        for name, state in here.states.items():
            np.testing.assert_allclose(there["states"][name], state.numpy(), rtol=0, atol=1e-12)
        for name in ("units_sum", "tens_sum", "carry", "answer"):
            assert there[name] == getattr(here, name), name


# ---- what a person does


def test_one_steps_through_every_state(page: Any) -> None:
    assert (text(page, "#answer"), step(page)) == ("83", f"1 of {STEPS}")
    seen: set[str] = set()
    script = "return [...document.querySelectorAll('#stage table')].map(t => t.dataset.name)"
    for n in range(1, STEPS + 1):
        assert step(page) == f"{n} of {STEPS}"
        seen |= set(page.execute_script(script))
        if n < STEPS:
            press(page, "#next")
    assert seen >= {*forged.STATES, *forged.WEIGHTS} and not page.find_element("id", "next").is_enabled()
    press(page, "#forgings button[value='literal']")
    assert text(page, "#answer") == "63"
    assert page.get_log("browser") == []


def test_typing_adds_other_numbers(page: Any) -> None:
    press(page, "#map button[value='7']")
    type_into(page, "a", "58")
    type_into(page, "b", "7")
    assert text(page, "#answer") == "65"
    assert matrix(page, "x2")[-1] == ["15", "0", "1"]
    type_into(page, "b", "100")
    assert text(page, "#problem") == "The second number must be a whole number from 1 to 99."
