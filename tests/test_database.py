"""The database under the ledger: older and newer schemas, servers, and what is away."""

import re
import sqlite3
from contextlib import closing

import pytest

from search.errors import UserError
from search.store import database
from search.store.database import Away
from search.store.ledger import Ledger
from tests.test_ledger import SEEDS, result_of, trial_of


@pytest.fixture
def ledger(home):
    return Ledger(home)


@pytest.mark.parametrize(
    ("schema", "way_out"),
    [
        (1, "too old to migrate (schema 1, this is 4); read it with that version, and run its studies anew"),
        (5, "a newer version (schema 5, this is 4); upgrade adder-search, or choose another home"),
    ],
)
def test_another_schema_is_refused_with_the_way_out(schema, way_out, ledger, home):
    with closing(sqlite3.connect(home.records_db)) as db:
        db.execute(f"UPDATE ledger_version SET schema = {schema}")
        db.commit()
    before = home.records_db.read_bytes()
    with pytest.raises(UserError, match=re.escape(way_out)):
        Ledger(home)
    assert home.records_db.read_bytes() == before


def made_older(home, schema):
    """Turn a home's database into one that an earlier version would have left."""
    with closing(sqlite3.connect(home.records_db)) as db:
        for column in ("definition", "owner", "lease_until", "stop"):
            db.execute(f"ALTER TABLE ledger_studies DROP COLUMN {column}")
        if schema == 2:
            db.execute("ALTER TABLE ledger DROP COLUMN confirmation")
        db.execute(f"UPDATE ledger_version SET schema = {schema}")
        db.commit()


@pytest.mark.parametrize("schema", [2, 3])
def test_an_older_home_is_migrated_on_a_copy(schema, ledger, home):
    trial = trial_of(*SEEDS[:2])
    ledger.claim(trial)
    ledger.record(trial, [result_of(s) for s in SEEDS[:2]], 1.0, {})
    rows = ledger.rows()
    made_older(home, schema)
    before = home.records_db.read_bytes()
    for _ in range(2):
        assert Ledger(home).rows("study") == rows
    Ledger(home).hold("study", {}, None)
    kept = home.path / f"optuna.db.schema-{schema}"
    with closing(sqlite3.connect(kept)) as old, closing(sqlite3.connect(home.records_db)) as new:
        assert old.execute("SELECT schema FROM ledger_version").fetchone() == (schema,)
        assert new.execute("SELECT schema FROM ledger_version").fetchone() == (4,)
        assert old.execute("SELECT count(*) FROM ledger").fetchone() == (2,)
    assert len(kept.read_bytes()) == len(before)
    names = {f.name for f in home.path.glob("optuna.db*")}
    assert names - {"optuna.db.migrating"} == {"optuna.db", kept.name}


def test_a_home_that_an_older_version_runs_on_is_not_migrated(ledger, home):
    ledger.claim(trial_of(SEEDS[0]))
    made_older(home, 3)
    with pytest.raises(UserError, match=f"{ledger.owner} runs an older version on it; stop it first"):
        Ledger(home)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://me:secret@host/db", "leave the password out and name a password file with PGPASSFILE"),
        ("postgresql://me@host/db?password=secret", "leave the password out"),
        ("mysql://me@host/db", "must be postgresql+psycopg://USER@HOST/NAME"),
        ("nonsense", "not a database's URL"),
    ],
)
def test_a_database_is_named_without_its_password(url, problem, home, monkeypatch):
    monkeypatch.setenv("ADDER_SEARCH_DATABASE", url)
    with pytest.raises(UserError, match=re.escape(problem)) as said:
        Ledger(home)
    assert "secret" not in str(said.value)


def test_a_server_that_is_away_is_a_line_and_waited_for_when_asked(home, monkeypatch):
    monkeypatch.setenv("ADDER_SEARCH_DATABASE", "postgresql://me@127.0.0.1:1/db")
    with pytest.raises(Away, match=r"me@127\.0\.0\.1:1/db: .*refused"):
        Ledger(home)


def test_a_transaction_is_done_again_while_the_database_is_away(ledger, monkeypatch):
    begin, calls = ledger.database.begin, []

    def away_twice():
        calls.append(0)
        if len(calls) <= 2:
            raise Away("gone")
        return begin()

    monkeypatch.setattr(ledger.database, "begin", away_twice)
    monkeypatch.setattr(database, "RETRY_S", 0.01)
    with pytest.raises(Away):
        ledger.rows()
    ledger.database.patience_s = 5.0
    assert ledger.rows() == [] and len(calls) == 3
