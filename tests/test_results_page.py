"""docs/results.md holds what the commands say of the records that are kept beside it."""

from pathlib import Path

import pytest

from tests.commands import call

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = (DOCS / "results.md").read_text()


def test_the_constraint_table_is_what_the_command_prints_of_its_records():
    said = call("table", DOCS / "measurements" / "constraints.parquet", "--paper", "--ui", "")
    assert said.exit_code == 0 and len(said.stdout) > 2_000
    assert said.stdout.strip() in RESULTS


@pytest.mark.parametrize("study", ["57p-robust", "fade", "luck", "constraints"])
def test_a_study_that_the_page_names_comes_with_the_package(study):
    assert f"`{study}`" in RESULTS
    assert study in call("studies").stdout.split()
