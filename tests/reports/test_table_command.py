"""`adder-search table`: every format, read back; the paper beside it; files that cannot be read."""

import json
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from model import preset
from reports.flags import MOST_GRIDS, flag_grids, single_flags
from reports.flags_figure import flags_figure
from reports.plots import INK, image_of
from reports.ratios import ratio_interval
from reports.records import shipped_records
from reports.table_figure import table_figure
from reports.table_text import count, details, discovered, markdown, times, write_table
from reports.verdicts import published
from tests.commands import done, fails_with_one
from tests.reports.test_flags import ADDITIVE, one_flag
from tests.reports.test_flags import seeds_of as seeds_of_grid
from tests.reports.test_table import OTHER, arm, seeds_of, table_of, without

UI = "http://127.0.0.1:5000"


def some_rows(study="constraints"):
    """Cells of every kind at 74p and 57p, one claim of the paper contradicted."""
    at_74p = {"recipe": OTHER, "study": study}
    return [
        arm("74p", 12, 64, **at_74p),
        arm(preset("74p").constrained("frozen_spiral"), 0, 40, best_exact=0.1234, **at_74p),
        arm(without("74p", "no_ffn_bias"), 0, 36, **at_74p),
        arm(without("74p", "tie_vo"), 12, 64, **at_74p),
        arm("57p", 0, 40, study=study),
        arm(without("57p", "shared_norm"), 8, 40, study=study),
        arm(without("57p", "rank1_out"), 0, 3, study=study),
    ]


def write_frames(rows):
    """A file of configurations and one of their seeds."""
    frame = pd.DataFrame(rows)
    frame["recipe.curriculum"] = frame["recipe.curriculum"].map(json.dumps)
    frame.to_parquet("some.parquet", index=False)
    pd.DataFrame(seeds_of(rows)).assign(budget=60_000).to_csv("seeds.csv", index=False)
    return "some.parquet", "seeds.csv"


@pytest.fixture
def files(here):
    return write_frames(some_rows())


