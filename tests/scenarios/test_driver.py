"""Whole runs of a study, by the command, with everything but Ray (tests/in_process.py) and pictures: trials that
follow one another in a worker's bank, trials that fail, runs that have enough, files that are edited,
records on PostgreSQL. MLflow's own server and Ray nodes: tests/slow/test_cluster.py.
"""

from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from search.run import worker
from search.run.packing import Capacity
from search.stats.record import ENOUGH
from search.store.home import Home
from tests import in_process
from tests.commands import call, fails_with_one
from tests.reference import check_whole, environment, expected, recorded, rows_of
from tests.scenarios.studies import GRID, MIXED, SHORT, SPECS, SWEEP, UNTIL, run, run_whole
from tests.services import postgres
from trainer import Outcome
from trainer.bank import bank
from trainer.engine.build import GivenUp

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here")


def workers(reports):
    return {worker for worker, _ in reports}


@pytest.mark.parametrize(("study", "most"), [(MIXED, 2), (SPECS, 1)], ids=["one spec", "three specs"])
def test_configurations_follow_in_the_slots_that_are_free_of_their_spec(study, most, reports, here):
    """The next spec in a bank of its own, in the same process."""
    run_whole(study, here)
    assert len(workers(reports)) == 2
    assert max(len({key for key, _ in steps}) for _, steps in reports) == most
    assert sorted(p.name for p in (here / "home").iterdir() if p.suffix != ".lock") == [
        "artifacts", "mlflow.db", "progress", "ray", "records.db",
    ], "and nothing of it lies in folders"  # fmt: skip


def test_on_a_gpu_another_spec_has_a_worker_of_its_own(reports, here, monkeypatch):
    """Its programs are compiled, and a process keeps what it has of a GPU."""
    monkeypatch.setattr(in_process, "FITS", Capacity(2, gpu=1.0))
    run(SPECS, here)
    assert len(workers(reports)) >= 3


# ---- failing


@pytest.fixture
def unlucky(monkeypatch):
    """A worker that raises before so many reports of those that train, so many times."""
    state, whole = {"after": 4, "times": 1}, worker.Worker.train

    def train(self, report_after_s):
        whole(self, report_after_s)
        if self.numbers and state["times"]:
            state["after"] -= 1
            if not state["after"]:
                state["times"] -= 1
                state["after"] = state.get("again", 1)
                raise RuntimeError("no luck\nat all")

    monkeypatch.setattr(worker.Worker, "train", train)
    return state


def test_what_fails_is_trained_again(unlucky, here, monkeypatch, caplog):
    """Here without the engine, whose compiler hangs: each worker says so, the driver once."""
    unlucky["after"] = 1
    monkeypatch.setattr(bank, "EngineBackend", Mock(side_effect=GivenUp("g++ has not ended in 600 s")))
    study = SHORT | {"faults": {"max_failures": 1}}
    run(study, here)
    said = [r.name for r in caplog.records if "g++ has not ended in 600 s: training without" in r.getMessage()]
    assert said.count("search.run.driver") == 1 < said.count("trainer.bank.bank")
    check_whole(here / "home", study, expected(study))


def test_seeds_of_a_worker_that_failed_go_on_by_themselves(unlucky, reports, here):
    """In a bank of their own, so that they cost no others: one of them may have been the reason."""
    run_whole(SWEEP | {"faults": {"max_failures": 1}}, here)
    assert len(workers(reports)) == 3
    lost = next(list(steps) for worker_, steps in reports if worker_ == "worker-3")
    assert all(set(steps) <= set(lost) or not set(steps) & set(lost) for _, steps in reports)


def test_seeds_that_fail_for_good_are_censored_and_the_others_done(unlucky, here):
    study = SWEEP | {"faults": {"max_failures": 0}}
    said = run(study, here, code=1)
    assert "RuntimeError: no luck (" in said.stdout and "To go on:" in said.stdout
    file = said.stdout.partition("no luck (")[2].partition(")")[0]
    assert "in train" in (here / file).read_text(), "the traceback"
    rows = rows_of(here / "home", "quick")
    failed = [r for r in rows if not r.is_final]
    assert len(rows) == 12 and 0 < len(failed) <= 2
    assert {(r["outcome"], r["reason"]) for r in failed} == {(Outcome.CENSORED, "RuntimeError: no luck")}
    run_whole(study, here)


# ---- enough


