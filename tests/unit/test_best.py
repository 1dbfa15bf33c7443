"""`adder-search best` and `records`: the Pareto front as a table, and the records as files."""

import json
import math
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest

from search.analysis import frames
from search.analysis.pareto import beaten, best_of, front, table
from search.stats.intervals import mid_p
from tests.commands import call

pytestmark = pytest.mark.usefixtures("here")


def configuration(params, grokked, seeds=20, *, key=None, study="s", **changes):
    """A row of the records' configurations, as far as `best` reads it."""
    rate = grokked / seeds
    return {
        "study": study, "configuration": key or f"{params:04}{grokked:04}abcd", "rung": f"{params}p",
        "title": f"lr {grokked}",
        "params": params, "seeds": seeds, "grokked": grokked, "grok_rate": rate,
        "grokked_per_million": 20 * rate, "grok_rate_low": rate / 2, "grok_rate_high": min(1.0, 2 * rate),
        "median_grok_step": 41_500.0 if grokked else math.nan, "held": grokked // 2, "verified": 0,
        "verify_tried": 0, "best_seed": "777" if grokked else "",
        "given_up": 0, "wrongly": 0.0, "confirmation_given_up": 0, "confirmation_wrongly": 0.0,
        "stopped": False, "confirmation_grokked": 0, "confirmation_seeds": 0,
        "confirmation_low": math.nan, "confirmation_high": math.nan,
        "recipe.curriculum": ((3, 10), (6, 20)),
    } | changes  # fmt: skip


SMALL, MIDDLE = configuration(46, 1), configuration(57, 8, held=8, verified=2, verify_tried=3)
CONFIRMED = dict(zip(("confirmation_low", "confirmation_high"), mid_p(5, 8), strict=True))
CHOSEN = dict(zip(("grok_rate_low", "grok_rate_high"), mid_p(15, 17), strict=True))
LARGE = configuration(74, 15, 17, best_seed="7.9", confirmation_grokked=5, confirmation_seeds=8, **CONFIRMED, **CHOSEN)
WORSE, NEVER = configuration(67, 8), configuration(34, 0)
ROWS = [LARGE, WORSE, NEVER, MIDDLE, SMALL]
FRAME = pd.DataFrame(ROWS)


@pytest.mark.parametrize(("most", "expected"), [(None, [46, 57, 74]), (57, [46, 57]), (45, [])])
def test_the_front_is_what_nothing_smaller_matches(most, expected):
    """It leaves out configurations that never grokked, and larger ones if asked."""
    assert [r["params"] for r in front(ROWS, max_params=most)] == expected


def test_studies_without_a_place_on_the_front_are_named():
    beaten_twice = [configuration(67, 8, study="mine"), configuration(67, 7, study="mine")]
    rows = [*ROWS, *beaten_twice, configuration(67, 0, study="never")]
    assert beaten(rows, front(rows)) == ["mine"] and beaten(ROWS, front(ROWS)) == []
    assert beaten(rows, front(rows, 57), 57) == [], "of what was not asked for nothing is said"


TABLE = """
params model study configuration grok rate per million best seed median grok step held verified
46 46p s lr 1 1 of 20 (2.5% to 10.0%) 1 777 41,500 0 of 1 not decoded yet
57 57p s lr 8 8 of 20 (20.0% to 80.0%) 8 777 41,500 8 of 8 yes (2 of 3)
"""


def lines_of(text):
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def test_the_table_has_a_row_a_configuration_and_a_command_for_each():
    rows = [row | {"pull": f"pull {row['configuration']}"} for row in front(ROWS, max_params=57)]
    found = table(rows).splitlines()
    assert lines_of("\n".join(found[:3])) == TABLE.strip().splitlines()
    assert found[3:] == [
        "", "The best seed's checkpoint of each:", "  pull 00460001abcd", "  pull 00570008abcd",
    ]  # fmt: skip
    starts = [line.index(word) for line, word in zip(found, ("verified", "not dec", "yes"), strict=False)]
    assert len(set(starts)) == 1, "columns are aligned"


def test_a_narrow_terminal_gets_a_block_of_lines_a_configuration():
    rows = [row | {"pull": "pull"} for row in front(ROWS, max_params=57)]
    wide, narrow = (table(rows, width).splitlines() for width in (200, 80))
    assert wide == table(rows).splitlines() and max(map(len, narrow)) <= 80
    heads, *values = (line.split("  ") for line in wide[:3])
    shown = [" ".join(line.split()) for line in narrow]
    for each in values:
        for head, value in zip(filter(None, heads), filter(None, each), strict=True):
            assert f"{head.strip()} {value.strip()}" in shown


READERS = {"parquet": pd.read_parquet, "csv": pd.read_csv, "json": pd.read_json}


@pytest.mark.parametrize("suffix", READERS)
def test_records_are_written_in_the_format_of_the_files_name(suffix, monkeypatch):
    monkeypatch.setattr(frames, "records", recorded := Mock(return_value=FRAME))
    result = call("records", "s", "-o", f"found.{suffix}")
    assert result.stdout == (f"found.{suffix}: 5 rows of {len(FRAME.columns)} columns, the configurations of s\n")
    recorded.assert_called_once_with("s", "configurations", home=Path("adder-runs").absolute())
    found = READERS[suffix](f"found.{suffix}")
    assert list(found.columns) == list(FRAME.columns)
    assert found["grok_rate"].tolist() == pytest.approx(FRAME["grok_rate"].tolist())
    assert [json.loads(text) for text in found["recipe.curriculum"]] == [[[3, 10], [6, 20]]] * 5
    assert found["median_grok_step"].isna().sum() == 1
    assert [f.name for f in Path().iterdir()] == [f"found.{suffix}"]


def test_search_and_confirmation_are_not_pooled():
    """20 of 25 in all: 15 of 17 by which it was chosen, 5 of 8 on fresh seeds, by which it is ranked."""
    (row,) = front([LARGE])
    assert (row["grokked"], row["seeds"]) == (15, 17) and row["grok_rate"] == 15 / 17
    assert (row["grok_rate_low"], row["grok_rate_high"]) == mid_p(15, 17)
    assert (row["confirmation_low"], row["confirmation_high"]) == mid_p(5, 8)
    said = table([row | {"pull": ""}])
    assert "15 of 17 (66.3% to 98.0%)" in said and "5 of 8 (27.8% to 89.4%)" in said and "20 of 25" not in said
    rival = configuration(75, 20, 25, grok_rate_low=0.4, study="t")
    assert front([LARGE, rival]) == [row, *front([rival])], "0.31 on fresh seeds is less than 0.4"
    assert best_of([LARGE, rival])["study"] == "t"
    slower = rival | {"configuration": "0", "grokked_per_million": 1.0}
    assert best_of([slower, rival])["configuration"] == rival["configuration"], "of equal rates the cheaper one"

    assert [r["held"] for r in front([LARGE | {"recipe.hold": 0}])] == [None]
    assert " held " not in table([row | {"held": None, "pull": ""}])
    chosen_by_it = rival | {"study": "s"}
    assert front([LARGE, chosen_by_it]) == [row], "its study confirmed another one"
