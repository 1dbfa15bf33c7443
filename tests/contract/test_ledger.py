"""Promises of a records, on SQLite and on PostgreSQL (search/store: `Ledger`, `StudyRecords`, `StudyLease`)."""

import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, repeat
from types import SimpleNamespace
from unittest.mock import DEFAULT, Mock

import pytest
import sqlalchemy as sa
import torch

from model import PRESETS
from model.verdict import COUNTEREXAMPLE
from search.errors import AlreadyExists, Failure
from search.stats.record import ENOUGH
from search.store import database as database_module
from search.store import lease as lease_module
from search.store import study_records
from search.store.database import RESULTS, ROWS, STUDIES, Database, DatabaseUnavailable
from search.store.ended_seed import EndedSeed, TrainedBy
from search.store.lease import FRESH_S, LEASE_S, Clocks, Superseded
from search.store.ledger import Ledger
from search.store.study_records import DIED, KEY_COLUMNS, StudyRecords
from search.study.start import ANY, InitialTheta
from search.study.trial import Configuration
from tests import homes, needs_plugins
from tests.commands import refusal
from tests.leases import at_once, dead_owner
from tests.processes import wait_until
from tests.services import postgres
from trainer import Outcome, Recipe, Seed

CONFIGURATION = Configuration(PRESETS["57p"], Recipe())
SEEDS = tuple(Seed.of(n) for n in (1, 2, 3))
ELSEWHERE = "elsewhere.0123456789ab/1/00000000"
FINAL = [Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP, Outcome.SCREENED]


@pytest.fixture(scope="module")
def server():
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def open_records(request, home, monkeypatch):
    """A function that opens a study of an empty database as one more driver."""
    if request.param == "postgresql":
        running = request.getfixturevalue("server")
        monkeypatch.setenv("ADDER_SEARCH_DATABASE", running.url("optuna"))
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        with Ledger(home).database.begin() as db:
            for table in database_module.OF_A_STUDY:
                db.execute(sa.delete(table))
    return lambda study="study": StudyRecords(Ledger(home), study)


@pytest.fixture
def records(open_records):
    return open_records()


@pytest.fixture
def other(open_records):
    """Another driver. This process is alive, so it stands for a live one."""
    return open_records()


@pytest.fixture
def another(records):
    """Another study of the same driver."""
    return StudyRecords(records.ledger, "another")


def work_of(*seeds):
    return [(CONFIGURATION, seed, False) for seed in seeds]


def key_of(seed):
    return CONFIGURATION.key, seed.init_seed, seed.data_seed


def claimed(records, *seeds):
    """Have a driver claim seeds. Returns the states that they go on from, by number."""
    return {init: state for (_, init, _), state in records.claim(work_of(*seeds)).items()}


def result_of(seed, outcome=Outcome.FAILED, **facts):
    result = homes.result_of(CONFIGURATION, seed.init_seed, outcome == Outcome.GROKKED)
    return replace(result, outcome=outcome, **facts)


def record(records, *results, speed=1.0, environment=None, **more):
    """Record results as a driver does with what a worker reports."""
    by_key = {key_of(result.pair.seed): EndedSeed.of(result) for result in results}
    records.record(by_key, TrainedBy(speed, environment or {}), **more)


def columns(records, *names):
    """Columns of a study's rows by seed."""
    return {r["init_seed"]: tuple(r[name] for name in names) for r in records.list_seeds()}


def later(monkeypatch, seconds):
    """Put the database's clock forward."""
    now = Database.now
    monkeypatch.setattr(Database, "now", lambda self, db: now(self, db) + seconds)


# ---- a database of an earlier version


ADDED = {"verify_calls": 0, "best_token": None, "stages": None, "confirmation": False}


@pytest.fixture
def lacking(records):
    """A ledger without columns that an earlier version had not."""
    claimed(records, *SEEDS)
    with records.database.begin() as db:
        for name in ADDED:
            db.exec_driver_sql(f"ALTER TABLE ledger DROP COLUMN {name}")
    records.database.engine.dispose()


