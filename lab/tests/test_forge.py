"""forgeformer: the command that shows it, and its page in a real browser, whose model is Python's."""

import json
import re

import numpy as np
import pytest

from lab import forged
from lab.forged import CORRECTED, STATES
from tests.browser import chromium
from tests.commands import call, done


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "forgeformer.html"
    done("forge", "37", "46", "--page", page)
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
            shown |= {t.get_attribute("data-name") for t in page.find_elements("css selector", "#stage table")}
            if not forward.is_enabled():
                break
            forward.click()
        assert shown >= {*forged.STATES, *forged.WEIGHTS}
        page.find_element("id", "b").send_keys(Keys.END, Keys.BACKSPACE * 2, "7")
        assert page.find_element("id", "answer").text == "44"
        assert page.get_log("browser") == []


def test_the_trace_shows_the_sum_and_every_state():
    lines = call("forge", "37", "46").output.splitlines()
    assert lines[0] == "37 + 46 = 83"
    assert lines[2] == "54 numbers, 6 not 0; right on 9,801 of 9,801 pairs"
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")][3:] == [*STATES, "answer"]
    rows = [line.split() for line in lines]
    assert ["units", "a", "4.667", "7", "-1"] in rows and ["eos", "13", "0", "1"] in rows
    wrong = call("forge", "37", "46", "--forging", "literal").output.splitlines()
    assert wrong[0] == "37 + 46 = 63   WRONG: 83"


def test_json_has_everything():
    trace = json.loads(call("forge", "5", "99", "--json", "--forging", "corrected").output)
    assert trace == forged.forge(5, 99, CORRECTED).as_dict()
    assert (trace["tokens"], trace["answer"], trace["correct"]) == ([0, 5, 9, 9, -1], 104, True)


def test_the_command_writes_it_as_a_checkpoint(here):
    assert call("forge", "--ten-digits", "34").stdout == "34: 34 parameters, none of them trained\n"
    assert "34 parameters (split_subspace): 10,010/10,010 VERIFIED" in call("verify", "34").stdout
