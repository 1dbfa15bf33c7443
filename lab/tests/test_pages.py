"""Pages are what their tables of seeds say, and their links lead somewhere."""

import re
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from lab import pages, tables
from lab.plans import load_plan
from lab.scripts.screen_column import screened
from search.analysis.frames import seeds_of
from search.stats.counting import GrokRate, PooledRate
from search.stats.intervals import LEVEL, exact_high, mid_p
from tests import by_tier
from trainer import Recipe

SLOW = (
    "2026-11-23-longer", "2026-11-23-robust", "2026-11-24-atlas", "2026-11-28-wide", "2026-11-29-luck-modular",
    "2026-11-29-lucky-for-both", "2026-11-29-why-wide", "claims",
)  # fmt: skip
"""Folders whose tables take seconds: of closed experiments, and of the claims, which test_claims.py counts too."""
PAGES = {str(page.relative_to(pages.ROOT)): page for page in pages.pages()}
QUICK = [page for page in PAGES.values() if page.parent.name not in SLOW]
every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


@pytest.mark.parametrize("page", by_tier(PAGES, QUICK))
def test_generating_the_pages_changes_nothing(page):
    text = page.read_text("utf-8")
    is_changed = pages.generated(page, text) != text
    assert not is_changed, "make pages"


def test_a_rate_is_counted_anew_and_a_wrong_source_names_its_page(monkeypatch, tmp_path):
    (tmp_path / "2026-01-01-x").mkdir()
    table = tmp_path / "2026-01-01-x" / "x.csv"
    table.write_text("arm,outcome\n1,grokked\n1,failed\n2,failed\n2,censored\n")
    monkeypatch.setattr(tables, "LAB", tmp_path)
    page = tmp_path / "page.md"
    text = "It is <!-- k of n: x.csv where arm == '1' + x.csv where arm == '2' -->4 of 5<!-- / -->, see."
    made = pages.generated(page, text)
    assert made == text.replace("4 of 5", "1 of 3")
    tables.read.cache_clear()
    table.write_text("arm,outcome\n1,grokked\n1,grokked\n2,failed\n")
    assert "2 of 3" in pages.generated(page, made)
    tables.read.cache_clear()
    table.write_text("arm,outcome,tries\n1,grokked,1\n1,failed,3\n")
    assert "1 of 4 (25.0 %" in pages.generated(page, "of <!-- vectors: x.csv --><!-- / -->")
    tables.read.cache_clear()
    with pytest.raises(ValueError, match=r"page\.md: rate: y\.csv: no lab/\*/y\.csv"):
        pages.generated(page, "<!-- rate: y.csv --><!-- / -->")


ENDED = """configuration,outcome,hopeless_step,screen
1,grokked,,
1,failed,,
1,failed,,rung
1,screened,,rung
1,given_up,20000,
1,given_up,30000,
"""


@pytest.fixture
def ended():
    """Rows of seeds, of which a rule ended some."""
    return pd.read_csv(StringIO(ENDED), dtype={"configuration": str})


def test_a_rate_has_the_interval_that_the_product_gives_to_the_same_seeds(ended):
    low, high = mid_p(1, 6)[0], mid_p(1 + exact_high(0, 1, LEVEL) + 2, 6)[1]
    assert tables.rate_of(ended).interval == GrokRate.of(seeds_of(ended)).interval == (low, high)
    assert tables.with_interval(tables.rate_of(ended)) == f"1 of 6 (16.7 %, {100 * low:.1f}–{100 * high:.1f} %)"
    tried = tables.vectors(ended.assign(tries=2))
    assert (tried.grokked, tried.n, tried.missed) == (1, 12, pytest.approx(2.95)), "each may have been the lucky one"


@pytest.mark.parametrize("column", ["hopeless_step", "screen"])
def test_a_table_that_lacks_what_an_interval_takes_has_none(column, ended):
    for lacking in (ended.drop(columns=column), ended.assign(**{column: float("nan")})):
        with pytest.raises(ValueError, match=f"a rule ended [12] seeds, and their table has no column {column}"):
            tables.rate_of(lacking)


