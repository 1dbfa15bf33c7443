"""A study is deleted or put away: what that frees is shown first, and nothing goes that was not read back."""

from __future__ import annotations

import optuna
import pytest

from search.cli import home as homes_command
from search.errors import Failure
from search.evidence.frames import records
from search.store import hold, removal
from search.store.home import Home
from search.store.ledger import ROWS, Ledger
from search.store.tracking import connect
from tests.commands import call
from tests.homes import (
    Recorder,
    assert_same,
    empty_home,
    frames,
    quick,
    recorded,
    snapshot,
    study_of,
    thetas,
)
from tests.processes import wait_until
from tests.services import mlflow_server
from tests.test_merge import SEARCH, rows_of, runs, searched, told

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("here", "quick")


def two_studies(folder="runs"):
    """A home with two studies, one of them with seeds that never ended."""
    recorder = Recorder(empty_home(folder), study_of())
    recorder.trial((1, 2), grokked=(2,))
    recorder.censored((3, 4))
    recorder.done()
    other = Recorder(Home(folder), study_of(name="sweep-2"))
    other.trial((1,))
    other.done()


def done(*words):
    said = call(*words)
    assert said.exit_code == 0, said.stderr
    return said.stdout


def untouched(folder, before):
    """Whether a home is as it was; a lease may have come and gone."""
    after = snapshot(folder)
    return {p.name for p in before.keys() | after.keys() if before.get(p) != after.get(p)} <= {"optuna.db"}


# ---- delete


def test_delete_shows_what_it_frees_and_frees_it(here):
    two_studies()
    said = done("delete", "sweep", "--home", "runs", "--yes")
    for line in (
        "sweep in ", "  seeds      4 (1 grokked, 1 failed, 2 censored)", "  grokked    2\n",
        "  MLflow     3 runs\n", "  banks      1 saved states, ", "sweep is deleted\n",
    ):  # fmt: skip
        assert line in said
    assert {r["study"] for r in rows_of("runs", None)} == {"sweep-2"} and Ledger(Home("runs")).study(
        "sweep"
    ) is None
    assert not (here / "runs/artifacts/sweep").exists() and not (here / "runs/trials/sweep").exists()
    assert len(thetas("runs", "sweep-2")) == 1 and runs("runs") == ["57p c7bf37", "study sweep-2"]
    assert "no records" in call("delete", "sweep", "--home", "runs", "--yes").stderr


def test_the_same_study_can_be_recorded_again():
    two_studies()
    done("delete", "sweep", "--home", "runs", "--yes")
    recorder = Recorder(Home("runs"), study_of())
    recorder.trial((1, 2), grokked=(2,))
    recorder.done()
    recorded("whole", (1, 2), grokked=(2,))
    assert_same(frames("runs"), frames("whole"))


def test_a_search_goes_with_all_its_proposals():
    searched("runs", [1_000, 2_000])
    optuna.create_study(study_name="search~2", storage=Home("runs").records_url)
    optuna.create_study(study_name="search~x", storage=Home("runs").records_url)
    assert "  Optuna     2 proposals\n" in done("delete", "search", "--home", "runs", "--yes")
    assert optuna.get_all_study_names(Home("runs").records_url) == ["search~x"]
    searched_again = told("runs", SEARCH)
    assert searched_again == []


@pytest.mark.parametrize("words", [("delete", "sweep"), ("archive", "sweep", "-o", "away")])
def test_a_dry_run_only_shows(words, here):
    two_studies()
    before = snapshot("runs")
    said = done(*words, "--home", "runs", "--dry-run")
    assert "  seeds      4 (" in said and "deleted" not in said
    assert snapshot("runs") == before and not (here / "away").exists()


@pytest.mark.parametrize("words", [("delete", "sweep"), ("archive", "sweep", "-o", "away")])
def test_without_a_terminal_nothing_is_deleted(words, here):
    two_studies()
    before = snapshot("runs")
    said = call(*words, "--home", "runs")
    assert said.exit_code == 2 and "no terminal to ask on; give --yes" in said.stderr
    assert "  seeds      4 (" in said.stdout
    assert snapshot("runs") == before and not (here / "away").exists()


