"""forgeformer's page in a real browser: it needs nothing from elsewhere, and its model is Python's."""

import re

import numpy as np
import pytest

from model import forged
from tests.browser import chromium
from tests.commands import call


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "forgeformer.html"
    assert call("forge", "37", "46", "--page", page).exit_code == 0
    return page


def test_the_page_needs_nothing_from_elsewhere(written):
    source = written.read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\b", source)
    assert re.findall(r"(?:src|href)\s*=\s*[\"']?([^\"'>\s]*)", source) == ["data:,"]


def test_it_adds_as_python_does_and_shows_every_state(written, tmp_path):
    from selenium.webdriver import Keys

    with chromium(tmp_path) as page:
        page.get(written.as_uri())
        for forging in forged.FORGINGS.values():
            for a, b in ((1, 1), (37, 46), (99, 99)):
                ours, theirs = (
                    forged.forge(a, b, forging),
                    page.execute_script("return forge(...arguments)", a, b, forging.name),
                )
                for name in forged.STATES:
                    np.testing.assert_allclose(theirs["states"][name], ours.states[name], rtol=0, atol=1e-12)
                for name in ("units_sum", "tens_sum", "carry", "answer"):
                    assert theirs[name] == getattr(ours, name), name
        shown, forward = set(), page.find_element("id", "next")
        while True:
            shown |= {
                t.get_attribute("data-name") for t in page.find_elements("css selector", "#stage table")
            }
            if not forward.is_enabled():
                break
            forward.click()
        assert shown >= {*forged.STATES, *forged.WEIGHTS}
        page.find_element("id", "b").send_keys(Keys.END, Keys.BACKSPACE * 2, "7")
        assert page.find_element("id", "answer").text == "44"
        assert page.get_log("browser") == []