def test_the_rate_of_several_configurations_is_clustered_by_seed():
    rows = [(c, s, s, "grokked" if s < 3 else "failed") for c in "abcd" for s in range(12)]
    frame = pd.DataFrame(rows, columns=["configuration", "init_seed", "data_seed", "outcome"])
    rate = tables.rate_of(frame)
    assert rate.interval == PooledRate.of(seeds_of(frame)).interval and (rate.grokked, rate.n) == (12, 48)
    assert rate.interval[1] - rate.interval[0] > 0.4, "three lucky seeds of twelve"


@pytest.mark.parametrize(
    ("study", "table", "by"),
    [
        ("law-large", "2026-11-24-law-of-size/law-large.csv", None),
        ("law-small", "2026-11-24-law-of-size/law-small.csv", None),
        ("law-least", "2026-11-24-law-of-size/law-least.csv", None),
        ("claims-kinds", "2026-11-23-constraint-columns/claims-kinds.csv", "hash"),
    ],
)
def test_a_screen_that_was_not_recorded_follows_from_the_study(study, table, by):
    rows = pd.read_csv(pages.LAB / table, dtype={"configuration": str})
    called = screened(load_plan(study), rows, by)
    assert called.fillna("").tolist() == rows["screen"].fillna("").tolist()
    assert called[rows["outcome"] == "screened"].notna().all()
    moved = rows.assign(init_seed=rows["init_seed"] + 7, data_seed=rows["data_seed"] + 7)
    with pytest.raises((ValueError, KeyError)):
        screened(load_plan(study), moved, by)


@every_page
def test_the_links_of_a_page_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not Path(page.parent / link).exists()] == []
    anchors = re.findall(r"\]\(([^):\s]*\.md)?#([^)\s]+)\)", page.read_text("utf-8"))
    assert [(to, name) for to, name in anchors if name not in headings(page.parent / to if to else page)] == []


def headings(page):
    """Return the anchors of a page's headings, as GitHub writes them."""
    texts = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@every_page
def test_no_line_begins_with_a_rate(page):
    """Markdown takes such a line for HTML and leaves its links alone."""
    assert not re.search(r"^ *(- )?<!-- (rate|k of n|vectors)", page.read_text("utf-8"), re.MULTILINE)


def test_readme_and_results_say_of_the_atlas_what_its_records_say():
    lines = pages.maker(pages.LAB / "2026-11-24-atlas").trained().splitlines()
    training, finish, decoded, verified, never = (line.split("|")[-2].strip() for line in lines[2:])
    readme, results = (" ".join((pages.ROOT / n).read_text("utf-8").split()) for n in ("README.md", "docs/results.md"))
    assert f"at the width of 57p, {verified} have a verified seed" in readme
    assert f"{decoded} that were decoded {verified} are verified" in results and (finish, never) == ("1", "3")
    assert f"at the width of 57p {training} grok by training" in results
    assert "each of" not in readme.partition("at the width of 57p")[0][-100:]


def test_the_rows_that_a_finish_made_are_found(monkeypatch, tmp_path):
    """By the recipe, and unless the engine finished them."""
    module = pages.maker(pages.LAB / "2026-11-23-finishing")
    known = {"a": Recipe(steps=2_000, finish_above=0.5), "b": Recipe(steps=2_000)}
    environments = [None, "{}", '{"finish": "torch"}', '{"finish": "engine"}', None, None]
    rows = pd.DataFrame({"configuration": [*"aaaa", "b", "c"], "outcome": "grokked", "grok_step": 2_000.0})
    assert module.finished_elsewhere(rows, known).index.tolist() == [0, 1, 2, 3]
    assert module.finished_elsewhere(rows.assign(environment=environments), known).index.tolist() == [0, 1, 2]
    assert module.finished_elsewhere(rows[["outcome"]], known).empty


def test_a_page_names_every_file_that_deploys():
    deploy = pages.ROOT / "deploy"
    text = "".join(page.read_text("utf-8") for page in (*pages.pages(), *deploy.rglob("*.md")))
    files = [path for path in deploy.rglob("*") if path.is_file()]
    assert [str(path) for path in files if path.name not in text] == []


def test_readme_is_short():
    lines = (pages.ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 120 and max(map(len, lines)) <= 120