@pytest.mark.parametrize("answer", [True, False])
def test_with_a_terminal_it_asks(answer, monkeypatch):
    two_studies()
    before, asked = snapshot("runs"), []
    monkeypatch.setattr(homes_command, "_is_terminal", lambda: True)
    monkeypatch.setattr(homes_command.click, "confirm", lambda text: asked.append(text) or answer)
    said = done("delete", "sweep", "--home", "runs")
    assert asked == ["delete all of sweep?"]
    if answer:
        assert "is deleted" in said and {r["study"] for r in rows_of("runs", None)} == {"sweep-2"}
    else:
        assert "nothing was deleted" in said and snapshot("runs") == before


@pytest.mark.parametrize("words", [("delete", "sweep"), ("archive", "sweep", "-o", "away")])
def test_a_running_study_stays(words, here):
    two_studies()
    holder = Ledger(Home("runs"))
    holder.hold("sweep", None, None)
    before = snapshot("runs")
    said = call(*words, "--home", "runs", "--yes")
    assert said.exit_code == 2 and "is being run by" in said.stderr
    assert snapshot("runs") == before and not (here / "away").exists()


@pytest.mark.parametrize("name", ["../sweep", "..", ".", "", "sweep/", "/etc", "Default", "swee", "sweep~2"])
@pytest.mark.parametrize("words", [("delete",), ("archive", "-o", "away")])
def test_only_a_study_that_is_there(name, words, here):
    two_studies()
    before = snapshot(here)
    said = call(*words, "--home", "runs", "--yes", "--", name)
    assert said.exit_code == 2 and "has no records in " in said.stderr
    assert snapshot(here) == before


def test_a_name_in_the_ledger_that_is_none_becomes_no_path(here):
    two_studies()
    (here / "outside").mkdir()
    with Ledger(Home("runs")).database.engine.begin() as db:
        db.execute(ROWS.update().where(ROWS.c.study == "sweep").values(study="../../outside"))
    said = call("delete", "../../outside", "--home", "runs", "--yes")
    assert said.exit_code == 2 and (here / "outside").exists()


def test_a_deletion_that_was_cut_off_is_completed(monkeypatch):
    two_studies()
    with monkeypatch.context() as patch:
        patch.setattr(removal, "_forget", lambda found: (_ for _ in ()).throw(Failure("locked")))
        assert call("delete", "sweep", "--home", "runs", "--yes").exit_code == 1
    assert Ledger(Home("runs")).study("sweep")["owner"] is None
    done("delete", "sweep", "--home", "runs", "--yes")
    assert runs("runs") == ["57p c7bf37", "study sweep-2"]


def test_a_hold_is_renewed_and_heeds_who_asks_it_to_stop(monkeypatch, home):
    monkeypatch.setattr(hold, "RENEW_S", 0.02)
    ledger = Ledger(home)
    with hold.held(ledger, "sweep", None, None) as its:
        until = ledger.study("sweep")["lease_until"]
        assert wait_until(lambda: ledger.study("sweep")["lease_until"] > until, "a longer lease")
        its.check()
        Ledger(home).ask_to_stop("sweep")
        wait_until(lambda: its.why, "the word to stop")
        with pytest.raises(Failure, match="stopped; the same command again"):
            its.check()
    assert ledger.study("sweep")["owner"] is None


# ---- archive


@pytest.mark.parametrize("target", ["away", "deep/away", "away.tar.gz"])
def test_an_archive_is_a_home_and_comes_back(target, here):
    two_studies()
    before, was = frames("runs"), thetas("runs")
    rows = rows_of("runs")
    said = done("archive", "sweep", "-o", target, "--home", "runs", "--yes")
    assert f"{target}: 2 seeds, read back and the same\n  2 that never ended are not in it" in said
    assert said.endswith(f"To bring it back:\n  adder-search merge {target} --home runs\n")
    assert rows_of("runs") == [] and not (here / "runs/artifacts/sweep").exists()
    assert sorted(p.name for p in here.iterdir()) == sorted({target.partition("/")[0], "runs"})
    if target == "deep/away":
        assert len(thetas(target)) == 2, "MLflow finds its artifacts there"
    done("merge", target, "--home", "runs")
    assert thetas("runs") == was
    after = frames("runs")
    ended = before["seeds"][before["seeds"]["outcome"] != "censored"]
    before["seeds"] = ended.astype(after["seeds"].dtypes).reset_index(drop=True)
    before["configurations"]["censored"] = 0
    assert_same(after, before)
    final = [r for r in rows if r["outcome"] != "censored"]
    assert [r | {"verify_calls": 0} for r in rows_of("runs")] == [r | {"verify_calls": 0} for r in final]