def pipes(text):
    """The tables of a Markdown text, each a list of lines of cells."""
    tables, lines = [], [*text.splitlines(), ""]
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            tables[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
    return tables


def test_markdown_has_a_grid_and_a_line_a_cell():
    text = markdown(table_of(some_rows()), ui=UI)
    grid, details = pipes(text)
    assert grid[0] == ["constraint", "74p", "57p"]
    assert grid[2:] == [
        ["shared_norm", "trains: 12/64 vs –", "not seen to train, costs ×0.00: 0/40 vs 8/40"],
        ["rank1_out", "trains: 12/64 vs –", "open: 0/40 vs 0/3"],
        ["no_ffn_bias", "trains, helps: 12/64 vs 0/36", "open: 0/40 vs –"],
        ["tie_vo", "trains, ×1.00: 12/64 vs 12/64", "open: 0/40 vs –"],
        ["frozen_spiral", "not seen to train, costs ×0.00: 0/40 vs 12/64", "open: 0/40 vs –"],
    ]
    assert len(details) == 2 + 10
    high = ratio_interval(0, 0, 12)[1]
    assert details[-2] == [
        "frozen_spiral", "74p", "no, at most 7.2 %", "[0/40][r7] 0 %", "[12/64][r1] 19 %",
        f"×0.00 (0.00–{high:.2f}) of 40 pairs", "costs", "no", "4", "constraints",
    ]  # fmt: skip
    run = some_rows()[0]["run_id"]
    assert f"[r1]: {UI}/#/experiments/7/runs/{run}\n" in text and text.count("[12/64][r1]") == 5


def test_two_presets_that_differ_in_one_constraint_are_one_pair_of_arms():
    """57p is 67p with tie_fc2_head: two cells, one comparison, and the page says why."""
    rows = [arm("67p", 30, 40), arm("57p", 10, 40), arm(without("57p", "tie_vo"), 12, 40)]
    table = table_of(rows, scales=["67p", "57p"])
    text = markdown(table)
    once = "tie_fc2_head at 67p and 57p is one pair of arms, as it is all in which these presets differ"
    assert text.count("10/40 vs 30/40") == 2 and "\n- 2 comparisons; " in text and f"\n- {once}: " in text
    assert once in " ".join(table_figure(table).get_supxlabel().split())
    assert "one pair" not in markdown(table_of(some_rows()))


@pytest.mark.parametrize(("grokked", "share"), [(0, "0"), (1, "0.4"), (255, "99.6"), (256, "100")])
def test_a_share_reads_as_none_or_all_only_where_it_is(grokked, share):
    rows = [arm("57p", grokked, 256), arm(without("57p", "tie_vo"), 128, 256, stopped=True)]
    head, (line,) = details(table_of(rows), paper=False)
    assert dict(zip(head, line, strict=True))["with it"] == f"{grokked}/256 {share} %"


# The command


def test_the_command_reads_files_and_writes_one(files, here):
    assert done("table", *files) == markdown(table_of(some_rows()), ui=UI)
    for style in ("csv", "json"):
        assert done("table", *files, "--format", style) == write_table(table_of(some_rows()), style)
    said = done("table", *files, "--format", "csv", "-o", "table.csv")
    assert said == "table.csv: 5 constraints at 2 scales\n"
    assert (here / "table.csv").read_bytes() == write_table(table_of(some_rows()), "csv").encode()


def test_beside_the_paper_its_whole_table_is_shown(files):
    text = done("table", *files, "--paper")
    grid, details = pipes(text)
    assert details[2][-4:] == ["Works", "agrees", "10", "constraints"]
    assert grid[0] == ["constraint", "170p", "74p", "67p", "57p"]
    assert [line[0] for line in grid[2:]] == list(dict.fromkeys(constraint for constraint, _ in published()))
    unlike = "not seen to train, costs ×0.00: 0/40 vs 8/40 (paper: works)"
    assert grid[2] == ["shared_norm", "–", "trains: 12/64 vs –", "–", unlike]
    assert grid[7][:3] == ["qk_dim=4", "", "–"], "170p cannot have it"
    agreeing = "4 agree with it, 1 contradict it, 16 are open."
    counts = f"has a verdict on 21 of 27 cells (14 of them not tried): {agreeing}"
    assert f"The 57p paper, section 4.3, {counts}\n" in text and "- 170p: nothing is compared\n" in text
    rows = json.loads(done("table", *files, "--paper", "--format", "json"))
    agreements = [row["agrees"] for row in rows]
    assert [agreements.count(a) for a in ("agrees", "contradicts", "open", None)] == [4, 1, 16, 6]


def test_shipped_records_are_read_without_a_home(here):
    shipped = json.loads(done("table", "--shipped", "--paper", "--format", "json"))
    rows = {(row["constraint"], row["scale"]): row for row in shipped}
    assert published().keys() - rows.keys() == {("qk_dim=4", "170p")} and not any(here.iterdir())
    assert rows["tie_vo", "57p"]["trains"] == "yes" and rows["tie_vo", "100p"]["pairs"] >= 32
    (here / "own.csv").write_text("study,seeds\n1,2\n")
    assert "no frame of configurations" in fails_with_one(2, "table", "own.csv", "--shipped")


def test_of_a_search_the_flags_are_shown_against_each_other(here):
    base = preset("74p").constrained("frozen_spiral")
    tied = base.toggled("tie_vo")
    specs = [base, tied, base.toggled("no_ffn_bias"), tied.toggled("no_ffn_bias")]
    rows = [arm(spec, i, 12, recipe=replace(OTHER, hold=i), study="s") for i, spec in enumerate(specs, 1)]
    files = write_frames(rows)
    cells = json.loads(done("table", *files, "--format", "json"))
    assert [({c["flag"], c["with_flag"]}, c["n"]) for c in cells] == [({"tie_vo", "no_ffn_bias"}, 12)] * 4
    assert sorted(c["grokked"] for c in cells) == [1, 2, 3, 4]
    assert "1 of 12 (8%, " in done("table", *files)
    assert done("table", *files, "-o", "a.svg") == "a.svg: 1 flag pair\n"
    assert b"<svg" in Path("a.svg").read_bytes()


def test_the_picture_of_flags_has_every_rate_of_the_text():
    flag, grid = single_flags(*one_flag({True: 0.3, False: 0.0})), flag_grids(*seeds_of_grid(ADDITIVE))
    grid += flag_grids(*seeds_of_grid({key: rate for key, rate in ADDITIVE.items() if key != (True, True)}))
    figure = flags_figure(flag, grid)
    shown = [[text.get_text() for text in axis.texts] for axis in figure.axes]
    (_, off, on), (*_, last) = flag[0].lines(), grid[1].lines()
    assert shown[0] == [off[1], f"{on[1]}\n{on[2]}"] and last[2] == "–" == shown[2][3]
    assert shown[1] == [rate for _, *rates in grid[0].lines()[1:] for rate in rates]
    labels = [[text.get_text() for text in axis.get_yticklabels()] for axis in figure.axes]
    assert labels[0] == ["off", "on"] and labels[1][:2] == ["tie_vo off, shared_norm off", "tie_vo off, shared_norm on"]
    assert [axis.get_title("left") for axis in figure.axes] == ["s: tie_vo", *["s: tie_vo × shared_norm"] * 2]
    many = flags_figure([], grid * 20)
    assert len(many.axes) == MOST_GRIDS and "The first 15 of 40" in many.get_supxlabel()


def test_without_a_published_verdict_the_picture_says_nothing_of_the_paper(here):
    rows = [arm("57p", 1, 16), arm(without("57p", "tie_qk"), 0, 16)]
    assert done("table", *write_frames(rows), "-o", "t.svg") == "t.svg: 1 constraint at 1 scale\n"
    figure = table_figure(table_of(rows))
    assert not figure.axes[0].get_title("left") and "paper" not in figure.get_supxlabel()
    with_a_verdict = table_figure(table_of([arm("57p", 1, 16), arm(without("57p", "tie_vo"), 0, 16)]))
    assert "verdict on 1 of 1 cell" in with_a_verdict.axes[0].get_title("left").replace("\n", " ")
    assert "paper" in with_a_verdict.get_supxlabel()


def test_a_picture_has_the_counts_of_every_cell(files, here):
    """And the published verdict of each, and a frame where it is not so."""
    assert done("table", *files, "--paper", "-o", "table.svg") == "table.svg: 7 constraints at 4 scales\n"
    table = table_of(some_rows())
    first = image_of(table_figure(table), ".svg")
    assert first == image_of(table_figure(table), ".svg") and b"<svg" in first
    (axes, _) = table_figure(table).axes
    texts = [text.get_text() for text in axes.texts]
    for cell in filter(lambda cell: cell.with_it, table.cells.values()):
        assert f"{count(cell.with_it)} vs {count(cell.without)}" in texts
    assert texts.count("✓") == 9 and texts.count("✗") == 0
    assert [patch.get_edgecolor()[:3] for patch in axes.patches].count(to_rgb(INK)) == 1
    done("table", *files, "-o", "table.png")
    assert Path("table.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_has_the_names_of_scales_as_they_are():
    """Whatever a study calls them; those of presets are numbers of parameters."""
    name, wide = r"deep $\x$", replace(preset("67p"), hidden=8)
    arms = [arm("57p", 1, 8), arm(without("57p", "tie_vo"), 0, 8)]
    figure = table_figure(table_of([*arms, arm(wide, 1, 8, scale=name), arm(wide.without("tie_vo"), 0, 8)]))
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == [name, "57 parameters"]
    assert image_of(figure, ".svg")


def test_the_picture_has_in_bold_what_is_left_at_the_false_discovery_rate():
    """Of two ratios whose interval leaves out 1, one is left of the four that are compared."""
    rows = [
        arm("57p", 20, 40),
        *(arm(without("57p", name), 20, 40) for name in ("shared_norm", "tie_vo")),
        arm(without("57p", "no_ffn_bias"), 14, 40),
        arm(without("57p", "frozen_spiral"), 2, 40),
    ]
    table = table_of(rows)
    assert [cell.cost for cell in table.cells.values()].count("helps") == 2
    left = discovered(table.cells.values())
    assert [[cell.constraint for cell in same] for same in left] == [["frozen_spiral"]]
    assert "false discovery rate of 5 % (Benjamini and Hochberg) 1 is left: frozen_spiral at 57p" in markdown(table)
    figure = table_figure(table)
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"]
    assert bold == [f"trains, {times(table.cells['frozen_spiral', '57p'])}"]
    assert "Bold: left at a false discovery rate of 5 %" in " ".join(figure.get_supxlabel().split())


SEEDS = "study,configuration,init_seed,data_seed,outcome,held,steps,budget,grok_step,hopeless_step,best_token"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.parquet", None, "x.parquet: no such file"),
        ("x.parquet", b"no Parquet at all", "x.parquet: cannot be read as Parquet"),
        ("x.csv", b"\xff\xfe\x00", "x.csv: cannot be read as CSV"),
        ("x.csv", b"study,seeds\na,3\n", "this is no frame of configurations: it has no column configuration, *"),
        ("x.csv", b"init_seed,study\n1,a\n", "x.csv: no table of seeds: it has no column configuration, outcome, *"),
        ("x.csv", f"{SEEDS}\na,b,x,1,failed,False,1,1,,,0\n".encode(), "*: what is to be a number is none"),
        ("x.csv", f"{SEEDS}\na,b,1e400,1,failed,False,1,1,,,0\n".encode(), "*: what is to be a number is none"),
    ],
)
def test_files_that_cannot_be_read(name, content, message, here):
    if content is not None:
        (here / name).write_bytes(content)
    assert fnmatch(fails_with_one(2, "table", name), message)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("study", "![x](http://e/x.png)"),
        ("configuration", "<img src=x>"),
        ("experiment_id", "a\nb"),
        ("run_id", "../../x"),
        ("run_id", "x" * 200),
    ],
)
def test_a_name_in_a_file_is_a_name(column, text, here):
    """It is shown in tables of Markdown, and in their links."""
    (shipped,) = [f for f in shipped_records() if f.endswith("/constraints-configurations.parquet")]
    frame = pd.read_parquet(shipped)
    frame.loc[frame["seeds"].idxmax(), column] = text
    frame.to_parquet("x.parquet")
    said = fails_with_one(2, "table", "x.parquet")
    assert said.startswith("configuration '") and said.endswith("is no name") and said.isprintable()
