"""The database under the ledger: older and newer schemas, servers, and what is away."""

import re
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa

from search.errors import UserError
from search.store import database
from search.store.database import DatabaseUnavailable
from search.store.ledger import Ledger
from search.store.record import SeedRecord


@pytest.fixture
def ledger(home):
    return Ledger(home)


@pytest.mark.parametrize(("schema", "which"), [(database.SCHEMA - 1, "an earlier"), (99, "a newer")])
def test_another_schema_is_refused_and_left_as_it_is(schema, which, home):
    with closing(sqlite3.connect(home.ledger_db)) as db:  # of a version that had other tables
        db.execute("CREATE TABLE ledger_version (schema INTEGER)")
        db.execute(f"INSERT INTO ledger_version VALUES ({schema})")
        db.commit()
    before = home.ledger_db.read_bytes()
    with pytest.raises(UserError, match=f"{home.ledger_db}: written by {which} version of adder-search; .*--home"):
        Ledger(home)
    assert home.ledger_db.read_bytes() == before


def test_a_ledger_has_its_version_and_a_record_all_its_columns(ledger):
    columns = [column.name for column in database.ROWS.columns if column.name != "reached"]  # no longer written
    assert list(SeedRecord.__annotations__) == [*columns, "proof"]
    with ledger.database.begin() as db:
        assert db.scalars(sa.text("SELECT schema FROM ledger_version")).all() == [database.SCHEMA]


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
    with pytest.raises(DatabaseUnavailable, match=r"me@127\.0\.0\.1:1/db: .*refused"):
        Ledger(home)
