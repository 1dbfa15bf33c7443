"""The report: what its page says, that it needs nothing else, and that its table sorts."""

import html
import json
import re
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from reports import report as report_module
from reports.fields import fields_of, shown
from reports.markup import sources
from reports.plots import COLOURS, GREY
from reports.plots_search import Importances, importance_figure
from reports.report import TEMPLATE, percentages_whole, report
from search import plugins
from search.stats.counting import GrokRate, StoppingCounts
from search.study.reading import read_data
from search.study.space import Distribution
from search.study.trial import Configuration
from tests.reports.test_plots import frames, one, searched, seed_row, study_of
from tests.scenarios.studies import STAGED, STAGES
from tests.searches import TASKS

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'and' {{ braces }}"


VOID = ("meta", "link", "img", "br")


def cells_of(page):
    """The texts of a page's cells. Every element must be closed."""
    text, open_ = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", page), []
    for end, tag in re.findall(r"<(/?)([a-z]\w*)", text):
        if end:
            assert open_.pop() == tag
        elif tag not in VOID:
            open_.append(tag)
    assert open_ == []
    found = re.findall(r"(?s)<(t[dh])\b[^>]*>(.*?)</\1>", text)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for _, cell in found]


def words_of(*given):
    """The page with pictures that were not drawn, and importances of few shuffles, which take most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.plots_search.SHUFFLES", 5)
        patch.setattr(report_module, "image_of", lambda figure, suffix: b"SVG")
        return report(*given)


def test_a_screened_study_says_what_its_screen_did_and_what_probes_read():
    screen = {"screen": {"at": 5_000, "keep": {"token": 0.35}}}
    study, configurations, seeds, curves = one(
        [("grokked", 40_000), ("failed",), *[("screened", 5_000)] * 6], stop=screen
    )
    seeds.loc[1, "screen"] = seeds.loc[2, "screen"]  # one that was spared
    curves["odd"] = curves["exact"]
    text = words_of(study, configurations, seeds, curves)
    cells = cells_of(text)
    assert re.search(r"<h2[^>]*>Probes</h2>", text) and cells[cells.index("screened") + 1] == "6"
    assert "ends seeds without token 0.35 at 5000; a random tenth spared" in text
    assert "it was not measured before with this spec and recipe" in text
    checked = "As a check it let 1 more (14% of those that it was to end) run on: none grokked."
    assert f"ended 6 of 8 seeds. {checked} At most 5.7 of the ended ones would have grokked" in text
    assert "grokked per million seed-steps; each cost" in text


def test_a_table_of_problems_holds_out_fewer_than_5000():
    study, configurations, seeds, curves = searched()
    said = words_of(study, configurations, seeds, curves)
    assert "measured on the 5,000 selection problems" in said and "answers to the 5,000 selection problems" in said
    rows = words_of(study, configurations.assign(**{"task.train": 0.6}), seeds, curves)
    assert "measured on the held-out rows (at most 5,000). Grey" in rows and "the 5,000 selection" not in rows


def test_search_and_confirmation_are_never_pooled():
    study, configurations, seeds, curves = searched(7, confirmed=2)
    confirmed = report_module._Page(study, configurations, seeds, curves)
    assert sorted(confirmed.objective) == pytest.approx(sorted(report_module._Page(*searched(7)).objective))
    figures = confirmed.figures()
    own = seeds[~seeds["confirmation"]]
    won = own["outcome"].eq("grokked").groupby(own["configuration"]).mean()
    points = figures["rate-against-fields"].axes[0].collections[1].get_offsets()
    assert sorted(points[:, 1]) == pytest.approx(sorted(won))
    (line,) = figures["time-to-grok"].axes[0].lines
    assert line.get_ydata()[-1] == pytest.approx(own["outcome"].eq("grokked").mean())
    for panel in figures["grokking-curves"].axes:
        assert sum(len(lines.get_segments()) for lines in panel.collections) == 8
    page = words_of(study, configurations, seeds, curves)
    assert page.count("those of the confirmation are left out") == 3 and "all seeds" not in page
    assert f"In the search {own['outcome'].eq('grokked').sum()} of {len(own)} runs grokked" in page


def test_it_needs_nothing_else(monkeypatch):
    monkeypatch.setattr("reports.plots_search.SHUFFLES", 5)  # of importances, which take seconds
    text = report(*searched(8))
    resources = re.findall(r"\b(?:src|href|srcset|action|data)\s*=\s*[\"']?([^\"'>\s]*)", text)
    assert text.count("data:image/svg+xml;base64,") == 4 <= len(resources) and cells_of(text)
    assert all(r.startswith("data:") for r in resources)
    assert "http:" not in text and "https:" not in text and "//cdn" not in text
    assert text.count("<script") == 1 and "default-src 'none'" in text
    assert len(text) < 5e6 and "prefers-color-scheme: dark" in text


def test_a_bar_has_a_colour_where_enough_grokked_and_all_that_is_drawn_is_within_the_axis():
    for coloured, colours in ((True, {COLOURS[0], GREY}), (False, {GREY})):
        field = fields_of(*searched(2)[:2])[0]
        importance = Importances([(field, 0.5), (field, 0.1)], 0.4, [(0.4, 0.9), (0.0, 0.2)])
        axis = importance_figure(importance, coloured).axes[0]
        assert {to_hex(bar.get_facecolor()) for bar in axis.patches} == colours and axis.get_xlim()[1] > 0.9
    few = report_module._Page(*searched(2)).few_grokked()
    assert few.startswith("Only 3 grokked") and not report_module._Page(*searched(7)).few_grokked()


def test_what_others_wrote_is_only_text():
    study, configurations, *rest = one([("failed",)] * 2, about=HOSTILE)
    title = "57p <img src=x onerror=alert(2)>"
    text = words_of(study, configurations.assign(title=title, rung=title), *rest)
    assert text.count("<script") == 1 and HOSTILE not in text and "<img src=x" not in text
    own = sources([TEMPLATE.read_text()])
    assert own == sources([text]) and f"script-src {own}; " in text
    assert "&lt;script&gt;alert(1)" in text and "{{ braces }}" in text
    assert title in cells_of(text)


def test_where_pages_are_shown_its_scripts_may_run():
    template = plugins.loaded("adder_search.pages")["report"]()
    assert sources([template]) == sources([TEMPLATE.read_text()])


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A browser that has opened a page, and the page's address and rows."""
    from tests.browser import chromium

    folder, given = tmp_path_factory.mktemp("page"), searched(7)
    target = folder / "report.html"
    target.write_text(words_of(*given), encoding="utf-8")
    with chromium(folder / "browser") as browser:
        yield browser, target.as_uri(), given[1]


