"""What becomes of the ledger's rows beside being claimed and recorded: each call changes its own alone."""

import pytest

from search.errors import Failure, UserError
from search.store.lease import StudyLeases, acquire_study_lease
from search.store.ledger import DIED, Ledger
from tests.test_ledger import CONFIGURATION, SEEDS, ledger, record, result_of, trial_of
from trainer import Outcome

__all__ = ["ledger"]


def states(ledger, *names):
    return {r["init_seed"]: tuple(r[name] for name in names) for r in ledger.list_seeds("study")}


def test_only_the_rows_of_others_that_count_as_running_are_orphans(ledger, home):
    other, elsewhere = Ledger(home), trial_of(SEEDS[0], study="another")
    other.claim(trial_of(SEEDS[0]))
    other.claim(elsewhere)
    done = trial_of(SEEDS[1])
    other.claim(done)
    record(other, done, result_of(SEEDS[1]))
    ledger.claim(trial_of(SEEDS[2]))
    ledger.censor_orphaned("study")
    assert states(ledger, "outcome", "reason", "owner", "lease_until")[1] == (
        Outcome.CENSORED,
        DIED,
        None,
        None,
    )
    assert states(ledger, "outcome", "reason")[2] == (Outcome.FAILED, None)
    assert states(ledger, "outcome", "owner")[3] == (Outcome.RUNNING, ledger.owner)
    (row,) = ledger.list_seeds("another")
    assert (row["outcome"], row["owner"]) == (Outcome.RUNNING, other.owner)


def test_how_far_a_seed_was_is_noted_of_those_that_were_ended(ledger):
    """And what had not begun is forgotten."""
    trial, later = trial_of(*SEEDS[:2]), trial_of(SEEDS[2])
    for claimed in (trial, later):
        ledger.claim(claimed)
    record(ledger, trial, result_of(SEEDS[0]))
    before = states(ledger, "steps", "outcome")[1]
    steps = {(CONFIGURATION.key, seed.init_seed, seed.data_seed): 700 for seed in SEEDS}
    ledger.censor([trial], "enough", steps)
    assert states(ledger, "steps", "outcome") == {
        1: before, 2: (700, Outcome.CENSORED), 3: (0, Outcome.RUNNING)
    }  # fmt: skip
    assert states(ledger, "reason")[2] == ("enough",)
    ledger.censor([later], "enough")
    ledger.delete_unstarted(trial)
    assert sorted(states(ledger)) == [1, 2, 3]
    ledger.delete_unstarted(later)
    assert sorted(states(ledger)) == [1, 2]


def test_lost_results_are_trained_again_but_for_what_mlflow_has(ledger):
    kept, lost = trial_of(SEEDS[0]), trial_of(SEEDS[1])
    for trial, seed in ((kept, SEEDS[0]), (lost, SEEDS[1])):
        ledger.claim(trial)
        record(ledger, trial, result_of(seed, Outcome.GROKKED))
    ledger.publish(kept, CONFIGURATION, "1", "run")
    before = ledger.list_seeds("study")
    for trial in (kept, lost):
        ledger.reopen("study", trial.key, "cut")
    first, second = ledger.list_seeds("study")
    assert first == before[0]
    measured = (
        "grok_step",
        "held",
        "hopeless_step",
        "screen",
        "best_step",
        "best_exact",
        "best_token",
        "owner",
    )
    assert (second["outcome"], second["reason"], second["steps"]) == (Outcome.CENSORED, "cut", 0)
    assert not any(second[name] for name in measured)
    ledger.claim(lost)


def test_a_proposal_that_another_driver_drew_is_refused(ledger):
    ledger.create_proposal("study", 0, None, {"recipe.lr": 0.1})
    with pytest.raises(UserError, match="study study: proposal 0 was just taken by another driver"):
        ledger.create_proposal("study", 0, None, {"recipe.lr": 0.2})
    with pytest.raises(UserError, match="proposal 0 was just taken"):
        ledger.create_proposal("study", 0, CONFIGURATION, {"recipe.lr": 0.1})
    assert [p["configuration"] for p in ledger.list_proposals("study")] == [None]
    assert ledger.list_configurations("study") == {}, "a transaction is whole or not at all"


def test_what_a_conclusion_decoded_is_counted_where_nothing_is_known(ledger):
    for seed in SEEDS:
        ledger.claim(trial_of(seed))
    ledger.record_verification("study", (CONFIGURATION.key, 1, 1), 5)
    ledger.record_verifications("study", CONFIGURATION.key, {SEEDS[0]: 10_010, SEEDS[1]: 0})
    assert states(ledger, "verified", "verify_calls") == {1: (5, 1), 2: (0, 1), 3: (None, 0)}


def test_a_study_is_defined_anew_by_whom_it_is_held(ledger, home):
    ledger.leases.acquire("study", {"a": 1}, None)
    Ledger(home).update_study("study", {"a": 2}, "http://other")
    assert ledger.get_study("study")["definition"] == {"a": 1}
    ledger.update_study("study", {"a": 3}, "http://mine")
    kept = ledger.get_study("study")
    assert (kept["definition"], kept["tracking_uri"], kept["owner"]) == (
        {"a": 3},
        "http://mine",
        ledger.owner,
    )


def test_a_hold_that_is_let_go_is_renewed_no_more(ledger):
    with acquire_study_lease(ledger, "study", None, None) as its:
        its.check()
        its.why = "stopped"
        with pytest.raises(Failure, match="study study: stopped; the same command again completes"):
            its.check()
    assert not its.thread.is_alive() and ledger.get_study("study")["owner"] is None


def test_every_transaction_waits_for_a_database_that_is_away():
    """But the renewal, which is tried again in any case; and what is made of others."""
    methods = {name: method for kind in (Ledger, StudyLeases) for name, method in vars(kind).items()}
    others = {"renew", "is_owned", "require_study", "insert_configurations", "insert_starts"}
    others |= {"record_verifications"}
    public = {name for name, method in methods.items() if callable(method) and not name.startswith("_")}
    assert {name for name in public if not hasattr(methods[name], "__wrapped__")} == others


def test_a_study_is_forgotten(ledger):
    for study in ("study", "another"):
        ledger.claim(trial_of(SEEDS[0], study=study))
        ledger.leases.acquire(study, {}, None)
        ledger.create_proposal(study, 0, CONFIGURATION, {})
    ledger.delete_study("study")
    assert [r["study"] for r in ledger.list_seeds()] == ledger.list_studies() == ["another"]
    assert ledger.get_study("study") is None and ledger.get_study("another")
    kept = {
        study: (ledger.list_configurations(study), ledger.list_proposals(study))
        for study in ("study", "another")
    }
    assert kept["study"] == ({}, []) and all(kept["another"])


def test_a_ledger_is_opened_again(ledger, home):
    ledger.claim(trial_of(*SEEDS))
    assert Ledger(home).list_seeds() == ledger.list_seeds()
