"""`adder-search table`: every format, read back; the paper beside it; what can be wrong."""

import csv
import io
import json
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from model import preset
from search.analysis import frames
from search.analysis.table import constraint_table
from search.analysis.table_text import html, latex, markdown, section, written
from search.analysis.verdicts import CLAIMS, SCALES
from search.cli.evidence import table
from search.errors import UserError
from search.store.ledger import Ledger
from tests.commands import fails_with_one
from tests.pages import Page
from tests.test_table import OTHER, RECIPE, arm, seeds_of, table_of, without

UI = "http://127.0.0.1:5000"


def some_rows(study="constraints"):
    """Every verdict at 74p and 57p, one claim of the paper contradicted."""
    at_74p = {"recipe": OTHER, "study": study}
    return [
        arm("74p", 12, 64, verified=3, **at_74p),
        arm(preset("74p").constrained("frozen_spiral"), 0, 40, best_exact=0.1234, **at_74p),
        arm(without("74p", "no_ffn_bias"), 0, 36, **at_74p),
        arm(without("74p", "tie_vo"), 12, 64, **at_74p),
        arm("57p", 0, 40, study=study),
        arm(without("57p", "shared_norm"), 8, 40, study=study),
        arm(without("57p", "rank1_out"), 0, 3, study=study),
    ]


def made(*rows):
    return table_of(rows or some_rows())


@pytest.fixture
def parquet(here):
    rows = pd.DataFrame(some_rows())
    rows["recipe.curriculum"] = rows["recipe.curriculum"].map(json.dumps)
    rows.to_parquet(here / "some.parquet", index=False)
    pd.DataFrame(seeds_of(some_rows())).to_csv(here / "seeds.csv", index=False)
    return here / "some.parquet"


def call(*words):
    """With the seeds' file beside the configurations'."""
    beside = [w.with_name("seeds.csv") for w in words if isinstance(w, Path) and w.name == "some.parquet"]
    return CliRunner().invoke(table, [str(w) for w in (*words, *beside)], catch_exceptions=False)


