"""A study is deleted: what that frees is shown first, and nothing else goes."""

import itertools
import re
import shutil
from unittest.mock import Mock

import pytest

from search.cli import home as home_commands
from search.errors import Failure
from search.run import removal as whole
from search.store import database, lease
from search.store import ledger as ledger_module
from search.store.home import Home
from search.store.lease import Superseded
from search.store.ledger import Ledger
from search.study.trial import Configuration
from tests.commands import call, done
from tests.crashes import Disk, failing
from tests.homes import (
    Recorder,
    empty_home,
    forget_places,
    recorded,
    records_of,
    snapshot,
    study_of,
    thetas,
    two_studies,
    work_of,
)
from tests.leases import dead_owner
from tests.reference import runs_of
from tests.scenarios.test_cut_off import facts
from tests.services import mlflow_server
from tracking import removal
from tracking.store import connect

pytestmark = pytest.mark.usefixtures("here", "quick")


def check_completed(place, how):
    """The same command completes a deletion, and one that was complete has left nothing."""
    forget_places()
    said = call("delete", "sweep", "--home", place, "--yes")
    assert said.exit_code == 0 or "has no records" in said.stderr, (how, said.output)
    home = Home(place)
    assert not home.progress("sweep").exists() and not (home.artifacts / "sweep").exists(), how
    assert not records_of(home).list_proposals(), how
    assert Ledger(home).list_studies() == ["sweep-2"] and len(thetas(place, "sweep-2")) == 1, how
    client = connect(home)
    assert client.get_experiment_by_name("sweep") is None, how
    names = [r.info.run_name for r in runs_of(client, "sweep-2")]
    assert sorted(name for name in names if not name.startswith("seed ")) == ["57p", "study sweep-2"], how


@pytest.mark.parametrize("place", ["runs", "far"])
def test_delete_shows_what_it_frees_and_frees_it(place, here):
    """By whatever path: a home behind a link is its own."""
    two_studies(place)
    if place != "runs":
        (here / "runs").symlink_to(place)
    for n in range(2):
        records_of("runs").create_proposal(n, Configuration(*study_of().listed[0]), {"recipe.lr": 0.1})
    said = done("delete", "sweep", "--home", "runs", "--yes")
    for line in (
        "sweep in ", "  seeds      4 (1 grokked, 1 failed, 2 censored)", "  grokked    2\n",
        "  saved      states of 2 seeds that have not ended\n",
        "  Optuna     2 proposals\n", "sweep is deleted\n",
    ):  # fmt: skip
        assert line in said
    assert re.search(r"  MLflow     \d+ runs\n", said)
    assert "no records" in call("delete", "sweep", "--home", "runs", "--yes").stderr
    check_completed("runs", "at once")


@pytest.mark.parametrize(
    ("words", "answer", "code", "reason"),
    [
        (("--dry-run",), None, 0, ""),
        ((), None, 2, "no terminal to ask on; give --yes"),
        ((), False, 0, "nothing was deleted"),
        (("--yes",), None, 2, "is being run by"),
    ],
    ids=["dry run", "nobody to ask", "no", "running"],
)
def test_what_would_go_is_shown_and_stays(words, answer, code, reason, monkeypatch):
    two_studies()
    if words == ("--yes",):
        records_of("runs").lease.acquire()
    if answer is not None:
        monkeypatch.setattr(home_commands, "_is_terminal", lambda: True)
        monkeypatch.setattr(home_commands.click, "confirm", lambda text: answer)
    before = snapshot("runs")
    said = call("delete", "sweep", "--home", "runs", *words, code=code)
    assert reason in said.output and "is deleted" not in said.output
    assert "  seeds      4 (" in said.stdout and snapshot("runs") == before


def test_a_home_of_an_earlier_version_that_cannot_be_written_says_what_would_go(monkeypatch):
    two_studies()
    monkeypatch.setattr(database, "_is_writable", lambda path: False)
    with records_of("runs").database.begin() as db:
        db.exec_driver_sql("DROP TABLE ledger_identity")
    said = done("delete", "sweep", "--home", "runs", "--dry-run")
    assert "  seeds      4 (" in said and re.search(r"  MLflow     [1-9]\d* runs\n", said)


