"""forgeformer's page in a real browser: its model is Python's, one can step through it, it stays offline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model import forged
from search.cli.forge import PLACEHOLDER, html
from tests.test_ui import browser  # noqa: F401  (a fixture)

STEPS = 15
PAIRS = [(1, 1), (37, 46), (99, 99), (10, 90), (5, 5), (9, 1), (50, 49), (4, 77), (19, 81), (88, 12)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("page") / "forgeformer.html"
    target.write_text(html(forged.forge(37, 46)), encoding="utf-8")
    return target


@pytest.fixture
def page(written: Path, browser: Any) -> Any:  # noqa: F811
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


def test_nothing_is_requested_and_nothing_goes_wrong(page: Any) -> None:
    for _ in range(STEPS - 1):
        press(page, "#next")
    assert page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    assert page.get_log("browser") == []


def test_the_template_alone_says_where_it_comes_from(tmp_path: Path, page: Any) -> None:
    template = Path(forged.__file__).with_name("forgeformer.html")
    page.get(template.as_uri())
    assert "adder-search forge --page FILE" in text(page, "body")


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


@pytest.mark.parametrize(("forging", "short"), [("published", 0), ("literal", 20), ("corrected", 0)])
def test_all_its_sums(page: Any, forging: str, short: int) -> None:
    script = """let found = 0;
        for (let a = 1; a < 100; a++)
          for (let b = 1; b < 100; b++) found += forge(a, b, arguments[0]).answer === a + b - arguments[1];
        return found;"""
    assert page.execute_script(script, forging, short) == 9_801


# ---- what a person does


def test_it_begins_with_the_pair_it_was_written_for(page: Any) -> None:
    assert (text(page, "#answer"), step(page)) == ("83", f"1 of {STEPS}")
    assert text(page, "#about") == (
        "The published matrices; the end token has no digit: right on 9,801 of the 9,801 pairs."
    )
    assert text(page, "#size").startswith("54 numbers in six matrices, 6 of them not 0.")


def test_typing_adds_other_numbers(page: Any) -> None:
    press(page, "#map button[value='7']")
    type_into(page, "a", "58")
    type_into(page, "b", "7")
    assert text(page, "#answer") == "65"
    assert matrix(page, "v1") == [
        ["10", "0", "0"],
        ["16", "0", "0"],
        ["0", "0", "0"],
        ["14", "0", "0"],
        ["0"] * 3,
    ]
    assert matrix(page, "x2")[-1] == ["15", "0", "1"]
    assert text(page, ".how").startswith("x2[eos, accumulator] = 0 + ~0 · 10 + 0.5 · 16 + ~0 · 0 + 0.5 · 14")


def test_stepping_shows_every_state(page: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    seen: list[str] = []
    for n in range(1, STEPS + 1):
        assert step(page) == f"{n} of {STEPS}"
        found = page.execute_script(
            "return [...document.querySelectorAll('#stage table')].map(t => t.dataset.name)"
        )
        seen += [name for name in found if name not in seen]
        if n % 2:
            press(page, "body")
            ActionChains(page).send_keys(Keys.ARROW_RIGHT).perform()
        elif n < STEPS:
            press(page, "#next")
    assert set(seen) >= {*forged.STATES, *forged.WEIGHTS}
    assert not page.find_element("id", "next").is_enabled()
    ActionChains(page).send_keys(Keys.ARROW_LEFT).perform()
    assert step(page) == f"{STEPS - 1} of {STEPS}"
    press(page, "#back")
    assert step(page) == f"{STEPS - 2} of {STEPS}"


def test_the_answer_is_explained(page: Any) -> None:
    press(page, f"#map button[value='{STEPS - 1}']")
    shown = text(page, ".answer")
    assert "carry: 13 is 10 or more; 3 stays" in shown
    assert "(7 + 1) · 10 + 3" in shown
    assert text(page, ".verdict") == "37 + 46 is 83."
    press(page, "#forgings button[value='literal']")
    assert (text(page, "#answer"), text(page, ".verdict")) == ("63", "Wrong: 37 + 46 is 83.")
    press(page, "#forgings button[value='corrected']")
    assert (text(page, "#answer"), text(page, ".verdict")) == ("83", "37 + 46 is 83.")
    assert "7 of them not 0" in text(page, "#size")


def test_attention_is_drawn_and_a_number_explained_where_one_points(page: Any) -> None:
    press(page, "#map button[value='11']")
    assert text(page, ".how").startswith(
        "attn2[eos, tens a] = e100 / (e100 + e−100 + e100 + e−100 + e100) = 0.333"
    )
    assert len(page.find_elements("css selector", "#stage svg path")) == 3
    press(page, "#stage table[data-name='attn2'] td[data-r='1'][data-c='3']")
    assert text(page, ".how").startswith("attn2[units a, units b] = e100 / ")
    assert len(page.find_elements("css selector", "#stage svg path")) == 2


def test_all_steps_at_once(page: Any) -> None:
    press(page, "#all")
    assert len(page.find_elements("css selector", "#stage section")) == STEPS
    press(page, "#all")
    assert len(page.find_elements("css selector", "#stage section")) == 1


@pytest.mark.parametrize("bad", ["", "0", "100", "-5", "3.5", "1e1"])
def test_wrong_input_is_told_and_mended(page: Any, bad: str) -> None:
    type_into(page, "b", bad)
    assert text(page, "#problem") == "The second number must be a whole number from 1 to 99."
    assert text(page, "#answer") == "?"
    assert not any(b.is_enabled() for b in page.find_elements("css selector", "nav button"))
    type_into(page, "b", "9")
    assert (text(page, "#problem"), text(page, "#answer")) == ("", "46")
    assert page.find_element("id", "next").is_enabled()


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen(page: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.refresh()
        press(page, "#all")
        script = """return [...document.querySelectorAll("body *")].filter(e => e.checkVisibility()
            && e.getBoundingClientRect().right > arguments[0]).map(e => e.outerHTML.slice(0, 80))"""
        assert page.execute_script(script, width) == []
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