def pipes(text):
    """The tables of a Markdown text, each a list of lines of cells."""
    tables, lines = [], [*text.splitlines(), ""]
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            tables[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
    return tables


# Markdown


def test_markdown_has_an_overview_and_a_line_a_cell():
    overview, details = pipes(markdown(made(), paper=False, ui=UI))
    assert overview == [
        ["constraint", "74p", "57p"],
        [line[0] for line in zip(overview[1], strict=True)],
        ["shared_norm", "cannot tell: 12/64 vs –", "fails: 0/40 vs 8/40"],
        ["rank1_out", "cannot tell: 12/64 vs –", "cannot tell: 0/40 vs 0/3"],
        ["no_ffn_bias", "helps, verified: 12/64 vs 0/36", "cannot tell: 0/40 vs –"],
        ["tie_vo", "works, verified: 12/64 vs 12/64", "cannot tell: 0/40 vs –"],
        ["frozen_spiral", "fails: 0/40 vs 12/64", "cannot tell: 0/40 vs –"],
    ]
    assert len(details) == 2 + 10 and all(len(line) == 13 for line in details)
    assert details[-2] == [
        "frozen_spiral", "74p", "fails", "[0/40][r7] 0.0 % (0.0–8.8)", "[12/64][r1] 18.8 % (11.1–30.0)",
        "−18.8 (−30.0 to −7.1)", "−30.0 (−46.6 to −16.2) of 40", "under 0.001", "99 %",
        "12.34 / 100.00", "– / 46,000", "– / 3 of 3", "4",
    ]  # fmt: skip


def test_how_much_independent_evidence_there_is_is_said():
    text = markdown(made(), paper=False, ui="")
    assert "- 5 comparisons with 2 base arms: the cells of a column share its base's seeds, " in text
    assert "3 have p below 5 %, by chance alone 0.2 would; " in text and "3 are left\n" in text
    unpaired = markdown(constraint_table(some_rows()), paper=False, ui="")
    assert "- no seed is recorded for both arms of any cell: nothing is paired\n" in unpaired


def test_markdown_is_aligned_and_says_its_rule():
    text = markdown(made(), paper=True, ui=UI)
    for lines in text.split("\n\n"):
        if lines.startswith("|"):
            assert len({len(line) for line in lines.splitlines()}) == 1
    assert "- fails: fewer grok with it, by that test\n" in text
    assert "would have said so in 80 % of such comparisons or more" in text
    assert "- 57p: 57 parameters, study constraints; recipe: as the 57p paper has it\n" in text
    assert "- 74p: 74 parameters, study constraints; recipe: steps 120000, curriculum [[3, 1000]], " in text
    assert text.endswith("\n") and not text.endswith("\n\n")


def test_markdown_links_to_runs_unless_told_not_to():
    text = markdown(made(), paper=False, ui=UI)
    run = made().scales[0].base.run_id
    assert f"[r1]: {UI}/#/experiments/7/runs/{run}\n" in text and text.count("[12/64][r1]") == 5
    plain = markdown(made(), paper=False, ui="")
    assert "[r" not in plain and "http" not in plain and "| 12/64 18.8 %" in plain


def test_markdown_shows_names_as_they_are():
    text = markdown(made(*some_rows("<b>a | b`\nc")), paper=False, ui="")
    assert "study &lt;b>a \\| b' c; " in text and "<b>" not in text


def test_a_second_column_says_what_is_different():
    rows = [arm(s, 1, 9, recipe=r) for r in (OTHER, RECIPE) for s in ("57p", without("57p", "tie_vo"))]
    rows.append(arm(without("57p", "qk_dim"), recipe=OTHER))
    text = markdown(made(*rows), paper=False, ui="")
    assert "- 57p (2): 57 parameters, study constraints; unlike 57p: steps 60000, " in text


def test_what_else_differs_and_what_was_chosen_is_noted():
    rows = [arm("170p", 0, 9), arm(preset("170p").constrained("frozen_spiral"), 0, 9)]
    once = markdown(made(*rows), paper=False, ui="")
    assert "- frozen_spiral at 170p: with it also plain_spiral; without it also linear_correction\n" in once
    assert "nothing is added up" not in once
    twice = markdown(made(*rows, arm("170p", 0, 8, study="other")), paper=False, ui="")
    assert "nothing is added up" in twice


# CSV and JSON


def test_csv_and_json_are_the_tidy_cells():
    tidy = made().tidy(paper=True)
    read = list(csv.DictReader(io.StringIO(written(made(), "csv", paper=True))))
    loaded = json.loads(written(made(), "json", paper=True))
    assert list(read[0]) == list(loaded[0]) == list(tidy[0])
    assert len(read) == len(loaded) == len(tidy) == 10
    for text, value in zip(read, loaded, strict=True):
        assert text == {name: "" if v is None else str(v) for name, v in value.items()}
    fails = next(c for c in loaded if c["constraint"] == "frozen_spiral" and c["scale"] == "74p")
    assert (fails["with_seeds"], fails["with_median_grok_step"], fails["params_saved"]) == (40, None, 4)
    assert fails["without_page"].startswith("#/experiments/7/runs/constraints-")
    assert "published" not in json.loads(written(made(), "json"))[0]


# LaTeX


def test_latex_is_a_booktabs_table_with_everything_escaped():
    text = latex(made(), paper=False)
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == text.count(r"\begin{table}") == 1
    assert r"shared\_norm & cannot tell: 12/64 vs – & fails: 0/40 vs 8/40 \\" in text
    assert (
        r"exact test on the seeds that both arms had (5 \%)" in text
        and "% 57p: 57 parameters, study constraints; recipe: " in text
    )
    assert "\n% 57p: 57 parameters, study a b; " in latex(made(*some_rows("a\nb")), paper=False)
    both = latex(made(), paper=True)
    assert both.count(r"\toprule") == 2 and "contradicts: “Works”" in both


# HTML


def test_html_is_one_whole_page():
    text = html(made(), paper=True, ui=UI)
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert "src=" not in text and "url(" not in text and "<script" not in text
    overview, details = page.texts(0), page.texts(1)
    assert overview[0] == ["constraint", "74p", "57p"] and len(overview) == 6
    assert overview[1][2] == (
        "fails with 0/40 , 0.0 % (0.0–8.8) without 8/40 , 20.0 % (10.5–34.8) paper: “Works”, contradicts"
    )
    assert [c for c, _ in page.tables[0][1][1:]] == ["cannot tell", "fails"]
    assert len(details) == 1 + 10 and details[1][:3] == ["shared_norm", "74p", "cannot tell"]
    assert details[1][3] == "12/64 18.8 % (11.1–30.0)"
    assert f"{UI}/{made().scales[0].base.page}" in page.links
    assert text.endswith(section(made(), paper=True, ui=UI))


def test_html_without_links_and_without_the_paper():
    text = html(made(), paper=False, ui="")
    assert Page(text).links == [] and "paper:" not in text


def test_html_is_escaped():
    evil = '"><script>alert(1)</script>'
    rows = [{**row, "run_id": evil} for row in some_rows(evil)]
    text = html(made(*rows), paper=True, ui=f"http://x/{evil}")
    assert "<script" not in text
    assert Page(text).links[0] == f"http://x/{evil}/#/experiments/7/runs/{evil}"


# The command


def test_the_command_reads_a_file(parquet):
    said = call(parquet)
    assert said.exit_code == 0 and said.stdout == markdown(made(), paper=False, ui=UI)
    for style in ("csv", "json", "html", "latex"):
        assert call(parquet, "--format", style).stdout == written(made(), style, ui=UI)
        assert call(parquet, "--format", style, "--paper").exit_code == 0
    assert call(parquet, "--format", "html", "--ui", "https://adders/").stdout == html(
        made(), paper=False, ui="https://adders"
    )


def test_beside_the_paper_its_whole_table_is_shown(parquet):
    text = call(parquet, "--paper").stdout
    overview, paper, _ = pipes(text)
    assert overview[0] == paper[0] == ["constraint", *SCALES]
    assert [line[0] for line in overview[2:]] == list(CLAIMS)
    assert paper[2] == [
        "shared_norm", "open: “Failed (61.5%)”", "open: “Works”", "open: “Works”", "contradicts: “Works”",
    ]  # fmt: skip
    assert overview[2][1] == overview[2][3] == "not tested"
    counts = "of 21 cells with a published verdict: agrees 2, contradicts 1, open 18; 7 without one."
    assert f"Beside the 57p paper, section 4.3: {counts}" in text
    assert "- 170p: 170 parameters, nothing recorded\n" in text
    tidy = json.loads(call(parquet, "--paper", "--format", "json").stdout)
    assert len(tidy) == 28 and sum(c["agreement"] == "contradicts" for c in tidy) == 1
    assert call(parquet, "--paper").stdout == text


def test_the_command_writes_a_file(parquet, here):
    said = call(parquet, "--format", "csv", "-o", "table.csv")
    assert (said.exit_code, said.stdout) == (0, "table.csv: 5 constraints at 2 scales\n")
    assert (here / "table.csv").read_bytes() == written(made(), "csv").encode()


def test_a_home_without_studies_has_no_table(home):
    Ledger(home)
    with pytest.raises(UserError, match="none of 0 recorded configurations"):
        call("--home", home.path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "table.parquet: no such file"),
        (b"no Parquet at all", "table.parquet: cannot be read as Parquet"),
        (b"", "table.parquet: cannot be read as Parquet"),
    ],
)
def test_files_that_cannot_be_read(content, says, here):
    if content is not None:
        (here / "table.parquet").write_bytes(content)
    with pytest.raises(UserError) as error:
        call("table.parquet")
    assert str(error.value) == says


