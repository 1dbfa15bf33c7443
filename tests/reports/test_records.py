"""The order of configurations on a page, and the records that come with the package."""

from reports.records import shipped_records, standing
from search.stats.intervals import mid_p
from tests.commands import fails_with_one
from tests.unit.test_best import LARGE, configuration


def test_confirmed_configurations_come_first_then_those_that_the_search_is_surest_of():
    rival, lucky = configuration(75, 20, 25), configuration(76, 2, 2, grok_rate_low=mid_p(2, 2)[0])
    assert sorted([lucky, rival, LARGE], key=standing, reverse=True) == [LARGE, rival, lucky]


def test_of_a_file_without_a_column_that_best_shows_it_is_named(here):
    configurations = [file for file in shipped_records() if "configurations" in file]
    assert configurations
    for file in configurations:
        assert "records lack the column" in fails_with_one(2, "best", file)
