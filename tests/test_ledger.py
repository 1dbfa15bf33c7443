"""The ledger: one row a pair, held by one driver at a time, and final when it is final."""

import subprocess
import threading
import time
from dataclasses import replace

import pytest
import sqlalchemy as sa

from model import PRESETS
from search.errors import UserError
from search.store import lease as hold
from search.store import ledger as ledger_module
from search.store.database import Database, DatabaseUnavailable
from search.store.lease import LEASE_S
from search.store.ledger import ROWS, STUDIES, Ledger, is_final
from search.store.results import ConfigurationResults
from search.study.schema import Resources, Stop
from search.study.trial import Configuration, Trial
from tests import homes, leases
from tests.leases import at_once
from trainer import Outcome, Recipe, Seed

CONFIGURATION = Configuration(PRESETS["57p"], Recipe())
SEEDS = tuple(Seed.of(n) for n in (1, 2, 3))


def trial_of(*seeds, study="study"):
    return Trial(study, tuple((CONFIGURATION, seed) for seed in seeds), 2, Resources(), Stop())


def result_of(seed, outcome=Outcome.FAILED, **facts):
    made = homes.result_of(CONFIGURATION, seed.init_seed, outcome == Outcome.GROKKED)
    return replace(made, outcome=outcome, **facts)


def record(ledger, trial, *results, speed=1.0, environment=None):
    """As a driver does with what a worker left."""
    about = {"seed_steps_per_s": speed, "environment": environment or {}}
    ledger.record(ConfigurationResults(trial.part(CONFIGURATION), list(results), about))


@pytest.fixture
def ledger(home):
    return Ledger(home)


def only(ledger, **wanted):
    """The one row, after a look at some of its values."""
    (row,) = ledger.list_seeds()
    assert {name: row[name] for name in wanted} == wanted
    return row


def dead_owner():
    """An owner's name on this machine whose process has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return f"{hold._machine()}/{process.pid}/00000000"


def later(monkeypatch, seconds):
    """The database's clock shows so much more."""
    now = Database.now
    monkeypatch.setattr(Database, "now", lambda self, db: now(self, db) + seconds)


def test_a_claim_is_a_lease(ledger):
    trial = trial_of(*SEEDS)
    ledger.claim(trial)
    rows = ledger.list_seeds("study")
    assert [Seed(r["init_seed"], r["data_seed"]) for r in rows] == list(SEEDS)
    assert {(r["trial"], r["outcome"], r["owner"]) for r in rows} == {(trial.key, "running", ledger.owner)}
    assert all(0 < r["lease_until"] - time.time() <= LEASE_S for r in rows)
    assert not any(map(is_final, rows)) and not any(r["published"] for r in rows)
    assert ledger.list_seeds("another") == []


def test_a_pair_has_one_row_in_each_study(ledger):
    ledger.claim(trial_of(SEEDS[0]))
    ledger.claim(trial_of(SEEDS[0], SEEDS[1]))
    ledger.claim(trial_of(SEEDS[0], study="another"))
    assert [(r["study"], r["init_seed"]) for r in ledger.list_seeds()] == [
        ("another", 1),
        ("study", 1),
        ("study", 2),
    ]
    key = {
        name: ledger.list_seeds("study")[0][name]
        for name in ("study", "configuration", "init_seed", "data_seed")
    }
    with pytest.raises(sa.exc.IntegrityError), ledger.database.engine.begin() as db:
        db.execute(sa.insert(ROWS).values(**key, trial="t", outcome="running"))


def test_renewing_extends_only_the_own_leases(ledger, home, monkeypatch):
    other = Ledger(home)
    ledger.claim(trial_of(SEEDS[0]))
    other.claim(trial_of(SEEDS[1]))
    before = [r["lease_until"] for r in ledger.list_seeds()]
    later(monkeypatch, 50)
    ledger.leases.renew("study")
    after = [r["lease_until"] for r in ledger.list_seeds()]
    assert 50 <= after[0] - before[0] < 60 and after[1] == before[1]


