"""`explain`'s page of every preset in a real browser."""

import random

import pytest
import torch

from model import PRESETS, add
from tests.browser import chromium
from tests.commands import done
from tests.scenarios.test_explain import EXAMPLE, element, farthest_logit
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.mark.parametrize("name", PRESETS)
def test_a_page_of_every_preset_adds_as_python_does(browser, tmp_path, name):
    spec, generator = PRESETS[name], torch.Generator().manual_seed(5)
    theta_P = spec.initial(5) + 0.3 * torch.randn(spec.params, generator=generator)
    Checkpoint(spec, theta_P).save(tmp_path / "net")
    done("explain", tmp_path / "net", "-o", tmp_path / "page.html")
    browser.get((tmp_path / "page.html").as_uri())
    draws = random.Random(name)
    pairs = [[draws.randrange(10**10) for _ in "ab"] for _ in range(20)]
    assert farthest_logit(browser, 0, spec, theta_P, pairs) < 1e-4
    assert element(browser, "#answer").text == str(*add(spec, theta_P, *([n] for n in EXAMPLE)))
    browser.execute_script("[...Array(NETS[0].run.steps).keys()].forEach(go)")
    for button in browser.find_elements("css selector", "#worst button"):
        button.click()
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []
