"""The report: what its page says, that it needs nothing else, and that its table sorts."""

import pytest

from search.analysis import report as report_module
from search.analysis.fields import shown
from search.analysis.report import percent, report
from search.study.trial import Configuration
from tests.pages import Page
from tests.unit.test_plots import frames, searched, seed_row, study_of

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'and' {{ braces }}"


def words_of(*given):
    """The page with pictures that were not drawn, which takes most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_module, "image_of", lambda figure, suffix: b"SVG")
        return report(*given)


def one(outcomes, **changes):
    """A study of one configuration and its frames."""
    study = study_of(**changes)
    configuration = Configuration(*study.configuration({}))
    rows = [seed_row(configuration, i, *outcome) for i, outcome in enumerate(outcomes)]
    return study, *frames([(configuration, rows)])


def test_one_configuration_has_no_sections_about_several():
    given = one(
        [("grokked", 40_000), ("failed",), ("given_up", 20_000), ("diverged", 100), ("censored", 5_000)]
    )
    text = words_of(*given)
    page = Page(text)
    assert page.headings == ["What was asked", "What was found", "Grokking curves", "Time to grok",
                             "The configuration"]  # fmt: skip
    low, high = (percent(given[1][f"grok_rate_{end}"].iloc[0]) for end in ("low", "high"))
    assert f"1 of 4 seeds ({percent(0.25)}, 95 % interval {low} to {high}) grokked." in text
    for name in ("grokked", "not grokked", "diverged", "given up", "censored"):
        assert page.cells[page.cells.index(name) + 1] == "1"
    assert "gave up 1 of 4 seeds. Some given-up seeds may have grokked later." in text
    key = given[1]["configuration"][0]
    assert f"adder-search pull s --configuration {key} -o s-{key[:6]}" in page.cells


def test_a_screened_study_says_what_its_screen_did_and_what_probes_read():
    screen = {"screen": {"at": 5_000, "keep": {"token": 0.35}}}
    study, configurations, seeds, curves = one(
        [("grokked", 40_000), ("failed",), *[("screened", 5_000)] * 6], stop=screen
    )
    seeds.loc[1, "screen"] = seeds.loc[2, "screen"]  # one that was spared
    curves["odd"] = curves["exact"]
    text = words_of(study, configurations, seeds, curves)
    page = Page(text)
    assert "Probes" in page.headings
    assert page.cells[page.cells.index("screened") + 1] == "6"
    assert "ends seeds without token 0.35 at 5000; a random tenth spared" in text
    assert "it was not measured for this spec and recipe" in text
    checked = "As a check it let 1 more (14% of those that it was to end) run on: none grokked."
    assert f"ended 6 of 8 seeds. {checked} At most 6.0 of the ended ones would have grokked" in text, (
        "as nobody had been spared when the frame was counted"
    )
    assert "grokked per million seed-steps; each cost" in text


def test_a_search_has_all_of_them_and_both_rates():
    study, configurations, *rest = searched(confirmed=2)
    text = words_of(study, configurations, *rest)
    page = Page(text)
    assert page.headings == ["What was asked", "What was found", "What mattered", "Grok rate against each field",
                             "Grokking curves", "Time to grok", "All configurations"]  # fmt: skip
    assert "Trust the confirmation column" in text and "winner" in text
    row = page.cells[page.cells.index(configurations["title"].iloc[-1]) :]
    assert row[2] == "7 of 8" and row[4] == "4 of 8" and row[7] == "11 of 16"
    assert "16 of them, numbers 90001 to 90008, confirm" in text
    assert "0.001 to 0.1, logarithmic" in text
    assert text.count("data:image/svg+xml;base64,") == 5


def test_all_that_was_searched_is_listed_whether_it_came_to_differ_or_not():
    study, configurations, *rest = searched()
    fixed = "recipe.wd_drop"
    page = Page(words_of(study, configurations.assign(**{fixed: 0.1}), *rest))
    paths = [line[0] for line in page.texts(0)[1:]]
    assert (
        paths == list(study.space)
        and page.texts(0)[1 + paths.index(fixed)][2] == "one of 1; 0.1; drawn: only 0.1"
    )
    assert fixed not in [line[0] for line in page.texts(1)], "no fixed field"
    assert "lr (per step)" in page.texts(-1)[0] and "wd_drop (fraction)" not in page.texts(-1)[0]


def test_it_needs_nothing_else():
    text = report(*searched(8))
    page = Page(text)
    assert text.count("data:image/svg+xml;base64,") == 5
    assert all(r.startswith("data:") for r in page.resources)
    assert "http:" not in text and "https:" not in text and "//cdn" not in text
    assert page.scripts == 1 and "default-src 'none'" in text
    assert len(text) < 5e6 and "prefers-color-scheme: dark" in text


def test_what_others_wrote_is_only_text():
    study, configurations, *rest = one([("failed",)] * 2, about=HOSTILE)
    title = "57p <img src=x onerror=alert(2)>"
    text = words_of(study, configurations.assign(title=title, rung=title), *rest)
    page = Page(text)
    assert page.scripts == 1 and HOSTILE not in text and "<img src=x" not in text
    assert "&lt;script&gt;alert(1)" in text and "{{ braces }}" in text
    assert title in page.cells


# ---- the table, in a real browser


@pytest.mark.end_to_end
def test_a_click_or_enter_sorts_the_table(tmp_path):
    from selenium.webdriver import Keys

    from tests.browser import chromium

    given = searched(7)
    target = tmp_path / "report.html"
    target.write_text(words_of(*given), encoding="utf-8")
    with chromium(tmp_path / "browser") as browser:
        browser.get(target.as_uri())

        def column(i):
            rows = "[...document.querySelector('#configurations tbody').rows]"
            return browser.execute_script(f"return {rows}.map(row => row.cells[{i}].innerText)")

        heads = browser.find_elements("css selector", "#configurations th button")
        names = [h.get_attribute("textContent").split("\n")[0] for h in heads]
        rate, steps = names.index("lr"), names.index("median")
        rates = sorted(given[1]["recipe.lr"])
        heads[rate].click()
        assert column(rate) == [shown(v) for v in reversed(rates)]
        heads[rate].send_keys(Keys.ENTER)
        assert column(rate) == [shown(v) for v in rates]
        heads[steps].click()
        heads[steps].click()
        found = given[1]["median_grok_step"].dropna()
        assert column(steps) == [shown(v) for v in sorted(found)] + ["–"] * (7 - len(found))
        (sorted_by,) = browser.find_elements("css selector", "th[aria-sort=ascending]")
        assert sorted_by.text.startswith("median")
        assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
