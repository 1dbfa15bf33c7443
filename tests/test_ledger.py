"""The ledger: one row a pair, held by one driver at a time, and final when it is final."""

import multiprocessing
import sqlite3
import threading
import time
from contextlib import closing

import pytest
import sqlalchemy as sa
import torch

from model import RUNGS
from search import ledger as ledger_module
from search.errors import UserError
from search.home import Home
from search.ledger import LEASE_S, ROWS, Ledger, is_final
from search.plan import Configuration, Trial
from search.study import Resources, Stop
from trainer import Outcome, Pair, Recipe, Result, Seed

CONFIGURATION = Configuration(RUNGS["57p"], Recipe())
SEEDS = tuple(Seed.of(n) for n in (1, 2, 3))


def trial_of(*seeds, study="study"):
    return Trial(study, tuple((CONFIGURATION, seed) for seed in seeds), 2, Resources(), Stop())


def result_of(seed, outcome=Outcome.FAILED, best=0.5, hopeless_step=None):
    return Result(
        pair=Pair(CONFIGURATION.recipe, seed),
        outcome=outcome,
        steps=4_000,
        grok_step=3_000 if outcome == Outcome.GROKKED else None,
        held=False,
        hopeless_step=hopeless_step,
        best_step=3_000,
        best_exact=best,
        best_token=0.9,
        theta_P=torch.zeros(57),
        curve_EM=torch.zeros(4, 4),
    )


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def ledger(home):
    return Ledger(home)


def only(ledger, **wanted):
    """The one row, after a look at some of its values."""
    (row,) = ledger.rows()
    assert {name: row[name] for name in wanted} == wanted
    return row


def dead_owner():
    """An owner's name on this machine whose process has ended."""
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()
    return f"{ledger_module.socket.gethostname()}/{process.pid}/00000000"


def test_a_claim_is_a_lease(ledger):
    trial = trial_of(*SEEDS)
    ledger.claim(trial)
    rows = ledger.rows("study")
    assert [Seed(r["init_seed"], r["data_seed"]) for r in rows] == list(SEEDS)
    assert {(r["trial"], r["outcome"], r["owner"]) for r in rows} == {(trial.key, "running", ledger.owner)}
    assert all(0 < r["lease_until"] - time.time() <= LEASE_S for r in rows)
    assert not any(map(is_final, rows)) and not any(r["published"] for r in rows)
    assert ledger.rows("another") == []


def test_a_pair_has_one_row_in_each_study(ledger):
    ledger.claim(trial_of(SEEDS[0]))
    ledger.claim(trial_of(SEEDS[0], SEEDS[1]))
    ledger.claim(trial_of(SEEDS[0], study="another"))
    assert [(r["study"], r["init_seed"]) for r in ledger.rows()] == [
        ("another", 1),
        ("study", 1),
        ("study", 2),
    ]
    key = {
        name: ledger.rows("study")[0][name] for name in ("study", "configuration", "init_seed", "data_seed")
    }
    with pytest.raises(sa.exc.IntegrityError), ledger.engine.begin() as db:
        db.execute(sa.insert(ROWS).values(**key, trial="t", outcome="running"))


def test_renewing_extends_only_the_own_leases(ledger, home, monkeypatch):
    other = Ledger(home)
    ledger.claim(trial_of(SEEDS[0]))
    other.claim(trial_of(SEEDS[1]))
    before = [r["lease_until"] for r in ledger.rows()]
    later = time.time() + 50
    monkeypatch.setattr(ledger_module.time, "time", lambda: later)
    ledger.renew()
    assert [r["lease_until"] for r in ledger.rows()] == [later + LEASE_S, before[1]]


def test_a_live_driver_keeps_its_pairs(ledger, home):
    """This process is alive, so another ledger object in it stands for another live driver."""
    other = Ledger(home)
    other.claim(trial_of(SEEDS[1]))
    with pytest.raises(UserError, match=f"study study: seed 2 is held by {other.owner}"):
        ledger.claim(trial_of(*SEEDS))
    assert len(ledger.rows()) == 1, "a claim is whole or not at all"
    assert (ledger.others("study"), other.others("study"), ledger.others("x")) == ([other.owner], [], [])


@pytest.mark.parametrize("how", ["dead", "late", "censored"])
def test_a_lease_that_nobody_can_hold_is_free(how, ledger, home, monkeypatch):
    other, trial = Ledger(home), trial_of(SEEDS[0])
    if how == "dead":
        other.owner = dead_owner()
    other.claim(trial)
    if how == "late":
        later = time.time() + LEASE_S + 1
        monkeypatch.setattr(ledger_module.time, "time", lambda: later)
    if how == "censored":
        other.censor([trial], "interrupted")
    assert ledger.others("study") == []
    ledger.claim(trial)
    only(ledger, owner=ledger.owner, outcome="running", reason=None)


def test_a_lease_from_another_machine_is_kept_until_it_ends(ledger, home):
    other = Ledger(home)
    other.owner = "elsewhere/1/00000000"
    other.claim(trial_of(SEEDS[0]))
    assert ledger.others("study") == ["elsewhere/1/00000000"]