def test_a_live_driver_keeps_its_pairs(ledger, home):
    """This process is alive, so another ledger object in it stands for another live driver."""
    other = Ledger(home)
    other.claim(trial_of(SEEDS[1]))
    with pytest.raises(UserError, match=f"study study: seed 2 is held by {other.owner}"):
        ledger.claim(trial_of(*SEEDS))
    assert len(ledger.list_seeds()) == 1, "a claim is whole or not at all"


@pytest.mark.parametrize("how", ["dead", "late", "censored"])
def test_a_lease_that_nobody_can_hold_is_free(how, ledger, home, monkeypatch):
    other, trial = Ledger(home), trial_of(SEEDS[0])
    if how == "dead":
        other.leases.owner = dead_owner()
    other.claim(trial)
    if how == "late":
        later(monkeypatch, LEASE_S + 1)
    if how == "censored":
        other.censor([trial], "interrupted")
    ledger.claim(trial)
    only(ledger, owner=ledger.owner, outcome="running", reason=None)


def test_a_lease_from_another_machine_is_kept_until_it_ends(ledger, home, monkeypatch):
    other = Ledger(home)
    other.leases.owner = "elsewhere/1/00000000"
    other.claim(trial_of(SEEDS[0]))
    with pytest.raises(UserError, match="seed 1 is held by elsewhere/1/00000000"):
        ledger.claim(trial_of(SEEDS[0]))
    later(monkeypatch, LEASE_S + 1)
    ledger.claim(trial_of(SEEDS[0]))


