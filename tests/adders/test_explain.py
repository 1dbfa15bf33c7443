"""`explain`'s page in a real browser: its nets are Python's, and what one does there shows."""

import dataclasses
import json
import math
import random
import re

import pytest
import torch

from adders.explain.explain import HERE, page
from adders.explain.net import program
from adders.proof.prover import Prover
from adders.proof.rounding import ANY
from model import PRESETS, add, preset
from model.tied import Tied
from tests.banks import ADDER_P
from tests.browser import chromium
from tests.commands import done
from trainer.checkpoints.checkpoint import Checkpoint

PAIRS = [(a, b) for r in [random.Random(7)] for a, b in [[r.randrange(10**10) for _ in "ab"] for _ in range(200)]]
EXAMPLE = 4728391056, 1593846278
TIED = Tied(base=preset("57p"), ties=(1, *(1 if n == 7 else n for n in range(2, 56)), -3, 0))
FEW = ("57p", "74p", "133p", "170p", "226p", "456p", "512p", "228p", "58p-kv", "36p")
"""Presets of every family and kind of attention."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def written(folder, **checkpoints):
    """The page that `explain` writes of checkpoints into a folder."""
    for name, (spec, theta_P) in checkpoints.items():
        Checkpoint(spec, theta_P).save(folder / name)
    result = folder / "page.html"
    done("explain", *(folder / name for name in checkpoints), "-o", result)
    return result


def data_of(page):
    """The JSON of what a page shows."""
    return page.read_text(encoding="utf-8").split('id="model">')[1].split("</script>")[0]


@pytest.fixture(scope="module")
def adder(tmp_path_factory):
    """The page of the 57p adder alone, whose name is no element of it."""
    return written(tmp_path_factory.mktemp("page"), **{"<b>": (preset("57p"), ADDER_P)})


@pytest.fixture
def opened(browser):
    """Open a page; at the end it must have asked for nothing else."""

    def of(page):
        browser.get(page.as_uri())
        return browser

    yield of
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []


def element(browser, selector):
    return browser.find_element("css selector", selector)


def farthest_logit(browser, index, spec, theta_P, pairs):
    """The largest difference of a page's logits from Python's, over all digits of some pairs."""
    x, y, z = (
        [torch.tensor([n // 10**j % 10 for n in numbers]) for j in range(11)]
        for numbers in (*zip(*pairs, strict=True), [a + b for a, b in pairs])
    )
    tokens_TB = torch.stack(spec.sequence(x[:10], y[:10], z))[: spec.prompt + spec.decoded - 1]
    logits = spec.forward(theta_P.double()[None], tokens_TB[None], first=spec.prompt - 1)
    ours_VAB = torch.stack([v[0] for v in logits])
    theirs_BAV = browser.execute_script(
        "const run = NETS[arguments[0]].run, [pairs] = [arguments[1]];"
        "return pairs.map(([a, b]) => [...Array(run.steps).keys()].map(k =>"
        "  run.logits(run.tokens(a, b, [...digits(a + b), (a + b) / 1e10 | 0].slice(0, k)), k)))",
        index, pairs,
    )  # fmt: skip
    theirs_VAB = torch.tensor(theirs_BAV, dtype=torch.float64).permute(2, 1, 0)
    assert theirs_VAB.shape == ours_VAB.shape
    return float((theirs_VAB - ours_VAB).abs().max())


@pytest.mark.parametrize("names", [FEW, pytest.param(tuple(PRESETS), marks=pytest.mark.full)], ids=["few", "all"])
def test_the_nets_are_pythons(names, browser, tmp_path):
    """With numbers moved away from where they start."""
    generator = torch.Generator().manual_seed(3)
    nets, shown = {}, []
    for name, spec in [("tied", TIED), *((name, preset(name)) for name in names)]:
        theta_P = spec.initial(3) + 0.3 * torch.randn(spec.params, generator=generator)
        nets[name] = spec, theta_P
        about = {"name": name, "model": name, "params": spec.params, "proof": None, "training": None}
        shown.append(about | {"program": program(spec, theta_P)})
    (tmp_path / "page.html").write_text(page(HERE / "explain.html", {"example": EXAMPLE, "nets": shown}))
    browser.get((tmp_path / "page.html").as_uri())
    for index, (name, (spec, theta_P)) in enumerate(nets.items()):
        assert farthest_logit(browser, index, spec, theta_P, PAIRS) < 1e-4, name
        answer = browser.execute_script("return NETS[arguments[0]].trace.answer", index)
        assert [answer] == add(spec, theta_P, *([n] for n in EXAMPLE)), name
        looked = browser.execute_script(
            "const { run } = NETS[arguments[0]], step = run.decode(1, 2).steps.at(-1);"
            "const div = document.createElement('div'); div.innerHTML = looking(run, step);"
            "return [step.heads.length, [...div.querySelectorAll('[data-t]')].map(c => +c.dataset.t)]",
            index,
        )
        positions = range(spec.prompt + spec.decoded - 1)
        assert sorted(looked[1]) == sorted([*positions] * looked[0]), f"{name}: each position once a head"
    for digit in range(len(browser.find_elements("css selector", "#columns button"))):
        browser.execute_script("go(arguments[0])", digit)
    assert browser.get_log("browser") == [], "every digit of every net is drawn"


def test_bands_are_the_provers(opened, adder):
    """On the axis of what attention writes, inputs of each sum lie where the prover has them."""
    browser = opened(adder)
    rows = []
    for asked in Prover(preset("57p"), ADDER_P, ANY, 10, math.inf).queries():
        cases = asked.first_cases()
        low, high, _ = asked.extremes(cases)
        where = asked.query.k, asked.query.token
        rows += [(*where, int(label), a, b) for label, (a,), (b,) in zip(cases.label, low, high, strict=True)]
    assert len(rows) > 1_500
    bands = browser.execute_script(
        "return arguments[0].map(([k, token, sum]) => NETS[0].run.bands(k, token)[sum])",
        [row[:3] for row in rows if row[0] <= 10],
    )
    for (_, _, _, *ends), (low, high) in zip(rows, bands, strict=False):
        assert min(ends) <= low <= min(ends) + 5e-3 and max(ends) - 5e-3 <= high <= max(ends)  # roundings


def test_a_sum_digit_by_digit(opened, adder):
    browser = opened(adder)
    assert element(browser, "#answer").text == str(sum(EXAMPLE))
    shares = browser.execute_script(
        "go(3); return [...document.querySelectorAll('#stage td[data-t]')].map(c => [+c.dataset.t, +c.dataset.share])"
    )
    wide = preset("57p").expand(ADDER_P.double()[None])
    row = wide["attention"][0, 0, 3, : 22 + 3]
    assert [share for _, share in sorted(shares)] == pytest.approx((row / row.sum()).tolist(), abs=1e-6)
    element(browser, "#worst button").click()
    pair = [int(element(browser, f"#{n}").get_attribute("value")) for n in "ab"]
    proof = json.loads(data_of(adder))["nets"][0]["proof"]
    assert pair == proof["pair"] and element(browser, "#stage h2").text.startswith(f"Digit {proof['digit']}")
    assert float(element(browser, ".margin").text) == pytest.approx(proof["margin"], rel=0.01)
    browser.execute_script("at('b').value = '12a'; ask()")
    assert "second number" in element(browser, "#problem").text and element(browser, "#answer").text == "?"


def test_sliders_break_the_answer_and_reset_mends_it(opened, tmp_path):
    from selenium.webdriver import Keys

    ties = (*TIED.ties[:3], 3, *range(4, 57))  # two numbers as one, which the adder does not survive
    tied = dataclasses.replace(TIED, ties=ties)
    browser = opened(written(tmp_path, adder=(preset("57p"), ADDER_P), tied=(tied, ADDER_P[: tied.params].clone())))
    zones = "return document.querySelector('#stage .axis').innerHTML"
    before = browser.execute_script(zones)
    claim = lambda: [element(browser, css).text for css in ("#stage .kicker", "#worst button")]  # noqa: E731
    proved = claim()
    assert "proved right on all" in proved[0]
    slider = element(browser, "[data-entry='arc[2]'] input")
    slider.send_keys(Keys.PAGE_UP * 4)
    assert element(browser, "#answer").text != str(sum(EXAMPLE)) and browser.execute_script(zones) != before
    matched = browser.find_elements("css selector", ".same[data-entry='arc[2]']")
    assert len(matched) == 2  # in both nets
    assert element(browser, "[data-net='0'] [data-entry='arc[2]']").get_attribute("class").split()[-1] == "moved"
    assert claim() == ["adder · 57 numbers · numbers changed: the proof is of the original",
                       "Worst pair of the original adder"]  # fmt: skip
    assert slider.get_attribute("aria-valuetext") == element(browser, "[data-entry='arc[2]'] span").text
    element(browser, "#reset").click()
    assert element(browser, "#answer").text == str(sum(EXAMPLE)) and browser.execute_script(zones) == before
    assert claim() == proved
    same = browser.find_elements("css selector", "[data-net='1'] .tied")
    same[0].find_element("css selector", "input").send_keys(Keys.ARROW_RIGHT)
    assert len({c.find_element("css selector", "span").text for c in same}) == 1 and len(same) == 2


@pytest.mark.full
def test_two_nets_fit_a_narrow_screen(opened, tmp_path):
    browser = opened(written(tmp_path, **{f"adder {n}": (preset("57p"), ADDER_P) for n in range(2)}))
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.full
def test_words_of_the_training_are_legible_on_a_narrow_screen(opened, adder):
    browser = opened(adder)
    drawn = """
        const run = {steps: [1000, 60000], exact: [0, 1]}
        NETS[0].training = {words: "one seed", curve: run, curves: [run]}
        NETS[0].carries = {steps: [1000, 60000], right: [[0, 0], [1, 0.5]], learned: [60000, null]}
        training()
        const boxes = [...document.querySelectorAll("#training .chart text")].map(t => t.getBoundingClientRect())
        return [boxes.length, Math.min(...boxes.map(b => b.height)), Math.max(...boxes.map(b => b.right))]"""
    for width in (400, 1300):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        count, height, right = browser.execute_script(drawn)
        assert count == 11 and height > 10 and right <= width  # pixels
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.full
def test_the_keyboard_alone_reaches_all(opened, adder):
    from selenium.webdriver import ActionChains, Keys

    browser = opened(adder)
    press = lambda *keys: ActionChains(browser).send_keys(*keys).perform()  # noqa: E731
    press(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    assert element(browser, "#stage h2").text.startswith("Digit 1")
    reached, focus = set(), (
        "const e = document.activeElement;"
        "return e.id || e.closest('[data-entry]')?.dataset.entry || e.ariaLabel || e.value"
    )  # fmt: skip
    for _ in range(90):
        press(Keys.TAB)
        reached.add(browser.execute_script(focus))
    entries = set(preset("57p").layout.entries())
    assert entries <= reached and {"a", "b", "next", "back", "random"} <= reached
    assert len([r for r in reached if str(r).startswith("digit ")]) == 11


def test_the_page_needs_nothing_from_elsewhere(adder):
    source = adder.read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\b", source)
    assert re.findall(r"(?:src|href)\s*=\s*[\"']?([^\"'>\s]*)", source) == ["data:,"]
    assert "<b>" not in data_of(adder)