@pytest.mark.end_to_end
def test_a_click_or_enter_sorts_the_table(opened):
    from selenium.webdriver import Keys

    browser, address, configurations = opened
    browser.get(address)

    def column(i):
        rows = "[...document.querySelector('#configurations tbody').rows]"
        return browser.execute_script(f"return {rows}.map(row => row.cells[{i}].innerText)")

    heads = browser.find_elements("css selector", "#configurations th button")
    names = [h.get_attribute("textContent").split("\n")[0] for h in heads]
    first = [
        "configuration",
        "parameters",
        "grok rate",
        "95\N{NO-BREAK SPACE}%",
        "command",
        "seeds",
        "grokked",
        "given up",
    ]
    assert names[: len(first)] == first, "what is zero everywhere is left out"
    rate, steps = names.index("lr"), names.index("median")
    rates = sorted(configurations["recipe.lr"])
    heads[rate].click()
    assert column(rate) == [shown(v) for v in reversed(rates)]
    heads[rate].send_keys(Keys.ENTER)
    assert column(rate) == [shown(v) for v in rates]
    heads[steps].click()
    heads[steps].click()
    found = configurations["median_grok_step"].dropna()
    assert column(steps) == [shown(v) for v in sorted(found)] + ["–"] * (7 - len(found))
    (sorted_by,) = browser.find_elements("css selector", "th[aria-sort=ascending]")
    assert sorted_by.text.startswith("median")
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_the_page_opens_with_its_picture_and_a_phone_sees_the_intervals(opened):
    """Rates with their intervals and the curves stand before the text, at both widths."""
    browser, address, _ = opened
    right = "return [...document.querySelectorAll('#best .bar')].map(bar => bar.getBoundingClientRect().right)"
    order = "return [...document.querySelectorAll('#best, .picture, dl')].map(e => e.id || e.tagName)"
    for width in (1300, 400):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == 400}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(address)
        ends = browser.execute_script(right)
        assert ends and max(ends) <= width, f"an interval is out of sight at {width} px"
        assert browser.execute_script(order)[:3] == ["best", "DIV", "DL"]
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_page_in_the_middle_of_a_run_knows_that_a_confirmation_is_planned():
    study, *rest = searched(7)
    assert "Fresh seeds would tell: a confirmation pass." in words_of(study, *rest)
    values = study.model_dump(mode="json", by_alias=True)
    values |= {"confirm": {"configurations": 2, "seeds": {"first": 900, "count": 64}}}
    planned = type(study).model_validate_json(json.dumps(values))
    said = words_of(planned, *rest)
    assert "At its end the study confirms up to 2 of them, on 64 fresh seeds each." in said
    assert "Fresh seeds would tell" not in said


def test_a_study_of_one_flag_answers_it_first_and_large():
    study = study_of(space={"model.tie_vo": {"choice": [False, True]}}, sampler={"name": "grid"})
    off, on = (Configuration(*study.configuration({"model.tie_vo": value})) for value in (False, True))
    recorded = [
        seed_row(configuration, n, *(("grokked", 30_000) if n < grokked else ("failed", 60_000)))
        for configuration, grokked in ((off, 6), (on, 3))
        for n in range(8)
    ]
    given = study, *frames(study, [on, off], recorded)
    page = words_of(*given)
    sides = page.partition('<div class="sides">')[2].partition("</div>\n<p")[0]
    assert re.findall("<b>(.*?)</b>", sides) == ["75.0%", "37.5%", "×0.50"]
    assert "on over off" in sides and "8 seeds in both" in sides and "6 of 8, 38.8% to 95.6%" in sides
    assert page.index('class="sides"') < page.index(
        "grokking-curves" if "grokking-curves" in page else "<h2>What was asked"
    )
    assert "Flags against each other" not in page
    assert 'class="sides"' not in words_of(*searched(8))


def test_a_study_with_stages_has_its_table_of_constraints():
    listed = [{}, {"model": {"tie_vo": False}}, {"recipe": {"stages": STAGES}}]
    study = study_of(recipe=STAGED["recipe"], configurations=listed)
    configurations = [Configuration(*asked) for asked in study.listed]
    recorded = [seed_row(configuration, n, "grokked", 400) for configuration in configurations for n in range(4)]
    (cell,) = report_module._Page(study, *frames(study, configurations, recorded)).table.cells.values()
    assert (cell.constraint, len(cell.arms)) == ("tie_vo", 2)


def test_a_field_that_was_not_searched_somewhere_is_shown_there_as_nothing():
    space = {
        "model.tie_vo": {"choice": [False, True]},
        "recipe.clip": {"float": [0.5, 2.0], "when": {"model.tie_vo": True}},
        "recipe.optimiser": {"choice": ["adamw", "lion"], "when": {"model.tie_vo": True}},
        "recipe.warmup": {"int": [0, 100], "when": {"recipe.optimiser": "adamw"}},
        "recipe.lr": {"float": [0.001, 0.1]},
    }
    study = study_of(space=space, sampler={"configurations": 8})
    configurations, recorded = [], []
    for n in range(8):
        numbers = {"recipe.lr": 0.01 + n / 100, "model.tie_vo": n > 5}
        if n > 5:
            numbers |= {"recipe.clip": n / 8, "recipe.optimiser": "adamw", "recipe.warmup": 60}
        configurations.append(Configuration(*study.configuration(study.resolved(numbers))))
        recorded += [seed_row(configurations[n], k, "failed" if k > n else "grokked", 9_000) for k in range(8)]
    given = study, *frames(study, configurations, recorded)
    labels = {field.name: sorted(set(field.labels())) for field in fields_of(*given[:2])}
    assert labels["clip"] == ["0.75", "0.875", "–"] and labels["warmup"] == ["60", "–"]
    names = [study.kind.name_of(configurations[n]) for n in (0, 7)]
    assert names == ["tie_vo off, lr 0.01", "tie_vo on, clip 0.875, optimiser adamw, warmup 60, lr 0.08"]
    page = report_module._Page(*given)
    assert {field.name for field, _ in page.importances.shares} == {"lr", "tie_vo"}
    assert "Left out, as not every configuration searches it: clip." in words_of(*given)


ADDS, COPIES = {"model.task": "addition"}, {"model.task": "copy"}
SIGNED = {"choice": [False, True], "when": {"model.task": "subtraction"}}
SIGNS = {"model.task": {"choice": ["addition", "subtraction"]}, "task.signed": SIGNED}


@pytest.mark.parametrize(
    ("changes", "drawn", "labels"),
    [
        ({}, [ADDS | {"recipe.clip": 2.5}, COPIES], {"task": ["addition", "copy"], "clip": ["2.5", "–"]}),
        ({}, [ADDS | {"recipe.clip": 2.5}], {"task": ["addition"], "clip": ["2.5"]}),
        ({"model": "57p", "task": "subtraction", "space": SIGNS}, [ADDS], {"task": ["addition"], "signed": ["–"]}),
    ],
)
def test_a_task_that_is_searched_is_a_field_where_it_is_addition_too(changes, drawn, labels):
    study = study_of(**(read_data(TASKS) | changes))
    configurations = [Configuration(*study.configuration(study.resolved(numbers))) for numbers in drawn]
    recorded = [seed_row(configuration, 1, "failed") for configuration in configurations]
    fields = fields_of(study, frames(study, configurations, recorded)[0])
    assert {field.name: field.labels() for field in fields} == labels


def test_nothing_is_a_value_that_may_be_drawn():
    study = SimpleNamespace(kind=SimpleNamespace(space={"model.args.hidden": Distribution(choice=[None, 16])}))
    (field,) = fields_of(study, pd.DataFrame({"model.args.hidden": [None, 16, None]}))
    assert field.varies and field.labels() == ["–", "16", "–"] and field.is_present.all()


def test_a_share_on_the_page_is_none_or_all_only_where_it_is():
    assert report_module._sentence(GrokRate(2_499, 2_500)).startswith("2,499 of 2,500 seeds (99.96%, ")
    spared = report_module._rule_sentences(plugins.rules()["hopeless"], StoppingCounts(400, ended=299, spared=1))
    assert "it let 1 more (0.3% of those that it was to end) run on" in spared


def test_a_percentage_stays_on_its_line_and_what_is_quoted_as_it_is():
    page = "<style>a { width: 50 % }</style>95 % of it <pre>about: 95 % of it</pre>"
    assert percentages_whole(page) == page.replace("95 % of it <", "95\N{NO-BREAK SPACE}% of it <")