def test_of_many_drivers_one_gets_a_pair(home, monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    ledgers = [Ledger(home) for _ in range(8)]
    won = at_once(ledgers, lambda ledger: ledger.claim(trial_of(*SEEDS)))
    assert len(won) == 1 and not raised, "the others are refused in a line"
    assert {r["owner"] for r in ledgers[0].list_seeds()} == set(won)


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
    record(ledger, trial, result_of(SEEDS[0], Outcome.GROKKED), speed=123.0, environment={"threads": 1})
    row = only(ledger, outcome="grokked", steps=60_000, grok_step=2_000, held=False, best_step=2_000)
    assert (row["best_exact"], row["best_token"], row["seed_steps_per_s"]) == (1.0, 0.5, 123.0)
    assert (row["owner"], row["lease_until"]) == (None, None) and "environment" not in row
    assert ledger.list_seeds(environment=True) == [row | {"environment": {"threads": 1}}]
    assert is_final(row) and not row["published"]


def test_what_mlflow_has_of_a_trial_is_noted_and_where(ledger):
    first, second = trial_of(SEEDS[0]), trial_of(SEEDS[1])
    for trial in (first, second):
        ledger.claim(trial)
    assert ledger.list_runs("study") == {CONFIGURATION.key: ("", "")}
    ledger.publish(first, CONFIGURATION, "3", "run")
    assert [r["published"] for r in ledger.list_seeds()] == [True, False]
    assert (
        ledger.list_runs("study") == {CONFIGURATION.key: ("3", "run")} and ledger.list_runs("another") == {}
    )


@pytest.mark.parametrize("outcome", [Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP])
def test_a_final_row_is_never_overwritten(outcome, ledger):
    trial = trial_of(SEEDS[0])
    ledger.claim(trial)
    record(ledger, trial, result_of(SEEDS[0], outcome))
    before = only(ledger, outcome=outcome)
    record(ledger, trial, result_of(SEEDS[0], Outcome.DIVERGED, best_exact=0.1), speed=2.0)
    ledger.censor([trial], "interrupted")
    ledger.leases.renew("study")
    with pytest.raises(UserError, match=rf"study study: seed 1 has run already \({outcome}\)"):
        ledger.claim(trial)
    assert ledger.list_seeds() == [before]


def test_censored_pairs_go_on(ledger):
    trial = trial_of(*SEEDS[:2])
    ledger.claim(trial)
    record(ledger, trial, result_of(SEEDS[0]))
    ledger.censor([trial], "its process died")
    rows = ledger.list_seeds()
    assert [(r["outcome"], r["reason"]) for r in rows] == [
        ("failed", None),
        ("censored", "its process died"),
    ]
    assert [is_final(r) for r in rows] == [True, False]
    record(ledger, trial, result_of(SEEDS[1]))  # its results were there after all
    assert [r["outcome"] for r in ledger.list_seeds()] == ["failed", "failed"]


@pytest.mark.parametrize("outcome", [Outcome.GIVEN_UP, Outcome.FAILED])
def test_the_step_at_which_a_seed_was_hopeless_is_recorded(outcome, ledger):
    trial = trial_of(SEEDS[0])
    ledger.claim(trial)
    assert only(ledger, hopeless_step=None)
    record(ledger, trial, result_of(SEEDS[0], outcome, hopeless_step=2_000))
    only(ledger, outcome=outcome, hopeless_step=2_000)


def test_only_known_pairs_are_recorded(ledger):
    record(ledger, trial_of(SEEDS[0]), result_of(SEEDS[0]))
    assert ledger.list_seeds() == []


def test_calls_of_verify_are_counted(ledger):
    ledger.claim(trial_of(SEEDS[0]))
    key = (CONFIGURATION.key, 1, 1)
    assert ledger.record_verification("study", key, 9) and ledger.record_verification("study", key, 10_010)
    assert not ledger.record_verification("another", key, 0)
    assert not ledger.record_verification("study", (CONFIGURATION.key, 1, 2), 0)
    only(ledger, verify_calls=2, verified=10_010)


# ---- one driver a study


def test_a_study_remembers_how_it_was_run(ledger):
    assert ledger.get_study("study") is None
    for uri in ("http://one", "http://two"):
        ledger.leases.acquire("study", {"name": "study", "seeds": [1]}, uri)
    kept = ledger.get_study("study")
    assert (kept["tracking_uri"], kept["definition"]) == ("http://two", {"name": "study", "seeds": [1]})
    assert kept["owner"] == ledger.owner and ledger.get_study("other") is None
    ledger.leases.release("study")
    assert ledger.get_study("study") == kept | {"owner": None, "lease_until": None}


def test_a_study_has_one_driver(ledger, home):
    other = Ledger(home)
    other.leases.acquire("study", {}, None)
    with pytest.raises(UserError, match=f"study study is already being run by {other.owner}"):
        ledger.leases.acquire("study", {}, None)
    ledger.leases.acquire("another", {}, None)
    ledger.leases.release("study")  # not its own: nothing
    assert ledger.get_study("study")["owner"] == other.owner
    other.leases.release("study")
    ledger.leases.acquire("study", {}, None)


@pytest.mark.parametrize("how", ["dead", "late"])
def test_the_hold_of_a_dead_driver_is_taken_over_and_it_learns_of_it(how, ledger, home, monkeypatch):
    other = Ledger(home)
    if how == "dead":
        other.leases.owner = dead_owner()
    other.leases.acquire("study", {}, None)
    if how == "late":
        other.leases.owner = "elsewhere/1/00000000"
        with other.database.begin() as db:
            db.execute(sa.update(STUDIES).values(owner=other.owner, lease_until=time.time() - 1))
    assert ledger.get_study("study")["owner"] is None
    ledger.leases.acquire("study", {}, None)
    assert other.leases.renew("study") == "another driver took the study over"
    assert ledger.leases.renew("study") is None
    assert ledger.get_study("study")["owner"] == ledger.owner


@pytest.mark.parametrize("check", leases.CHECKS)
def test_leases(check, home, monkeypatch):
    check(home, monkeypatch)


@pytest.mark.parametrize("what", ["/proc/sys/kernel/random/boot_id", "/etc/machine-id"])
def test_a_clone_of_this_machine_is_another_one(what, ledger, home, monkeypatch):
    """It has the same host name, and the same number of the first process space."""
    other, text = Ledger(home), hold._text
    with monkeypatch.context() as patch:
        patch.setattr(hold, "_text", lambda path: "of the clone" if path == what else text(path))
        other.leases.owner = dead_owner()  # of the clone's processes this machine knows nothing
    other.leases.acquire("study", {}, None)
    other.claim(trial_of(SEEDS[0]))
    assert ledger.list_running_studies() == ["study"] and len(other.owner) <= 128
    for take in (lambda: ledger.leases.acquire("study", {}, None), lambda: ledger.claim(trial_of(SEEDS[0]))):
        with pytest.raises(UserError, match=other.owner):
            take()
    assert other.owner.split(".")[:-1] == ledger.owner.split(".")[:-1]


def test_without_a_boot_id_the_network_cards_number_tells_machines_apart(monkeypatch):
    monkeypatch.setattr(hold, "_text", lambda path: "")
    mine = hold._machine()
    monkeypatch.setattr(hold.uuid, "getnode", lambda: 1)
    assert hold._machine() != mine


@pytest.mark.parametrize(
    "error",
    [
        sa.exc.TimeoutError("no connection"),
        RuntimeError("a mistake"),
        OSError("odd"),
        DatabaseUnavailable("gone"),
    ],
)
def test_a_hold_survives_whatever_its_renewal_meets(error, ledger, monkeypatch, caplog):
    monkeypatch.setattr(hold, "RENEW_S", 0.01)
    renew, met = ledger.leases.renew, []

    def renewed(study):
        if len(met) < 3:
            met.append(study)
            raise error
        return renew(study)

    monkeypatch.setattr(ledger.leases, "renew", renewed)
    with hold.acquire_study_lease(ledger, "study", None, None) as its:
        until = ledger.get_study("study")["lease_until"]
        its.thread.join(0.5)
        assert its.thread.is_alive() and its.why is None
        assert ledger.get_study("study")["lease_until"] > until
    said = f"study study: its hold could not be renewed: {error!r}"
    assert caplog.messages == ([] if isinstance(error, DatabaseUnavailable) else [said]), "once"


def test_of_many_drivers_one_gets_a_study(home):
    ledgers = [Ledger(home) for _ in range(8)]
    won = at_once(ledgers, lambda ledger: ledger.leases.acquire("study", {}, None))
    assert [ledgers[0].get_study("study")["owner"]] == won


def test_a_driver_is_asked_to_stop_once(ledger, home):
    ledger.leases.acquire("study", {}, None)
    Ledger(home).request_stop("study")
    assert ledger.leases.renew("study") == ledger.leases.renew("study") == "stopped"
    ledger.leases.release("study")
    ledger.leases.acquire("study", {}, None)
    assert ledger.leases.renew("study") is None, "the next run was not asked"


# ---- what was asked


def test_configurations_stand_in_the_order_in_which_they_came_with_all_that_they_are(ledger):
    others = [Configuration(PRESETS[name], Recipe(lr=lr)) for name, lr in (("777p", 0.5), ("57p", 0.1))]
    for work in ([CONFIGURATION], [others[0], CONFIGURATION], others):
        pairs = tuple((c, Seed.of(10 * n + len(work))) for n, c in enumerate(work))
        ledger.claim(Trial("study", pairs, 2, Resources(), Stop()))
    found = ledger.list_configurations("study")
    assert list(found.items()) == [(c.key, c) for c in (CONFIGURATION, *others)]
    assert ledger.list_configurations("another") == {}


def test_proposals_are_kept_in_order_and_those_that_make_nothing_too(ledger):
    ledger.create_proposal("study", 0, CONFIGURATION, {"recipe.lr": 0.02})
    for _ in range(2):  # the answer to the first did not come
        ledger.create_proposal("study", 1, None, {"recipe.lr": 2.0})
    assert ledger.list_proposals("study") == [
        {"number": 0, "configuration": CONFIGURATION.key, "numbers": {"recipe.lr": 0.02}},
        {"number": 1, "configuration": None, "numbers": {"recipe.lr": 2.0}},
    ]
    assert (
        list(ledger.list_configurations("study")) == [CONFIGURATION.key]
        and ledger.list_proposals("another") == []
    )


def test_a_study_that_was_never_begun_is_named_with_what_there_is(ledger):
    with pytest.raises(UserError, match=f"study 'studdy' has no records in {ledger.home.path}; .*none yet"):
        ledger.require_study("studdy")
    ledger.claim(trial_of(SEEDS[0]))
    ledger.leases.acquire("begun", {}, None)
    for name in ("study", "begun"):
        ledger.require_study(name)
    assert ledger.list_studies() == ["begun", "study"] and ledger.list_running_studies() == ["begun"]
    with pytest.raises(UserError, match=r"did you mean study\?"):
        ledger.require_study("studdy")