@pytest.mark.usefixtures("groks")
def test_a_run_ends_when_enough_have_grokked(reports, here):
    said = run(UNTIL, here)
    rows = {r["init_seed"]: r for r in rows_of(here / "home", "until")}
    assert (rows[7]["outcome"], rows[7]["grok_step"], rows[7]["held"]) == (Outcome.GROKKED, 8, True)
    cut = [r for r in rows.values() if r["outcome"] == Outcome.CENSORED]
    assert cut and all(r["reason"] == ENOUGH and 0 < r["steps"] < 16 for r in cut)
    assert all(r["outcome"] == Outcome.FAILED for n, r in rows.items() if n != 7 and r not in cut)
    assert len(rows) < 20, "what had not begun is not recorded"
    counted = len(rows) - len(cut)
    assert f"until: 1 of {counted} grokked" in said.stdout
    cut_off = f"{len(cut)} in training then (1 of {len(rows)} if none of them had grokked)"
    assert f"  not counted: {cut_off}" in said.stdout
    assert "have not ended" not in said.stdout, "nobody waits for them"
    before = len(reports)
    run(UNTIL, here)
    assert len(reports) == before, "there is nothing left to train"


@pytest.mark.usefixtures("groks")
def test_what_was_cut_is_trained_when_more_is_asked_for(here):
    run(UNTIL, here)
    run(UNTIL | {"until": {"grokked": 2, "max_seeds": 12}}, here)
    after = rows_of(here / "home", "until")
    assert [r["init_seed"] for r in after] == list(range(1, 13)) and all(row.is_final for row in after)
    assert recorded(here / "home", "until") == expected(SWEEP)


@pytest.mark.usefixtures("groks")
def test_seeds_that_an_earlier_run_left_are_cut_off_where_there_is_enough(unlucky, here):
    """It had no `until`, and could not go on with some of them."""
    run(SWEEP | {"name": "until", "faults": {"max_failures": 0}}, here, code=1)
    left = [r["init_seed"] for r in rows_of(here / "home", "until") if not r.is_final]
    said = run(UNTIL, here)
    assert left and 7 not in left and "have not ended" not in said.stdout
    open_ = {r["init_seed"]: r["reason"] for r in rows_of(here / "home", "until") if not r.is_final}
    assert open_ == dict.fromkeys(left, ENOUGH)
    assert "interrupted" not in call("status", "until", "--home", "home").stdout


# ---- files that are edited


def test_a_finished_study_is_extended_by_editing_its_file(here):
    run(SHORT | {"seeds": {"first": 5, "count": 2}}, here)
    before = rows_of(here / "home", "quick")
    assert "\ntoo long: curriculum 7,000: after the last step, 8\n" in run_whole(SHORT, here).stdout
    assert rows_of(here / "home", "quick")[:2] == before, "what was recorded stays as it is"


# ---- records on a server


@pytest.fixture(scope="module")
def database():
    with postgres() as server:
        yield server


def known(database):
    """The environment that a driver needs."""
    return database.environment() | {"ADDER_SEARCH_DATABASE": database.url("optuna")}


def test_a_dry_run_makes_nothing_on_a_server(database, here):
    with environment(known(database) | {"ADDER_SEARCH_DATABASE": database.url("mlflow")}):
        run(GRID, here, "--dry-run")
        assert fails_with_one(2, "status", "quick").startswith("nothing has run yet with adder@")
        engine = sa.create_engine(Home().ledger_url)
        assert not sa.inspect(engine).get_table_names()
        engine.dispose()


def test_a_search_on_postgresql_has_its_records_there(database, here):
    """And no password in any file."""
    home = here / "home"
    with environment(known(database)):
        said = run(GRID, here)
        check_whole(home, GRID, expected(GRID))
    assert [f.name for f in home.rglob("*.db")] == ["mlflow.db"]
    texts = [said.output, *(f.read_bytes().decode("latin-1") for f in home.rglob("*") if f.is_file())]
    assert not [text for text in texts if database.password in text], "the password was kept"


def test_a_run_without_the_password_is_one_line(database, here):
    with environment(known(database) | {"PGPASSFILE": "nowhere"}):
        said = run(SHORT, here, code=1)
    assert said.stderr.startswith("error: ") and said.stderr.count("\n") == 1
    assert "no password supplied" in said.stderr
    assert not list(here.rglob("records.db")), "something was begun"
