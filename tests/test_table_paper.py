"""The constraint table beside the paper's, and as tidy rows."""

from dataclasses import replace

import pytest

from model import make_spec, preset
from search.analysis.table import Agreement, Verdict, agreement, constraint_table
from search.analysis.verdicts import CLAIMS, SCALES, Claim, claim
from search.stats.intervals import paired_interval, wilson
from tests.test_table import OTHER, RECIPE, arm, table_of, without

# The paper


def test_the_papers_table():
    """28 cells: 4 fail at 170p, 17 work, 7 claim nothing."""
    verdicts = [c.verdict for row in CLAIMS.values() for c in row.values()]
    assert [verdicts.count(v) for v in ("fails", "works", "")] == [4, 17, 7]
    assert all(list(row) == list(SCALES) for row in CLAIMS.values())
    assert claim("no_ffn_bias", "170p") == Claim("Required for convergence", "fails")
    assert claim("tie_vo", "100p") == claim("circular", "57p") == Claim()
    specs = [make_spec(**preset(scale).as_dict()).constraints() for scale in SCALES]
    assert all(row.partition("=")[0] in known for row in CLAIMS for known in specs)


@pytest.mark.parametrize(
    ("ours", "words", "expected"),
    [
        (Verdict.WORKS, "works", Agreement.AGREES),
        (Verdict.HELPS, "works", Agreement.AGREES),
        (Verdict.FAILS, "works", Agreement.CONTRADICTS),
        (Verdict.FAILS, "fails", Agreement.AGREES),
        (Verdict.WORKS, "fails", Agreement.CONTRADICTS),
        (Verdict.HELPS, "fails", Agreement.CONTRADICTS),
        (Verdict.CANNOT_TELL, "works", Agreement.OPEN),
        (Verdict.NOT_TESTED, "fails", Agreement.OPEN),
        (Verdict.WORKS, "", Agreement.NO_CLAIM),
        (Verdict.NOT_TESTED, "", Agreement.NO_CLAIM),
    ],
)
def test_agreement_with_the_paper(ours, words, expected):
    assert agreement(ours, Claim("whatever", words)) == expected


def test_a_second_column_of_a_rung_answers_to_the_same_claim():
    rows = [arm(s, 1, 9, recipe=r) for r in (RECIPE, OTHER) for s in ("57p", without("57p", "tie_vo"))]
    rows = [{**row, "seeds": 30, "grokked": 15} for row in rows]
    cells = table_of(rows).cells
    assert [(c.published.words, c.agreement) for c in cells] == [("Works", Agreement.AGREES)] * 2


# Tidy rows


def test_tidy_rows_are_the_cells():
    rows = [arm("57p", 9, 64, verified=1), arm(without("57p", "tie_vo"), 0, 36), arm("67p", 1, 9)]
    table = table_of(rows)
    tidy = table.tidy(paper=True)
    assert len(tidy) == len(table.cells) == 4
    (row,) = (r for r in tidy if (r["constraint"], r["scale"]) == ("tie_vo", "57p"))
    assert (row["verdict"], row["with_verified"]) == ("helps", 1)
    assert (row["pairs"], row["only_with"], row["only_without"]) == (36, 9, 0)
    assert row["p"] == 2 / 2**9 and row["paired_difference"] == 9 / 36 and row["power"] == 0
    assert (row["paired_low"], row["paired_high"]) == paired_interval(9, 0, 36)
    assert (row["params"], row["params_saved"]) == (57, 10)
    assert (row["with_grokked"], row["with_seeds"], row["without_seeds"]) == (9, 64, 36)
    assert (row["with_low"], row["with_high"]) == wilson(9, 64)
    assert (row["published"], row["agreement"]) == ("Works", "agrees")
    assert "published" not in table.tidy()[0]
    assert list(dict.fromkeys(r["constraint"] for r in tidy)) == list(table.constraints)


def test_the_same_records_make_the_same_table():
    rows = [arm("57p", 4, 64), *(arm(without("57p", n), 1, 9) for n in ("tie_vo", "rank1_out"))]
    other = replace(preset("57p"), equals_index=3.0)  # nothing reads it: the same rung under another key
    rows += [arm(other), arm(other.without("tie_vo"))]
    table = constraint_table(rows)
    assert table == constraint_table(rows[::-1])
    assert [s.label for s in table.scales] == ["57p", "57p (2)"]