def test_of_many_drivers_one_gets_a_pair(home):
    ledgers, won, lost = [Ledger(home) for _ in range(8)], [], []
    together = threading.Barrier(len(ledgers))

    def claim(ledger):
        together.wait()
        try:
            ledger.claim(trial_of(*SEEDS))
            won.append(ledger.owner)
        except UserError:
            lost.append(ledger.owner)

    threads = [threading.Thread(target=claim, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 7
    assert {r["owner"] for r in ledgers[0].rows()} == set(won)


def test_a_pair_that_changes_hands_while_it_is_claimed_is_not_taken(ledger, home, monkeypatch):
    trial, other = trial_of(SEEDS[0]), Ledger(home)
    ledger.claim(trial)
    ledger.censor([trial], "interrupted")
    look = ledger_module.is_final

    def meanwhile(row):
        monkeypatch.setattr(ledger_module, "is_final", look)
        other.claim(trial)
        return look(row)

    monkeypatch.setattr(ledger_module, "is_final", meanwhile)
    with pytest.raises(UserError, match="seed 1 was just taken by another driver"):
        ledger.claim(trial)
    only(ledger, owner=other.owner)


def test_results_are_recorded(ledger):
    trial = trial_of(SEEDS[0])
    ledger.claim(trial)
    ledger.record(trial, [result_of(SEEDS[0], Outcome.GROKKED)], 123.0, {"threads": 1})
    row = only(ledger, outcome="grokked", steps=4_000, grok_step=3_000, held=False, best_step=3_000)
    assert (row["best_exact"], row["best_token"], row["seed_steps_per_s"]) == (0.5, 0.9, 123.0)
    assert (row["environment"], row["owner"], row["lease_until"]) == ({"threads": 1}, None, None)
    assert is_final(row) and not row["published"]
    ledger.publish(trial)
    only(ledger, published=True)


@pytest.mark.parametrize("outcome", [Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP])
def test_a_final_row_is_never_overwritten(outcome, ledger):
    trial = trial_of(SEEDS[0])
    ledger.claim(trial)
    ledger.record(trial, [result_of(SEEDS[0], outcome)], 1.0, {})
    before = only(ledger, outcome=outcome)
    ledger.record(trial, [result_of(SEEDS[0], Outcome.DIVERGED, best=0.1)], 2.0, {"other": True})
    ledger.censor([trial], "interrupted")
    ledger.renew()
    with pytest.raises(UserError, match=rf"study study: seed 1 has run already \({outcome}\)"):
        ledger.claim(trial)
    assert ledger.rows() == [before]


def test_censored_pairs_go_on(ledger):
    trial = trial_of(*SEEDS[:2])
    ledger.claim(trial)
    ledger.record(trial, [result_of(SEEDS[0])], 1.0, {})
    ledger.censor([trial], "its process died")
    rows = ledger.rows()
    assert [(r["outcome"], r["reason"]) for r in rows] == [
        ("failed", None),
        ("censored", "its process died"),
    ]
    assert [is_final(r) for r in rows] == [True, False]
    ledger.record(trial, [result_of(SEEDS[1])], 1.0, {})  # its results were there after all
    assert [r["outcome"] for r in ledger.rows()] == ["failed", "failed"]


@pytest.mark.parametrize("outcome", [Outcome.GIVEN_UP, Outcome.FAILED])
def test_the_step_at_which_a_seed_was_hopeless_is_recorded(outcome, ledger):
    trial = trial_of(SEEDS[0])
    ledger.claim(trial)
    assert only(ledger, hopeless_step=None)
    ledger.record(trial, [result_of(SEEDS[0], outcome, hopeless_step=2_000)], 1.0, {})
    only(ledger, outcome=outcome, hopeless_step=2_000)


def test_only_known_pairs_are_recorded(ledger):
    ledger.record(trial_of(SEEDS[0]), [result_of(SEEDS[0])], 1.0, {})
    assert ledger.rows() == []


def test_calls_of_verify_are_counted(ledger):
    ledger.claim(trial_of(SEEDS[0]))
    key = (CONFIGURATION.key, 1, 1)
    assert ledger.record_verification("study", key, 9) and ledger.record_verification("study", key, 10_010)
    assert not ledger.record_verification("another", key, 0)
    assert not ledger.record_verification("study", (CONFIGURATION.key, 1, 2), 0)
    only(ledger, verify_calls=2, verified=10_010)


def test_a_study_remembers_its_own_tracking_server(ledger):
    assert ledger.tracking_uri("study") is None
    ledger.begin("study", "http://one")
    ledger.begin("study", "http://two")
    assert ledger.tracking_uri("study") == "http://two" and ledger.tracking_uri("other") is None


def test_a_ledger_is_opened_again(ledger, home):
    ledger.claim(trial_of(*SEEDS))
    assert Ledger(home).rows() == ledger.rows()


def test_another_schema_is_refused(ledger, home):
    with closing(sqlite3.connect(home.records_db)) as db:
        db.execute("UPDATE ledger_version SET schema = 1")
        db.commit()
    with pytest.raises(UserError, match=r"optuna\.db: written by another version \(schema 1, this is 3\)"):
        Ledger(home)


def test_a_ledger_of_the_version_before_gains_the_confirmation_column(ledger, home):
    trial = trial_of(*SEEDS[:1])
    ledger.claim(trial)
    with closing(sqlite3.connect(home.records_db)) as db:
        db.execute("ALTER TABLE ledger DROP COLUMN confirmation")
        db.execute("UPDATE ledger_version SET schema = 2")
        db.commit()
    for _ in range(2):
        (row,) = Ledger(home).rows("study")
        assert row["confirmation"] is False and row["trial"] == trial.key