SEEDS = "study,configuration,init_seed,data_seed,outcome,held,steps,budget,grok_step,hopeless_step,best_token"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "seeds.csv: cannot be read as CSV"),
        (b"\xff\xfe\x00", "seeds.csv: cannot be read as CSV"),
        (
            b"init_seed,study\n1,a\n",
            "seeds.csv: no table of seeds: it has no column configuration, outcome, *",
        ),
        (f"{SEEDS}\na,b,x,1,failed,False,1,1,,,0\n".encode(), "*: what is to be a number is none"),
        (f"{SEEDS}\na,b,1e400,1,failed,False,1,1,,,0\n".encode(), "*: what is to be a number is none"),
        (b"init_seed" + b",x" * 1_000, "seeds.csv: larger than any table of records (2,009 bytes)"),
    ],
)
@pytest.mark.parametrize("command", ["table", "claims"])
def test_tables_of_seeds_that_cannot_be_read(command, text, says, here, monkeypatch):
    monkeypatch.setattr(frames, "MOST_TEXT", 2_000)
    (here / "seeds.csv").write_bytes(text)
    assert fnmatch(fails_with_one(2, command, "seeds.csv"), says)


def test_another_frame_is_refused(here):
    pd.DataFrame({"study": ["a"], "seeds": [3]}).to_parquet(here / "other.parquet")
    with pytest.raises(UserError, match="no frame of configurations: it has no column configuration"):
        call("other.parquet")


def test_an_unknown_format_is_refused(parquet):
    said = call(parquet, "--format", "pdf")
    assert said.exit_code == 2 and "'pdf' is not one of 'md', 'csv', 'json', 'html', 'latex'" in said.stderr


def test_a_folder_is_no_target(parquet, here):
    with pytest.raises(UserError, match="is a folder; give the file's name with -o"):
        call(parquet, "-o", here)