def test_an_archive_that_keeps_the_study():
    two_studies()
    before = snapshot("runs")
    said = done("archive", "sweep", "-o", "away", "--keep", "--home", "runs")
    assert "is deleted" not in said and untouched("runs", before)
    assert rows_of("away") and thetas("away") == thetas("runs")


def test_an_archived_search_has_its_proposals():
    searched("runs", [1_000, 2_000])
    done("archive", "search", "-o", "away.tar.gz", "--yes", "--home", "runs")
    assert told("runs") == []
    done("merge", "away.tar.gz", "--home", "joined")
    assert told("joined") == [1_000, 2_000]


def test_an_archive_is_made_without_the_servers_of_the_environment(monkeypatch):
    two_studies()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{Home('runs').mlflow_db}")
    done("archive", "sweep", "-o", "away", "--keep", "--home", "runs")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert thetas("away") == thetas("runs")


def test_what_does_not_read_back_is_not_deleted(monkeypatch, here):
    two_studies()
    before = snapshot("runs")
    monkeypatch.setattr(removal, "difference", lambda one, other: "θ differs")
    for target in ("away", "away.tar.gz"):
        said = call("archive", "sweep", "-o", target, "--yes", "--home", "runs")
        assert said.exit_code == 1 and "the archive is not what is here; nothing was deleted" in said.stderr
    assert untouched("runs", before) and [p.name for p in here.iterdir()] == ["runs"]


def lost(*given):
    """In the place of what writes a part of an archive."""


def test_calls_of_verify_and_proposals_are_read_back_too(monkeypatch, here):
    searched("runs", [1_000, 2_000])
    ledger = Ledger(Home("runs"))
    (first, *_) = ledger.rows("search")
    key = (first["configuration"], first["init_seed"], first["data_seed"])
    ledger.record_verification("search", key, 10_000)
    for place, name in ((Ledger, "settle"), (merge, "carry")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, lost)
            said = call("archive", "search", "-o", name, "--yes", "--home", "runs")
            assert said.exit_code == 1 and "the archive is not what is here" in said.stderr, name
        assert not (here / name).exists() and told("runs") == [1_000, 2_000]
    done("archive", "search", "-o", "away", "--yes", "--home", "runs")
    assert told("away") == [1_000, 2_000]
    assert {r["verify_calls"] for r in Ledger(Home("away")).rows("search")} == {0, 1}


def test_nothing_is_written_over(here):
    two_studies()
    (here / "file.tar.gz").write_text("mine")
    (here / "folder").mkdir()
    for target in ("file.tar.gz", "folder", "runs"):
        said = call("archive", "sweep", "-o", target, "--yes", "--home", "runs")
        assert said.exit_code == 2 and "exists; choose another name" in said.stderr
    assert (here / "file.tar.gz").read_text() == "mine" and len(rows_of("runs")) == 4


def test_nothing_to_archive():
    recorder = Recorder(empty_home("runs"), study_of())
    recorder.censored((1,))
    recorder.done()
    said = call("archive", "sweep", "-o", "away", "--yes", "--home", "runs")
    assert said.exit_code == 2 and "no seed that ended" in said.stderr and len(rows_of("runs")) == 1


# ---- a server


@pytest.mark.faults  # minutes of password hashing
def test_on_a_server_the_name_is_freed(monkeypatch):
    with mlflow_server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        for folder, seeds in (("runs", (1, 2)), ("others", (3,))):
            recorded(folder, seeds)
        assert "1 seeds taken, 0 were there" in done("merge", "others", "--home", "runs")
        done("archive", "sweep", "-o", "away.tar.gz", "--keep", "--home", "runs")
        said = done("delete", "sweep", "--home", "runs", "--yes")
        assert "its artifacts on the server" in said and "mlflow gc there frees its artifacts" in said
        assert connect(Home("runs"), server.uri).get_experiment_by_name("sweep") is None
        assert "3 seeds taken" in done("merge", "away.tar.gz", "--home", "runs")
        found = records("sweep", "configurations", home="runs")
        assert found["seeds"].tolist() == [3]
