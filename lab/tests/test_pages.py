"""Pages are what their tables of seeds say, and their links lead somewhere."""

import re
from pathlib import Path

import pandas as pd
import pytest

from lab import pages, tables
from trainer import Recipe


def test_generating_the_pages_changes_nothing():
    changed = [str(p) for p in pages.pages() if pages.generated(p, text := p.read_text("utf-8")) != text]
    assert not changed, "make pages"


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


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_the_links_of_a_page_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not Path(page.parent / link).exists()] == []
    anchors = re.findall(r"\]\(([^):\s]*\.md)?#([^)\s]+)\)", page.read_text("utf-8"))
    assert [(to, name) for to, name in anchors if name not in headings(page.parent / to if to else page)] == []


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub writes them."""
    texts = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_no_line_begins_with_a_rate(page):
    """Markdown takes such a line for HTML and leaves its links alone."""
    assert not re.search(r"^ *(- )?<!-- (rate|k of n|vectors)", page.read_text("utf-8"), re.MULTILINE)


def test_readme_and_results_say_of_the_atlas_what_its_records_say():
    lines = pages.maker(pages.LAB / "2026-11-24-atlas").trained().splitlines()
    training, finish, decoded, verified, never = (line.split("|")[-2].strip() for line in lines[2:])
    readme, results = (" ".join((pages.ROOT / n).read_text("utf-8").split()) for n in ("README.md", "docs/results.md"))
    assert f"at the width of 57p {decoded} were decoded: {verified} have a verified seed" in readme
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
    text = "".join(page.read_text("utf-8") for page in pages.pages())
    files = [path for path in (pages.ROOT / "deploy").rglob("*") if path.is_file()]
    assert [str(path) for path in files if path.name not in text] == []


def test_readme_is_short():
    lines = (pages.ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 120 and max(map(len, lines)) <= 120
