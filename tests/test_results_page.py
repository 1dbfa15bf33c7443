"""docs/results.md holds what the commands say of the records that are kept beside it."""

import csv
from pathlib import Path

import pytest

from search.store.stats import GrokRate
from search.study.file import load_study, shipped
from search.study.seeds import numbered
from tests.commands import call

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = (DOCS / "results.md").read_text()


def test_the_constraint_table_is_what_the_command_prints_of_its_records():
    said = call("table", DOCS / "measurements" / "constraints.parquet", "--paper", "--ui", "")
    assert said.exit_code == 0 and len(said.stdout) > 2_000
    assert said.stdout.strip() in RESULTS


def test_no_study_begins_with_seeds_that_confirmed_a_recipe():
    """Whoever runs a study that is shipped gets fresh evidence, not the seeds by which it was chosen."""
    shipped_ = {name: load_study(name) for name in shipped()}
    used = {s for study in shipped_.values() if study.confirm for s in numbered(study.confirm.seeds)}
    used |= {
        s
        for p in (DOCS / "measurements" / "studies").glob("confirm-*")
        for s in load_study(str(p)).first_seeds()
    }
    assert len(used) >= 64
    assert [name for name, study in shipped_.items() if used.intersection(study.first_seeds())] == []


@pytest.mark.parametrize("study", ["57p-robust", "fade", "luck", "constraints"])
def test_a_study_that_the_page_names_comes_with_the_package(study):
    assert f"`{study}`" in RESULTS
    assert study in call("studies").stdout.split()


def test_the_rate_on_fresh_seeds_is_that_of_its_table():
    with (DOCS / "measurements" / "57p-paired-published.csv").open() as file:
        rows = list(csv.DictReader(file))
    grokked = [row for row in rows if row["outcome"] == "grokked"]
    assert [int(row["init_seed"]) for row in rows] == [int(row["data_seed"]) for row in rows]
    assert sorted(int(row["init_seed"]) for row in rows) == list(range(310_001, 310_129))
    rate = GrokRate.of(rows)
    low, high = rate.interval
    said = f"**{len(grokked)} of {len(rows)}** fresh seeds, 310001 to 310128 ({100 * rate.rate:.1f} %, "
    assert said + f"{100 * low:.1f}–{100 * high:.1f} %;" in RESULTS
    for row in grokked:
        assert row["init_seed"] in RESULTS and f"{float(row['grok_step']):,.0f}" in RESULTS