@pytest.mark.usefixtures("lacking")
def test_columns_that_a_ledger_lacks_are_added_once_with_their_defaults(open_records):
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: columns(open_records(), *ADDED), range(4)))
    assert found == [dict.fromkeys((1, 2, 3), tuple(ADDED.values()))] * 4


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("open_records", ["sqlite"], indirect=True)
def test_a_ledger_that_lacks_columns_is_read_where_it_cannot_be_written(open_records, home, monkeypatch):
    """Of a disk that is read-only: the columns have their defaults, and the file stays as it was."""
    monkeypatch.setattr(database_module, "_is_writable", lambda path: False)
    with open_records().database.begin() as db:  # nor had earlier versions this table
        db.exec_driver_sql("DROP TABLE ledger_identity")
    before = home.ledger_db.read_bytes()
    assert columns(open_records(), *ADDED) == dict.fromkeys((1, 2, 3), tuple(ADDED.values()))
    assert home.ledger_db.read_bytes() == before


def test_a_file_that_lacks_a_table_and_cannot_be_written_is_a_line(home, monkeypatch):
    monkeypatch.setattr(database_module, "_is_writable", lambda path: False)
    monkeypatch.setattr(database_module, "RETRY_S", 0.0)
    with Ledger(home).database.begin() as db:
        db.exec_driver_sql("DROP TABLE ledger")
    assert refusal(Failure, Ledger, home) == f"{home.ledger_db}: damaged, it lacks a table: ledger"


def test_a_driver_that_knows_fewer_columns_goes_on(open_records):
    records = open_records()
    with records.database.begin() as db:
        db.exec_driver_sql("ALTER TABLE ledger ADD COLUMN mood FLOAT DEFAULT 0.5 NOT NULL")
    claimed(records, SEEDS[0])
    record(records, result_of(SEEDS[0]))
    with records.database.begin() as db:
        assert db.exec_driver_sql("SELECT mood FROM ledger").scalars().all() == [0.5]
        db.exec_driver_sql("ALTER TABLE ledger DROP COLUMN mood")
    assert records.list_seeds()[0].outcome == Outcome.FAILED


# ---- seeds are claimed


def test_a_claim_is_a_lease(records, another):
    assert claimed(records, *SEEDS) == {}
    rows = records.list_seeds()
    assert [Seed(r["init_seed"], r["data_seed"]) for r in rows] == list(SEEDS)
    assert {(r["outcome"], r["owner"]) for r in rows} == {("running", records.owner)}
    assert all(0 < r["lease_until"] - time.time() <= LEASE_S for r in rows)
    assert not any(row.is_final for row in rows)
    assert another.list_seeds() == []
    assert records.ledger.list_studies() == ["study"], "it is begun"


def test_a_seed_has_one_row_in_each_study(records, another):
    claimed(another, SEEDS[0])
    claimed(records, SEEDS[0])
    claimed(records, *SEEDS[:2])
    rows = [*another.list_seeds(), *records.list_seeds()]
    assert [(r["study"], r["init_seed"]) for r in rows] == [("another", 1), ("study", 1), ("study", 2)]
    key = {name: records.list_seeds()[0][name] for name in KEY_COLUMNS}
    with pytest.raises(sa.exc.IntegrityError), records.database.begin() as db:
        db.execute(sa.insert(ROWS).values(**key, outcome="running"))


def test_more_seeds_than_are_read_at_once_are_claimed_and_go_on_together(records, monkeypatch):
    monkeypatch.setattr(study_records, "AT_ONCE", 2)
    seeds = [Seed.of(n) for n in range(5)]
    assert claimed(records, *seeds) == {}
    records.censor_running("interrupted", {})
    claimed(records, *seeds)
    assert columns(records, "outcome") == dict.fromkeys(range(5), ("running",))
    record(records, *map(result_of, seeds))
    assert columns(records, "outcome") == dict.fromkeys(range(5), (Outcome.FAILED,))


