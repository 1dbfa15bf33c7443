"""A ledger that was restored from an older copy, beside an MLflow store that was not."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from search.run.driver import Driver
from tests.commands import call
from tests.reference import QUICK, check_whole, expected, rows_of, write_study
from trainer import Outcome

pytestmark = [pytest.mark.end_to_end, pytest.mark.full, pytest.mark.usefixtures("no_ray")]
STUDY = QUICK | {"name": "restored"}


@pytest.fixture
def copied(here, monkeypatch):
    """A study that was run to its end, and its ledger as it was when its first seeds had ended."""
    home, copy, whole = here / "home", here / "copy.db", Driver._reply_to

    def copying(driver, asks):
        if not copy.exists() and any(r["outcome"] == Outcome.FAILED for r in rows_of(home, "restored")):
            with closing(sqlite3.connect(home / "records.db")) as db, closing(sqlite3.connect(copy)) as other:
                db.backup(other)
                with other:  # that driver is no more
                    other.execute("UPDATE ledger_studies SET owner = NULL, lease_until = NULL")
        return whole(driver, asks)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "_reply_to", copying)
        said = run(here)
        assert said.exit_code == 0, said.output
    shutil.copy(copy, home / "records.db")
    assert {r["outcome"] for r in rows_of(home, "restored")} == {Outcome.FAILED, Outcome.RUNNING}
    return home


def run(here):
    return call("run", write_study(here, STUDY), "--home", here / "home")


def test_what_it_lacks_is_trained_again_and_mlflow_shows_it_once(copied, here):
    assert run(here).exit_code == 0
    check_whole(copied, STUDY, expected(STUDY))
