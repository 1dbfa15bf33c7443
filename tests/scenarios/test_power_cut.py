"""A power cut at any moment: what a file system may leave of a home is taken up by the next driver, and what
was promised before the cut is there after it.
"""

import json
import shutil
from dataclasses import replace

import pytest

from search.store import lease as hold
from search.store import ledger as ledger_module
from search.store.home import Home
from search.store.record import is_final
from search.store.results import PARTS, REASON, RESULTS, THETA
from search.study.trial import TRIAL_FILE, Configuration
from tests.crashes import Disk
from tests.homes import (
    drive,
    empty_home,
    forget_places,
    leave_parts,
    quickly,
    records_of,
    study_of,
    thetas,
    trial_of,
)  # fmt: skip
from tests.leases import dead_owner
from tests.scenarios.test_cut_off import facts

GROKKED = (2,)
STUDY = study_of(resources={"seeds_per_trial": 2}, seeds={"first": 1, "count": 3})


def cut(folder):
    """A study that ran to its end, and what a power cut would have left of its home at any moment."""
    home = empty_home(folder / "whole")
    disk = Disk(home.path)
    with pytest.MonkeyPatch.context() as patch, disk.recording():
        patch.setattr(hold, "RENEW_S", 60.0)
        patch.setattr(ledger_module, "driver_name", dead_owner)
        drive(home, STUDY, GROKKED, None, lambda driver: driver.outbox.drain(60, 60))
    return home, disk.found


def promised(home, wanted):
    """The θ of every seed that has ended is in the ledger."""
    if home.ledger_db.exists():
        assert thetas(home.path).items() <= wanted.items()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.faults)])
def test_the_next_driver_takes_up_whatever_is_left(every, tmp_path):
    whole, left = cut(tmp_path)
    was, wanted = facts(whole), thetas(whole.path)
    assert len(left) > 300
    for number, found in list(enumerate(left))[every // 2 :: every]:
        home = Home(found.restore(tmp_path / str(number)))
        forget_places()
        try:
            promised(home, wanted)
            drive(empty_home(home.path), STUDY, GROKKED)
            forget_places()
            assert facts(home) == was
            assert thetas(home.path) == wanted
            assert not (home.path / "damaged").exists(), "what is whole was half there"
        except BaseException as error:
            raise AssertionError(found.how) from error


# ---- results that are damaged all the same


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """θ of every seed of a study that nothing happened to."""
    home = empty_home(tmp_path_factory.mktemp("whole"))
    with quickly():
        drive(home, STUDY, GROKKED)
    return thetas(home.path)


def left_by_a_driver(home):
    """A trial that has ended, of a driver that died before it was recorded. Returns its folder."""
    records = records_of(home)
    records.lease.owner = dead_owner()
    configuration = Configuration(*STUDY.listed[0])
    trial = replace(trial_of(STUDY, (configuration, 1), (configuration, 2)), slots=16)
    records.claim(trial)
    trial.write(home.trial("sweep", trial.key))
    return leave_parts(home, trial, GROKKED)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", [THETA, RESULTS, f"../../{TRIAL_FILE}", ""])
def test_damaged_results_are_set_aside_and_their_seeds_trained_again(name, home, wanted, caplog):
    folder = left_by_a_driver(home)
    (mine,) = (folder / PARTS).iterdir()
    if name:
        (mine / name).write_bytes(b"")
    else:
        shutil.rmtree(mine)
    drive(home, STUDY, GROKKED)
    assert thetas(home.path) == wanted
    rows = records_of(home).list_seeds()
    assert all(is_final(r) and r["reason"] is None for r in rows) and len(rows) == 3
    (kept,) = (home.path / "damaged" / "sweep").iterdir()
    reason = (kept / REASON).read_text().strip()
    assert f"results in {folder}" in reason and "cannot be read" in reason
    assert (kept / PARTS).exists() and f"{reason}; they are kept in {kept}" in caplog.text


@pytest.mark.usefixtures("quick")
def test_results_that_lack_a_later_column_are_recorded(home, wanted):
    (mine,) = (left_by_a_driver(home) / PARTS).iterdir()
    facts = json.loads((mine / RESULTS).read_text())
    for seed in facts["seeds"]:
        del seed["screen"]
    (mine / RESULTS).write_text(json.dumps(facts))
    drive(home, STUDY, GROKKED)
    assert thetas(home.path) == wanted and not (home.path / "damaged").exists()
    assert [r["screen"] for r in records_of(home).list_seeds()] == [None] * 3