@pytest.mark.parametrize("how", ["dead", "late", "censored"])
def test_a_live_driver_keeps_its_seeds_and_a_lease_that_nobody_can_have_is_free(how, records, other, monkeypatch):
    other.lease.owner = {"dead": dead_owner(), "late": ELSEWHERE, "censored": other.owner}[how]
    claimed(other, SEEDS[1])
    if how != "dead":
        with pytest.raises(AlreadyExists, match=f"study study: seed 2 is held by {other.owner}"):
            claimed(records, *SEEDS)
        assert len(records.list_seeds()) == 1, "a claim is whole or not at all"
    if how == "late":
        later(monkeypatch, LEASE_S + 1)
    if how == "censored":
        other.censor({key_of(SEEDS[1]): 0}, "interrupted")
    claimed(records, SEEDS[1])
    assert columns(records, "owner", "outcome", "reason") == {2: (records.owner, "running", None)}


def test_of_many_drivers_one_gets_a_seed(open_records):
    drivers = [open_records() for _ in range(6)]
    owners = at_once(drivers, lambda records: claimed(records, *SEEDS))
    assert len(owners) == 1, "the others are refused in a line"
    assert {r["owner"] for r in drivers[0].list_seeds()} == set(owners)


# ---- seeds end


@pytest.mark.parametrize("outcome", FINAL)
def test_a_final_row_is_never_overwritten(outcome, records):
    claimed(records, SEEDS[0])
    record(records, result_of(SEEDS[0], outcome, hopeless_step=2_000))
    (before,) = records.list_seeds()
    assert (before["outcome"], before["hopeless_step"]) == (outcome, 2_000)
    record(records, result_of(SEEDS[0], Outcome.DIVERGED, best_exact=0.1, theta_P=torch.zeros(57)), speed=2.0)
    record(records, result_of(SEEDS[1]))  # of a seed that nobody has claimed
    record(records, states={key_of(SEEDS[0]): b"late"}, cut={key_of(SEEDS[0]): 0})
    records.censor({key_of(SEEDS[0]): 7}, "interrupted")
    records.censor_running("interrupted", {})
    records.lease.renew()
    with pytest.raises(AlreadyExists, match=rf"study study: seed 1 has run already \({outcome}\)"):
        claimed(records, SEEDS[0])
    assert records.list_seeds() == [before]
    assert records.seed(before).result.theta_P.any()
    with records.database.begin() as db:
        assert len(db.execute(sa.select(RESULTS)).all()) == 1


def test_censored_seeds_go_on(records):
    """Their steps are noted; what was cut before its first step is forgotten."""
    claimed(records, *SEEDS)
    record(records, result_of(SEEDS[0]))
    records.censor({key_of(seed): 700 for seed in SEEDS[:2]}, "its process died")
    assert columns(records, "outcome", "reason", "steps") == {
        1: ("failed", None, 60_000), 2: ("censored", "its process died", 700), 3: ("running", None, 0),
    }  # fmt: skip
    assert [r.is_final for r in records.list_seeds()] == [True, False, False]
    record(records, cut={key_of(SEEDS[1]): 800, key_of(SEEDS[2]): 0})
    assert columns(records, "reason", "steps") == {1: (None, 60_000), 2: (ENOUGH, 800)}
    record(records, result_of(SEEDS[1]))  # of a driver that was late
    assert columns(records, "outcome") == {1: ("failed",), 2: ("failed",)}


def test_all_that_a_driver_still_trains_is_censored(records, other, another):
    claimed(records, *SEEDS[:2])
    claimed(other, SEEDS[2])
    claimed(another, SEEDS[0])
    records.censor_running("interrupted", {key_of(SEEDS[0]): 40})
    assert columns(records, "outcome", "steps", "owner")[1] == ("censored", 40, None)
    assert columns(records, "outcome", "steps", "owner")[2] == ("censored", 0, None)
    assert columns(another, "outcome") == {1: ("running",)}


