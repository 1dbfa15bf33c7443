"""docs/results.md and docs/claims.md hold what the commands and the tables beside them say."""

import csv
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from search.intervals import wilson
from search.study.file import load_study, shipped
from search.study.seeds import numbered
from tests.commands import call

DOCS = Path(__file__).parents[1] / "docs"
MEASUREMENTS = DOCS / "measurements"
RESULTS = (DOCS / "results.md").read_text()
LAST = "## Measured before, and not to be counted again"
COUNTED = {"grokked", "failed", "diverged", "given_up"}
RATE = re.compile(r"\*{0,2}(?<![\d,.])(\d+(?:,\d{3})*) of (?:the )?(\d+(?:,\d{3})*)(?!\d|,\d|p)\*{0,2}")
PROBLEMS = {"5,000", "10,010", "50,000", "54,400", "100,000", "111,000", "1,000,000"}
"""Denominators that count additions, and no seeds."""
RATES = yaml.safe_load((MEASUREMENTS / "rates.yaml").read_text())


def rates_of(text):
    """What a text says of seeds: `k of n`, with its stars."""
    return [found.group() for found in RATE.finditer(text) if found.group(2) not in PROBLEMS]


@cache
def table(name):
    with (MEASUREMENTS / name).open() as file:
        return [row for row in csv.DictReader(file) if row["outcome"] in COUNTED]


def rows_of(rate):
    """The rows of seeds that a rate is of."""
    wanted = {name: set(map(str, values)) for name, values in rate.get("where", {}).items()}
    rows = [row for row in table(rate["table"]) if all(row[name] in of for name, of in wanted.items())]
    if rate.get("also") == "other data":
        return [row for row in rows if row["init_seed"] != row["data_seed"]]
    return rows


def succeeds(rate, row):
    if str(rate.get("also", "")).startswith("token "):
        return float(row["best_token"]) >= float(rate["also"].split()[1])
    return row["outcome"] == "grokked"


def test_a_rate_is_found_however_it_is_written():
    text = "grokked for **5 of 128** seeds, 2 of the 64; 10,010 of 10,010 right, seed 43 of 456p, 1 of 8 |"
    assert rates_of(text) == ["**5 of 128**", "2 of the 64", "1 of 8"]


def test_every_rate_of_the_page_has_its_table():
    """In the page's order, but for the last section, which says of itself that its rows are gone."""
    page, last = RESULTS.split(LAST)
    assert rates_of(page) == [rate["says"] for rate in RATES]
    assert "cannot be counted again" in last and rates_of(last)


@pytest.mark.parametrize("rate", RATES, ids=lambda r: f"{r['says']} {r['table']}")
def test_a_rate_is_what_its_rows_say(rate):
    rows = rows_of(rate)
    seeds = [(row["configuration"], row["init_seed"], row["data_seed"]) for row in rows]
    assert rows and len(set(seeds)) == len(rows)
    k, n = sum(succeeds(rate, row) for row in rows), len(rows)
    said = rate["says"].strip("*").replace(",", "").replace("the ", "").split(" of ")
    assert [k, n] == [int(number) for number in said]
    if rate.get("interval"):
        low, high = wilson(k, n)
        around = f"({100 * k / n:.1f} %, {100 * low:.1f}–{100 * high:.1f} %"
        assert around in RESULTS[RESULTS.index(rate["says"]) :][:200]


def test_the_seeds_of_the_first_rate_are_the_ones_that_it_names():
    rows = table("57p-paired-published.csv")
    assert sorted(int(row["init_seed"]) for row in rows) == list(range(310_001, 310_129))
    assert all(row["init_seed"] == row["data_seed"] for row in rows)
    for row in rows:
        if row["outcome"] == "grokked":
            assert row["init_seed"] in RESULTS and f"{float(row['grok_step']):,.0f}" in RESULTS


def test_the_old_constraint_table_is_what_the_command_prints_of_its_records():
    said = call("table", MEASUREMENTS / "constraints.parquet", "--paper", "--ui", "")
    assert said.exit_code == 0 and len(said.stdout) > 2_000
    assert said.stdout.strip() in RESULTS


CHOSEN = {"claims-chosen"}
"""Studies that say of themselves that their seeds are chosen."""


def test_no_study_begins_with_seeds_that_confirmed_a_recipe():
    """Whoever runs a study that is shipped gets fresh evidence, not the seeds by which it was chosen."""
    shipped_ = {name: load_study(name) for name in shipped().keys() - CHOSEN}
    used = {s for study in shipped_.values() if study.confirm for s in numbered(study.confirm.seeds)}
    used |= {
        s
        for p in (DOCS / "measurements" / "studies").glob("confirm-*")
        for s in load_study(str(p)).first_seeds()
    }
    assert len(used) >= 64
    assert [name for name, study in shipped_.items() if used.intersection(study.first_seeds())] == []


def test_the_page_of_claims_is_what_the_command_prints():
    """Of every table of seeds and every certificate that is kept beside it."""
    page = (DOCS / "claims.md").read_text()
    (line,) = [line.split() for line in page.splitlines() if line.startswith("    adder-search claims ")]
    given = [sorted(DOCS.parent.glob(pattern)) for pattern in line[2:]]
    assert all(given)
    said = call("claims", *(path for paths in given for path in paths))
    assert said.exit_code == 0, said.stderr
    assert said.stdout.strip() in page
    count = re.search(r"(\d+) claims: (\d+) hold, (\d+) do not hold, (\d+) are open", page)
    total, holds, fails, still_open = map(int, count.groups())
    assert total >= 40 and holds + fails >= 20 and holds + fails + still_open == total


@pytest.mark.parametrize("study", ["57p-robust", "fade", "luck", "constraints"])
def test_a_study_that_the_page_names_comes_with_the_package(study):
    assert f"`{study}`" in RESULTS
    assert study in call("studies").stdout.split()


def test_what_one_run_came_to_is_what_its_table_says():
    with (MEASUREMENTS / "sets" / "one-run.csv").open() as file:
        rows = list(csv.DictReader(file))
    part = RESULTS[RESULTS.index("## One run from random values") : RESULTS.index("## The ladder")]
    arms = {(row["arm"], row["numbers"]) for row in rows}
    by = {key: [r for r in rows if (r["arm"], r["numbers"]) == key] for key in arms}
    grokked = {key: [r for r in mine if r["outcome"] == "grokked"] for key, mine in by.items()}
    wide = {key: [r for r in mine if r["grok_step"] == "wide"] for key, mine in by.items()}
    assert all(len(wide[key]) == 4 and len(by[key]) == 16 for key in arms if key[0] != "without")
    verified = [r["correct"] for r in grokked["with", "28@17p"]]
    assert f"{verified.count('10010')} of {len(wide['with', '28@17p'])} at 100 %" in part
    assert f"**{len(verified)} of {len(by['with', '28@17p'])}**" in part
    assert {key: len(found) for key, found in grokked.items() if found} == {("with", "28@17p"): 4}
    low, high = wilson(len(verified), len(by["with", "28@17p"]))
    assert f"({100 * low:.0f}–{100 * high:.0f} %)" in part
    for numbers in ("22", "17"):
        count = len(by["without", numbers])
        assert f"0 of {count} (0–{100 * wilson(0, count)[1]:.0f} %)" in part
    for key in (("with", "18@17p"), ("with", "17"), ("staged", "17")):
        shares = ", ".join(f"{100 * float(r['best_exact']):.2f}" for r in wide[key])
        assert f"{shares} %" in part
    assert ", ".join(f"{100 * float(r['best_exact']):.0f}" for r in wide["with", "12"]) + " %" in part
