"""The ledger: one row a pair, held by one driver at a time, and final when it is final."""

import contextlib
import multiprocessing
import threading
import time

import pytest
import sqlalchemy as sa
import torch

from model import RUNGS
from search.errors import UserError
from search.store import database
from search.store import ledger as ledger_module
from search.store.home import Home
from search.store.ledger import LEASE_S, ROWS, STUDIES, Ledger, is_final
from search.study.schema import Resources, Stop
from search.study.trial import Configuration, Trial
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


def made(folder):
    home = Home(folder)
    home.create()
    return home


@pytest.fixture
def home(tmp_path):
    return made(tmp_path / "home")


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
    return f"{database._host()}/{process.pid}/00000000"


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
    with pytest.raises(sa.exc.IntegrityError), ledger.database.engine.begin() as db:
        db.execute(sa.insert(ROWS).values(**key, trial="t", outcome="running"))


def test_renewing_extends_only_the_own_leases(ledger, home, monkeypatch):
    other = Ledger(home)
    ledger.claim(trial_of(SEEDS[0]))
    other.claim(trial_of(SEEDS[1]))
    before = [r["lease_until"] for r in ledger.rows()]
    later = time.time() + 50
    monkeypatch.setattr(ledger_module.time, "time", lambda: later)
    ledger.renew("study")
    assert [r["lease_until"] for r in ledger.rows()] == [later + LEASE_S, before[1]]


def test_a_live_driver_keeps_its_pairs(ledger, home):
    """This process is alive, so another ledger object in it stands for another live driver."""
    other = Ledger(home)
    other.claim(trial_of(SEEDS[1]))
    with pytest.raises(UserError, match=f"study study: seed 2 is held by {other.owner}"):
        ledger.claim(trial_of(*SEEDS))
    assert len(ledger.rows()) == 1, "a claim is whole or not at all"


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
    ledger.claim(trial)
    only(ledger, owner=ledger.owner, outcome="running", reason=None)


def test_a_lease_from_another_machine_is_kept_until_it_ends(ledger, home, monkeypatch):
    other = Ledger(home)
    other.owner = "elsewhere/1/00000000"
    other.claim(trial_of(SEEDS[0]))
    with pytest.raises(UserError, match="seed 1 is held by elsewhere/1/00000000"):
        ledger.claim(trial_of(SEEDS[0]))
    later = time.time() + LEASE_S + 1
    monkeypatch.setattr(ledger_module.time, "time", lambda: later)
    ledger.claim(trial_of(SEEDS[0]))


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
    ledger.renew("study")
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


# ---- one driver a study


def test_a_study_remembers_how_it_was_run(ledger):
    assert ledger.study("study") is None
    for uri in ("http://one", "http://two"):
        ledger.hold("study", {"name": "study", "seeds": [1]}, uri)
    kept = ledger.study("study")
    assert (kept["tracking_uri"], kept["definition"]) == ("http://two", {"name": "study", "seeds": [1]})
    assert kept["owner"] == ledger.owner and ledger.study("other") is None
    ledger.release("study")
    assert ledger.study("study") == kept | {"owner": None, "lease_until": None}


def test_a_study_has_one_driver(ledger, home):
    other = Ledger(home)
    other.hold("study", {}, None)
    with pytest.raises(UserError, match=f"study study is already being run by {other.owner}"):
        ledger.hold("study", {}, None)
    ledger.hold("another", {}, None)
    ledger.release("study")  # not its own: nothing
    assert ledger.study("study")["owner"] == other.owner
    other.release("study")
    ledger.hold("study", {}, None)


@pytest.mark.parametrize("how", ["dead", "late"])
def test_the_hold_of_a_dead_driver_is_taken_over_and_it_learns_of_it(how, ledger, home, monkeypatch):
    other = Ledger(home)
    if how == "dead":
        other.owner = dead_owner()
    other.hold("study", {}, None)
    if how == "late":
        other.owner = "elsewhere/1/00000000"
        with other.database.begin() as db:
            db.execute(sa.update(STUDIES).values(owner=other.owner, lease_until=time.time() - 1))
    assert ledger.study("study")["owner"] is None
    ledger.hold("study", {}, None)
    assert other.renew("study") == "another driver took the study over"
    assert ledger.renew("study") is None
    assert ledger.study("study")["owner"] == ledger.owner


def test_of_many_drivers_one_gets_a_study(home):
    ledgers, won = [Ledger(home) for _ in range(8)], []
    together = threading.Barrier(len(ledgers))

    def hold(ledger):
        together.wait()
        with contextlib.suppress(UserError):
            ledger.hold("study", {}, None)
            won.append(ledger.owner)

    threads = [threading.Thread(target=hold, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ledgers[0].study("study")["owner"]] == won


def test_a_driver_is_asked_to_stop_once(ledger, home):
    ledger.hold("study", {}, None)
    Ledger(home).ask_to_stop("study")
    assert ledger.renew("study") == ledger.renew("study") == "stopped"
    ledger.release("study")
    ledger.hold("study", {}, None)
    assert ledger.renew("study") is None, "the next run was not asked"


# ---- rows that come and go


def test_rows_of_another_home_are_taken_in_once(ledger, tmp_path):
    trial = trial_of(*SEEDS[:2])
    ledger.claim(trial)
    ledger.record(trial, [result_of(s, Outcome.GROKKED) for s in SEEDS[:2]], 5.0, {"threads": 1})
    ledger.publish(trial)
    rows = ledger.rows()
    other = Ledger(made(tmp_path / "other"))
    other.claim(trial_of(SEEDS[0]))  # open there: the other home's result settles it
    other.adopt("study", rows)
    expected = [r | {"published": False} for r in rows]
    assert other.rows() == expected
    other.adopt("study", [r | {"outcome": "failed"} for r in rows])
    assert other.rows() == expected


def test_a_study_is_forgotten(ledger):
    for study in ("study", "another"):
        ledger.claim(trial_of(SEEDS[0], study=study))
        ledger.hold(study, {}, None)
    ledger.forget("study")
    assert [r["study"] for r in ledger.rows()] == ["another"]
    assert ledger.study("study") is None and ledger.study("another")


def test_a_ledger_is_opened_again(ledger, home):
    ledger.claim(trial_of(*SEEDS))
    assert Ledger(home).rows() == ledger.rows()
