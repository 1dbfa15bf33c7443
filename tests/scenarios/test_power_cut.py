"""A power cut at any moment: what a file system may leave of a home is taken up by the next driver, and what
was promised before the cut is there after it.
"""

import pytest

from search.store.home import Home
from tests.crashes import Disk
from tests.homes import drive, empty_home, forget_places, study_of, thetas
from tests.leases import leave_dead
from tests.scenarios.test_cut_off import facts

GROKKED = (2,)
STUDY = study_of(resources={"slots": 2}, seeds={"first": 1, "count": 3})


def cut(folder):
    """A study that ran to its end, and what a power cut would have left of its home at any moment."""
    home = empty_home(folder / "whole")
    disk = Disk(home.path)
    with pytest.MonkeyPatch.context() as patch, disk.recording():
        leave_dead(patch)
        drive(home, STUDY, GROKKED, None, lambda driver: driver.shown[0].drain(60, 60))
    return home, disk.found


def promised(home, wanted):
    """The θ of every seed that has ended is in the ledger."""
    if home.ledger_db.exists():
        assert thetas(home.path).items() <= wanted.items()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("every", [47, pytest.param(1, marks=pytest.mark.faults)])
def test_the_next_driver_takes_up_whatever_is_left(every, tmp_path):
    whole, left = cut(tmp_path)
    was, wanted = facts(whole), thetas(whole.path)
    assert len(left) > 100
    for number, found in list(enumerate(left))[every // 2 :: every]:
        home = Home(found.restore(tmp_path / str(number)))
        forget_places()
        try:
            promised(home, wanted)
            drive(empty_home(home.path), STUDY, GROKKED)
            forget_places()
            assert facts(home) == was
            assert thetas(home.path) == wanted
        except BaseException as error:
            raise AssertionError(found.how) from error
