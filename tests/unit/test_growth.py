"""What commands do grows as the number of configurations, not as its square. In seconds: benchmarks/rows.py."""

from cProfile import Profile

import pytest

from benchmarks import rows
from tests.commands import call

FEW, TIMES, EACH = 8, 4, 1


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of two recorded studies, in their homes."""
    folder = tmp_path_factory.mktemp("growth")
    sizes = (FEW, TIMES * FEW)
    return [rows.write_home(folder / str(size), size, EACH) for size in sizes]


def count_calls(words, home):
    """Count the calls of functions that a command makes."""
    with Profile() as profile:
        call(*words, "--home", home)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("command", ["status STUDY", "best", "records --of seeds"])
def test_four_times_the_configurations_take_four_times_the_calls(files, tmp_path, command):
    call(*rows.commands(files[0], tmp_path)[command], "--home", files[0].parent)  # what is imported counts once
    few, many = (count_calls(rows.commands(file, tmp_path)[command], file.parent) for file in files)
    assert few < many < 1.5 * TIMES * few