def test_a_saved_state_is_there_until_its_seed_has_ended(records, other, another):
    """The newest, for whoever claims the seed next; in no other study, and none of a seed that has not begun."""
    claimed(records, *SEEDS)
    record(records, states={key_of(SEEDS[0]): b"first", key_of(SEEDS[1]): b"of two"})
    record(records, states={key_of(SEEDS[0]): b"second"})
    records.censor_running("interrupted", {})
    claimed(another, SEEDS[0])
    assert claimed(other, *SEEDS[:1], *SEEDS[2:]) == {1: b"second"} and other.count_states() == 2
    record(other, result_of(SEEDS[0]), states={key_of(SEEDS[2]): b"new"})
    assert claimed(records, *SEEDS[1:2]) == {2: b"of two"} and records.count_states() == 2
    assert another.count_states() == 0


def test_only_rows_of_dead_drivers_are_orphans(records, other, another):
    claimed(StudyRecords(other.ledger, "another"), SEEDS[0])
    claimed(other, SEEDS[0])
    claimed(other, SEEDS[1])
    record(other, result_of(SEEDS[1]))
    claimed(records, SEEDS[2])
    records.censor_orphaned()
    assert columns(records, "outcome", "reason", "owner") == {
        1: ("censored", DIED, None), 2: ("failed", None, None), 3: ("running", None, records.owner),
    }  # fmt: skip
    assert columns(another, "owner") == {1: (other.owner,)}


def test_results_theta_and_curve_are_recorded_to_the_bit(records, other):
    """Of a diverged seed with NaN too, and of one that has no evaluation."""
    wild = result_of(SEEDS[1], Outcome.DIVERGED)
    wild.curve_EM[3] = torch.nan
    wild.theta_P[0] = -0.0
    none = replace(result_of(SEEDS[2]), curve_EM=torch.zeros(0, 4), probes_ER=torch.zeros(0, 0))
    results = [result_of(SEEDS[0], Outcome.GROKKED), wild, none]
    claimed(records, *SEEDS)
    record(records, *results, speed=123.0, environment={"code": "0"})
    rows = other.list_seeds()
    facts = {"seed_steps_per_s": 123.0, "owner": None, "lease_until": None, "environment": None}
    assert all(row[name] == fact and row.is_final for row in rows for name, fact in facts.items())
    assert records.list_seeds(environment=True) == [replace(row, environment={"code": "0"}) for row in rows]
    for found, wanted in zip(other.seeds(reversed(rows)), reversed(results), strict=True):
        assert found.configuration == CONFIGURATION and found.environment == {"code": "0"}
        for name in ("theta_P", "curve_EM", "probes_ER"):
            both = [getattr(result, name).numpy() for result in (found.result, wanted)]
            assert both[0].tobytes() == both[1].tobytes() and both[0].dtype == both[1].dtype
        same = {"theta_P": None, "curve_EM": None, "probes_ER": None, "pair": None}
        assert vars(found.result) | same == vars(wanted) | same
    assert other.seed(rows[0]).result.pair.seed == SEEDS[0]


def test_theta_and_curve_are_recorded_with_the_row_or_not_at_all(records):
    """Whichever part cannot be written."""
    claimed(records, *SEEDS[:2])
    whole = result_of(SEEDS[0])
    too_large = replace(result_of(SEEDS[1]), steps=1 << 80)
    for broken in (too_large, replace(result_of(SEEDS[1]), theta_P=None)):
        with pytest.raises((AttributeError, OverflowError, Failure)):
            record(records, whole, broken)
        assert columns(records, "outcome") == {1: ("running",), 2: ("running",)}
        with records.database.begin() as db:
            assert not db.execute(sa.select(RESULTS)).all()
    record(records, whole, result_of(SEEDS[1]))
    assert len(list(records.seeds(records.list_seeds()))) == 2


