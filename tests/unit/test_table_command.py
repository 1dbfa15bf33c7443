"""`adder-search table`: every format, read back; the paper beside it; files that cannot be read."""

from __future__ import annotations

import csv
import io
import json
from fnmatch import fnmatch

import pandas as pd
import pytest

from model import preset
from search.analysis.table import constraint_table
from search.analysis.table_text import markdown, write_table
from search.analysis.verdicts import published
from search.store.ledger import Ledger
from tests.commands import call, fails_with_one
from tests.unit.test_table import OTHER, RECIPE, arm, seeds_of, table_of, without

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


@pytest.fixture
def files(here):
    """A file of configurations and one of their seeds."""
    rows = pd.DataFrame(some_rows())
    rows["recipe.curriculum"] = rows["recipe.curriculum"].map(json.dumps)
    rows.to_parquet("some.parquet", index=False)
    pd.DataFrame(seeds_of(some_rows())).to_csv("seeds.csv", index=False)
    return "some.parquet", "seeds.csv"


def pipes(text):
    """The tables of a Markdown text, each a list of lines of cells."""
    tables, lines = [], [*text.splitlines(), ""]
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            tables[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
    return tables


def test_markdown_has_an_overview_and_a_line_a_cell():
    text = markdown(table_of(some_rows()), ui=UI)
    overview, details = pipes(text)
    assert overview[0] == ["constraint", "74p", "57p"]
    assert overview[2:] == [
        ["shared_norm", "cannot tell: 12/64 vs –", "fails: 0/40 vs 8/40"],
        ["rank1_out", "cannot tell: 12/64 vs –", "cannot tell: 0/40 vs 0/3"],
        ["no_ffn_bias", "helps, verified: 12/64 vs 0/36", "cannot tell: 0/40 vs –"],
        ["tie_vo", "works, verified: 12/64 vs 12/64", "cannot tell: 0/40 vs –"],
        ["frozen_spiral", "fails: 0/40 vs 12/64", "cannot tell: 0/40 vs –"],
    ]
    assert len(details) == 2 + 10
    assert details[-2] == [
        "frozen_spiral", "74p", "fails", "[0/40][r7] 0.0 % (0.0–8.8)", "[12/64][r1] 18.8 % (11.1–30.0)",
        "−18.8 (−30.0 to −7.1)", "−30.0 (−46.6 to −16.2) of 40", "under 0.001", "99 %",
        "12.34 / 100.00", "– / 46,000", "– / 3 of 3", "4",
    ]  # fmt: skip
    run = table_of(some_rows()).scales[0].base.run_id
    assert f"[r1]: {UI}/#/experiments/7/runs/{run}\n" in text and text.count("[12/64][r1]") == 5


def test_notes_say_how_much_evidence_there_is_and_what_differs():
    text = markdown(table_of(some_rows()))
    assert "- 5 comparisons with 2 base arms: the cells of a column share its base's seeds, " in text
    assert "3 have p below 5 %, by chance alone 0.2 would; " in text and "3 are left\n" in text
    assert "- 57p: 57 parameters, study constraints; recipe: as the 57p paper has it\n" in text
    assert "- 74p: 74 parameters, study constraints; recipe: steps 120000, curriculum [[3, 1000]], " in text
    assert "[r" not in text and "nothing is added up" not in text, "no links, no repeats"
    assert "nothing is paired\n" in markdown(constraint_table(some_rows()))
    rows = [arm(s, 1, 9, recipe=r) for r in (OTHER, RECIPE) for s in ("57p", without("57p", "tie_vo"))]
    rows += [arm(without("57p", "qk_dim"), recipe=OTHER), arm("57p", 0, 8, study="again")]
    text = markdown(table_of(rows))
    assert "- 57p (2): 57 parameters, study constraints; unlike 57p: steps 60000, " in text
    assert "nothing is added up" in text


def test_markdown_shows_names_as_they_are():
    text = markdown(table_of(some_rows("<b>a | b`\nc")))
    assert "study &lt;b>a \\| b' c; " in text and "<b>" not in text


def test_csv_and_json_are_the_tidy_cells():
    table = table_of(some_rows())
    cells = list(csv.DictReader(io.StringIO(write_table(table, "csv", paper=True))))
    loaded = json.loads(write_table(table, "json", paper=True))
    assert loaded == table.tidy(paper=True) and len(cells) == len(loaded) == 10
    for texts, values in zip(cells, loaded, strict=True):
        assert texts == {name: "" if v is None else str(v) for name, v in values.items()}
    assert "published" not in json.loads(write_table(table, "json"))[0]


# The command


def test_the_command_reads_files_and_writes_one(files, here):
    assert call("table", *files).stdout == markdown(table_of(some_rows()), ui=UI)
    for style in ("csv", "json"):
        assert call("table", *files, "--format", style).stdout == write_table(table_of(some_rows()), style)
    result = call("table", *files, "--format", "csv", "-o", "table.csv")
    assert (result.exit_code, result.stdout) == (0, "table.csv: 5 constraints at 2 scales\n")
    assert (here / "table.csv").read_bytes() == write_table(table_of(some_rows()), "csv").encode()


def test_beside_the_paper_its_whole_table_is_shown(files):
    text = call("table", *files, "--paper").stdout
    overview, paper, _ = pipes(text)
    assert overview[0] == paper[0] == ["constraint", "170p", "74p", "67p", "57p"]
    assert [line[0] for line in overview[2:]] == list(
        dict.fromkeys(constraint for constraint, _ in published())
    )
    assert paper[2] == [
        "shared_norm", "open: “Failed (61.5%)”", "open: “Works”", "open: “Works”", "contradicts: “Works”",
    ]  # fmt: skip
    assert overview[2][1] == "not tested" and "- 170p: 170 parameters, nothing recorded\n" in text
    counts = "of 21 cells with a published verdict: agrees 2, contradicts 1, open 18; 7 without one."
    assert f"Beside the 57p paper, section 4.3: {counts}" in text


def test_a_home_without_studies_has_no_table(home, here):
    Ledger(home)
    assert fails_with_one(2, "table", "--home", home.path).startswith("none of 0 recorded configurations")


SEEDS = "study,configuration,init_seed,data_seed,outcome,held,steps,budget,grok_step,hopeless_step,best_token"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.parquet", None, "x.parquet: no such file"),
        ("x.parquet", b"no Parquet at all", "x.parquet: cannot be read as Parquet"),
        ("x.csv", b"", "x.csv: cannot be read as CSV"),
        ("x.csv", b"\xff\xfe\x00", "x.csv: cannot be read as CSV"),
        (
            "x.csv",
            b"study,seeds\na,3\n",
            "this is no frame of configurations: it has no column configuration, *",
        ),
        (
            "x.csv",
            b"init_seed,study\n1,a\n",
            "x.csv: no table of seeds: it has no column configuration, outcome, *",
        ),
        ("x.csv", f"{SEEDS}\na,b,x,1,failed,False,1,1,,,0\n".encode(), "*: what is to be a number is none"),
        (
            "x.csv",
            f"{SEEDS}\na,b,1e400,1,failed,False,1,1,,,0\n".encode(),
            "*: what is to be a number is none",
        ),
    ],
)
def test_files_that_cannot_be_read(name, content, message, here):
    if content is not None:
        (here / name).write_bytes(content)
    assert fnmatch(fails_with_one(2, "table", name), message)


def test_unknown_formats_and_folders_are_refused(files, here):
    result = call("table", *files, "--format", "pdf")
    assert result.exit_code == 2 and "'pdf' is not one of 'md', 'csv', 'json'" in result.stderr
    assert "is a folder; give the file's name with -o" in fails_with_one(2, "table", *files, "-o", here)