def test_a_deletion_that_was_cut_off_is_completed(monkeypatch):
    two_studies()
    with monkeypatch.context() as patch:
        patch.setattr(removal, "_erase", Mock(side_effect=Failure("locked")))
        call("delete", "sweep", "--home", "runs", "--yes", code=1)
    assert records_of("runs").get_study()["owner"] is None
    check_completed("runs", "the second time")


def test_a_deletion_that_was_paused_while_another_driver_began_the_study_deletes_nothing(monkeypatch):
    two_studies()
    monkeypatch.setattr(lease, "RENEW_S", 1e6)
    paused, other = (records_of("runs") for _ in range(2))
    with pytest.raises(Superseded), paused.lease:
        now = lease.Clocks.now()
        monkeypatch.setattr(lease.Clocks, "now", lambda: lease.Clocks(*(t + lease.LEASE_S + 1 for t in now)))
        monkeypatch.setattr(lease, "is_live", lambda row, now: False)
        other.lease.acquire()
        before = snapshot("runs")
        whole.delete(paused)
    assert snapshot("runs") == before


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.faults)])
def test_whenever_the_power_goes_the_same_deletion_completes_it(every, here, monkeypatch):
    two_studies()
    disk = Disk(here / "runs")
    with monkeypatch.context() as patch, disk.recording():
        patch.setattr(ledger_module, "driver_name", dead_owner)
        done("delete", "sweep", "--home", "runs", "--yes")
    assert len(disk.found) > 25
    for number, left in list(enumerate(disk.found))[every // 2 :: every]:
        left.restore(here / str(number))
        check_completed(str(number), left.how)


@pytest.mark.faults
def test_whichever_call_of_a_deletion_fails_the_same_completes_it(here):
    two_studies()
    for at in itertools.count(1):
        shutil.copytree("runs", str(at))
        forget_places()
        with failing(at) as calls:
            said = call("delete", "sweep", "--home", at, "--yes")
        assert said.exit_code == 0 or "Input/output error" in said.stderr, said.output
        check_completed(str(at), calls[-1])
        if len(calls) < at:
            break
    assert at > 10


@pytest.mark.parametrize("path", ["other/mlflow.db", "link/mlflow.db"])
def test_another_homes_experiment_stays_as_it_is(path, here, monkeypatch):
    recorded("other", (1, 2), grokked=(2,))
    (here / "link").symlink_to("other")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here / path}")
    asked = study_of()
    records = records_of(empty_home("runs"))
    with records.lease:
        records.update_study(asked.model_dump(mode="json", by_alias=True))
        records.claim(work_of(asked, 1))
        (key,) = records.list_configurations()
        run = connect(Home("other")).search_runs(["1"])[0].info
        records.update_run(key, run.experiment_id, run.run_id)  # an earlier version has shown it beside the other's
    before = facts(Home("other")), thetas("other")
    said = done("delete", "sweep", "--home", "runs", "--yes")
    where = f"{here / 'other/mlflow.db'}, another home's, "
    assert re.search(rf"  MLflow     \d+ runs in {re.escape(where)}where they stay\n", said)
    assert f"sweep is deleted; its runs are in {where}and stay there\n" in said
    assert Ledger(Home("runs")).list_studies() == []
    assert (facts(Home("other")), thetas("other")) == before
    client = connect(Home("other"))
    assert client.get_experiment_by_name("sweep").lifecycle_stage == "active"


@pytest.mark.faults  # minutes of password hashing
def test_on_a_server_the_name_is_freed(monkeypatch):
    with mlflow_server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        recorded("runs", (1, 2))
        said = done("delete", "sweep", "--home", "runs", "--yes")
        assert "its artifacts on the server" in said and "mlflow gc there frees its artifacts" in said
        assert connect(Home("runs"), server.uri).get_experiment_by_name("sweep") is None
        recorder = Recorder(Home("runs"), study_of())
        recorder.seeds((1, 2, 3))
        recorder.done()
        assert len(records_of("runs").list_seeds()) == 3