DAMAGE = {
    "theta of another seed": {"theta": b"0" * 228}, "a theta cut short": {"theta": b"0" * 8},
    "no theta": {"theta": b""},
    "no curve": {"curve": b""}, "a curve that is none": {"curve": b"x" * 99}, "evaluations": {"evaluations": 10**9},
    "evaluations below 0": {"evaluations": -1}, "a long curve": {"curve": zlib.compress(bytes(10**7))},
}  # fmt: skip


@pytest.mark.parametrize("has_digest", [True, False])
@pytest.mark.parametrize("damage", [*DAMAGE, "lost"])
def test_a_theta_or_curve_that_is_damaged_is_a_line(damage, has_digest, records):
    """Whether it was changed by a disk, or by somebody who knows the digest."""
    claimed(records, *SEEDS[:2])
    record(records, *map(result_of, SEEDS[:2]))
    of_first = sa.and_(RESULTS.c.study == "study", RESULTS.c.init_seed == 1)
    with records.database.begin() as db:
        if damage == "lost":
            db.execute(sa.delete(RESULTS).where(of_first))
        else:
            blobs = dict(db.execute(sa.select(RESULTS).where(of_first)).mappings().one()) | DAMAGE[damage]
            crc = {"crc": zlib.crc32(blobs["curve"], zlib.crc32(blobs["theta"]))} if has_digest else {}
            db.execute(sa.update(RESULTS).where(of_first).values(**DAMAGE[damage], **crc))
    if damage == "theta of another seed" and has_digest:
        return  # it is a θ
    rows = records.list_seeds()
    line = refusal(Failure, records.seed, rows[0])
    assert "damaged, θ of seed 1 of study study" in line and len(line) < 250
    assert records.seed(rows[1]).result.pair.seed == SEEDS[1], "the others can be read"


def test_calls_of_verify_are_counted(records, another):
    claimed(records, *SEEDS)
    key = (CONFIGURATION.key, 1, 1)
    assert records.record_verification(key, 9) and records.record_verification(key, 10_010)
    assert not another.record_verification(key, 0)
    assert columns(records, "verified", "verify_calls") == {1: (10_010, 2), 2: (None, 0), 3: (None, 0)}


@needs_plugins
def test_a_verdict_that_won_no_box_is_recorded(records):
    """As of a net that is refuted before a box is looked at: what is endless then is no JSON."""
    from adders.proof.file import verdict_of
    from adders.proof.prover import Proof, Wrong

    claimed(records, SEEDS[0])
    seed = result_of(SEEDS[0], Outcome.GROKKED)
    record(records, seed)
    proof = Proof("any", verdict=COUNTEREXAMPLE, wrong=[Wrong(1, 2, 4)])
    records.record_proof(key_of(SEEDS[0]), verdict_of(CONFIGURATION.spec, seed.theta_P, proof))
    (row,) = records.list_seeds()
    assert (row.proof["verdict"], row.proof["room"], row.proof["margin"]) == (COUNTEREXAMPLE, None, None)


# ---- one driver a study


def test_a_study_is_as_it_was_last_run(records, other):
    assert records.get_study() is None
    for seed in (1, 2):
        records.lease.acquire()
        records.update_study({"name": "study", "seeds": [seed]})
    other.update_study({"a": 2})  # it has not got the lease
    assert records.get_study()["definition"] == {"name": "study", "seeds": [2]}
    records.update_study({"a": 3})
    row = records.get_study()
    assert (row["definition"], row["owner"]) == ({"a": 3}, records.owner)
    records.lease.release()
    assert records.get_study() == row | {"owner": None, "lease_until": None}


def test_a_study_has_one_driver(records, other, another):
    other.lease.acquire()
    with pytest.raises(AlreadyExists, match=f"study study is already being run by {other.owner}"):
        records.lease.acquire()
    another.lease.acquire()
    records.lease.release()  # not its own: nothing
    assert records.get_study()["owner"] == other.owner
    other.lease.release()
    records.lease.acquire()


@pytest.mark.parametrize("how", ["dead", "late"])
def test_the_lease_of_a_dead_driver_is_taken_over_and_it_learns_of_it(how, records, other, monkeypatch):
    other.lease.owner = dead_owner() if how == "dead" else ELSEWHERE
    other.lease.acquire()
    if how == "late":
        later(monkeypatch, LEASE_S + 1)
    assert records.get_study()["owner"] is None
    records.lease.acquire()
    assert other.lease.renew() == "another driver took the study over"
    assert records.lease.renew() is None and records.get_study()["owner"] == records.owner


# ---- a driver that was paused, or whose machine slept, while another one took its study over


@pytest.fixture
def paused(records, other, monkeypatch):
    """A driver that has claimed a trial and was paused for longer than its lease, with another one at work."""
    monkeypatch.setattr(lease_module, "RENEW_S", 1e6)
    with records.lease:
        claimed(records, *SEEDS)
        later(monkeypatch, LEASE_S + 1)
        with other.lease:
            yield records


WRITES = {
    "claim": lambda records: claimed(records, SEEDS[0]),
    "record": lambda records: record(records, result_of(SEEDS[0])),
    "save states": lambda records: record(records, states={key_of(SEEDS[0]): b"x"}),
    "cut": lambda records: record(records, cut={key_of(SEEDS[0]): 0}),
    "censor": lambda records: records.censor({key_of(SEEDS[0]): 5}, "stopped"),
    "censor_running": lambda records: records.censor_running("stopped", {}),
    "censor_orphaned": lambda records: records.censor_orphaned(),
    "update_run": lambda records: records.update_run(CONFIGURATION.key, "1", "run"),
    "update_study": lambda records: records.update_study({"a": 2}),
    "create_configurations": lambda records: records.create_configurations([CONFIGURATION]),
    "create_proposal": lambda records: records.create_proposal(0, CONFIGURATION, {}),
    "create_parents": lambda records: records.create_parents([SimpleNamespace(number=0, as_dict=dict)]),
    "forget_plan": lambda records: records.forget_plan(),
    "delete_study": lambda records: records.delete_study(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_driver_that_comes_back_writes_nothing_more(write, paused, other):
    with paused.database.begin() as db:
        before = [list(db.execute(sa.select(table))) for table in database_module.OF_A_STUDY]
    with pytest.raises(Superseded, match="study study: another driver took the study over, while this one was pau"):
        write(paused)
    with paused.database.begin() as db:
        assert before == [list(db.execute(sa.select(table))) for table in database_module.OF_A_STUDY]
    write(other)


@pytest.mark.parametrize("clock", ["boot", "wall"])
def test_a_driver_looks_at_its_lease_after_a_gap_in_its_clocks(clock, paused, monkeypatch):
    """Before that nobody else can have taken it, and the database is not asked."""
    now = paused.lease.renewed
    monkeypatch.setattr(Clocks, "now", lambda: now._replace(**{clock: getattr(now, clock) + FRESH_S - 1}))
    with monkeypatch.context() as patch:
        patch.setattr(paused.lease, "renew", pytest.fail)
        paused.lease.verify()
    monkeypatch.setattr(Clocks, "now", lambda: now._replace(**{clock: getattr(now, clock) + FRESH_S + 1}))
    for _ in range(2):
        with pytest.raises(Superseded):
            paused.lease.verify()


@pytest.mark.parametrize("is_taken", [True, False])
def test_what_fails_once_another_driver_has_the_study_fails_by_that(is_taken, records, other, monkeypatch):
    """A folder that the other one has removed, a run that it has deleted."""
    monkeypatch.setattr(lease_module, "RENEW_S", 1e6)
    with pytest.raises(Superseded if is_taken else OSError), records.lease:
        if is_taken:
            later(monkeypatch, LEASE_S + 1)
            other.lease.acquire()
            other.lease.release()
        raise FileNotFoundError("progress.new")


def test_of_many_drivers_one_gets_a_study(open_records):
    drivers = [open_records() for _ in range(6)]
    for take_over in (False, True):
        if take_over:
            with drivers[0].database.begin() as db:
                db.execute(sa.update(STUDIES).values(owner=ELSEWHERE, lease_until=1.0))
        owners = at_once(drivers, lambda records: records.lease.acquire())
        assert [drivers[0].get_study()["owner"]] == owners


def test_time_is_the_databases(records, other, monkeypatch):
    """A machine whose clock is an hour ahead takes no live lease, and gives none that lasts an hour."""
    now = time.time
    records.lease.owner = ELSEWHERE
    records.lease.acquire()
    monkeypatch.setattr(time, "time", lambda: now() + 3_600)
    with pytest.raises(AlreadyExists, match=r"already being run .* free again in 1[12]\d s"):
        other.lease.acquire()
    records.lease.renew()
    assert abs(other.get_study()["lease_until"] - now() - LEASE_S) < 60


def test_renewing_extends_only_the_own_leases(records, other, monkeypatch):
    records.lease.acquire()
    claimed(records, SEEDS[0])
    claimed(other, SEEDS[1])
    before, study = columns(records, "lease_until"), records.get_study()
    later(monkeypatch, 50)
    records.lease.renew()
    after = columns(records, "lease_until")
    assert 50 <= after[1][0] - before[1][0] < 60 and after[2] == before[2]
    assert records.get_study()["lease_until"] > study["lease_until"] + 49


def test_a_driver_is_asked_to_stop_once(records, other):
    records.lease.acquire()
    other.request_stop()
    assert records.lease.renew() == records.lease.renew() == "stopped"
    records.lease.release()
    records.lease.acquire()
    assert records.lease.renew() is None, "the next run was not asked"


@pytest.mark.parametrize("error", [RuntimeError("a mistake"), DatabaseUnavailable("gone")])
def test_a_lease_survives_whatever_its_renewal_meets(error, records, monkeypatch, caplog):
    monkeypatch.setattr(lease_module, "RENEW_S", 0.01)
    failing = Mock(wraps=records.lease.renew, side_effect=chain([error] * 3, repeat(DEFAULT)))
    monkeypatch.setattr(records.lease, "renew", failing)
    with records.lease as lease:
        until = records.get_study()["lease_until"]
        wait_until(lambda: records.get_study()["lease_until"] > until, "it was not renewed")
        assert failing.call_count > 3 and lease.thread.is_alive() and lease.why is None
    assert not lease.thread.is_alive() and records.get_study()["owner"] is None
    line = f"study study: its hold could not be renewed: {error!r}"
    assert caplog.messages == ([] if isinstance(error, DatabaseUnavailable) else [line]), "once"


@pytest.mark.parametrize("source", ["/proc/sys/kernel/random/boot_id", "/etc/machine-id"])
def test_a_clone_of_this_machine_is_another_one(source, records, other, monkeypatch):
    """It has the same host name, and the same number of the first process space."""
    text = lease_module._text
    with monkeypatch.context() as patch:
        patch.setattr(lease_module, "_text", lambda path: "of the clone" if path == source else text(path))
        other.lease.owner = dead_owner()  # of the clone's processes this machine knows nothing
    other.lease.acquire()
    assert records.ledger.list_running_studies() == ["study"] and len(other.owner) <= 128
    with pytest.raises(AlreadyExists, match=other.owner):
        records.lease.acquire()


# ---- what was asked


def test_configurations_stand_in_the_order_in_which_they_came(records, another):
    second, third = (Configuration(PRESETS[p], Recipe(lr=lr)) for p, lr in (("777p", 0.5), ("57p", 0.1)))
    for work in ([CONFIGURATION], [second, CONFIGURATION], [second, third]):
        records.claim([(c, Seed.of(10 * n + len(work)), False) for n, c in enumerate(work)])
    configurations = records.list_configurations()
    assert list(configurations.items()) == [(c.key, c) for c in (CONFIGURATION, second, third)]
    assert another.list_configurations() == {}


def test_a_proposal_is_written_once(records):
    records.create_proposal(0, CONFIGURATION, {"recipe.lr": 0.02})
    for _ in range(2):  # the same may be written again
        records.create_proposal(1, None, {"recipe.lr": 2.0})
        records.create_parents([InitialTheta(PRESETS["57p"], {ANY: (0.5,) * 57})])
    assert len(records.list_parents()) == 1
    proposals = [(p["number"], p["configuration"], p["numbers"]) for p in records.list_proposals()]
    assert proposals == [(0, CONFIGURATION.key, {"recipe.lr": 0.02}), (1, None, {"recipe.lr": 2.0})]
    unequal = Configuration(PRESETS["777p"], Recipe())
    for configuration, numbers in ((None, {"recipe.lr": 0.2}), (unequal, {"recipe.lr": 2.0})):
        with pytest.raises(AlreadyExists, match="study study: proposal 1 was just taken by another driver"):
            records.create_proposal(1, configuration, numbers)
    assert list(records.list_configurations()) == [CONFIGURATION.key], "whole or not at all"


@pytest.mark.parametrize("take", [lambda r: r.lease.acquire(), lambda r: claimed(r, SEEDS[0])])
def test_an_owner_that_can_be_none_is_damage(take, records, other):
    take(other)
    with records.database.begin() as db:
        for table in (ROWS, STUDIES):
            db.execute(sa.update(table).values(owner="nobody"))
    with pytest.raises(Failure, match="damaged, a lease"):
        take(records)


def test_a_deleted_study_leaves_nothing_and_no_other_changes(records, another):
    for each in (records, another):
        claimed(each, SEEDS[0])
        each.lease.acquire()
        each.create_proposal(0, CONFIGURATION, {})
    records.delete_study()
    ledger = records.ledger
    assert not records.list_seeds() and another.list_seeds() and ledger.list_studies() == ["another"]
    assert records.get_study() is None and another.get_study()
    assert not records.list_configurations() and not records.list_proposals()
    assert another.list_configurations() and another.list_proposals()


# ---- a database that is away


def test_a_transaction_is_tried_again_for_so_long_and_said_once(records, monkeypatch, caplog):
    away_twice = Mock(side_effect=[*[DatabaseUnavailable("gone")] * 3, records.database.begin()])
    monkeypatch.setattr(records.database, "begin", away_twice)
    monkeypatch.setattr(database_module, "RETRY_S", 0.01)
    with pytest.raises(DatabaseUnavailable):
        records.list_seeds()
    records.database.patience_s = 5.0
    assert records.list_seeds() == [] and away_twice.call_count == 4
    assert caplog.messages == ["gone; waiting for it, for up to 5 s", "what was waited for is back"]
    records.database.patience_s = 0.05
    monkeypatch.setattr(records.database, "begin", Mock(side_effect=DatabaseUnavailable("gone")))
    start = time.monotonic()
    with pytest.raises(DatabaseUnavailable):
        records.list_seeds()
    assert 0.05 < time.monotonic() - start < 5


def test_a_database_that_gives_no_connection_is_away(records):
    url = records.home.ledger_url
    records.database.engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    with records.database.begin(), pytest.raises(DatabaseUnavailable, match="QueuePool limit"):
        records.lease.renew()


def test_a_strangers_stages_name_their_seed(records):
    claimed(records, *SEEDS)
    with records.database.begin() as db:
        db.execute(sa.update(ROWS).values(stages="x"))
    with pytest.raises(Failure, match="stages of seed "):
        records.list_seeds()
