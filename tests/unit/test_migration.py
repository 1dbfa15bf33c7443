"""A home that schema 6 wrote (tests/golden/data/home-6.txz): converted, read and gone on with; and the database under
the ledger: other schemas, servers, and what is away.
"""

import json
import lzma
import os
import re
import shutil
import sqlite3
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from search.analysis import frames
from search.errors import Failure, UserError
from search.run import conversion
from search.run.conversion import TRIALS, convert
from search.run.driver import plan
from search.run.packing import Capacity
from search.store import database
from search.store.database import Database, DatabaseUnavailable
from search.store.home import Home
from search.store.ledger import Ledger
from search.study.file import recorded_study
from tests import needs_plugins
from tests.commands import call, done, fails_with_one
from tests.homes import drive, records_of, snapshot, study_of, thetas, work_of
from tests.planners import taken
from tests.processes import LOOPBACK
from tests.services import postgres
from trainer import Outcome

STORED = Path(__file__).parents[1] / "golden" / "data" / "home-6.txz"
SEARCHES = STORED.with_name("searches-6.sql.xz")


@pytest.fixture
def earlier(tmp_path):
    """The home as it was written."""
    with tarfile.open(STORED) as archive:
        archive.extractall(tmp_path / "stored", filter="data")
    return Home(tmp_path / "stored")


@pytest.fixture
def stored(earlier):
    """The home, converted."""
    convert(earlier)
    return earlier


def tables(engine):
    """Columns of the ledger's tables, with the types of their values."""
    inspector = sa.inspect(engine)
    return {
        name: {c["name"]: c["type"].python_type for c in inspector.get_columns(name)}
        for name in sorted(inspector.get_table_names())
    }


def outcomes(home):
    return {row["init_seed"]: row["outcome"] for row in records_of(home).list_seeds()}


def test_a_stored_home_has_the_tables_of_a_new_one(stored, home):
    """Only columns of `SeedRecord` are added to a home by themselves; another table needs a conversion."""
    assert tables(Database(stored).engine) == tables(Database(home).engine)


@pytest.mark.usefixtures("quick")
def test_a_stored_home_is_read_and_its_study_goes_on(stored):
    assert outcomes(stored) == {
        1: Outcome.FAILED, 2: Outcome.GROKKED, 3: Outcome.CENSORED, 4: Outcome.CENSORED
    }  # fmt: skip
    drive(stored, study_of(), grokked=(3,))
    assert [outcomes(stored)[n] for n in (3, 4)] == [Outcome.GROKKED, Outcome.FAILED]


def thetas_of_parts(home):
    """θ of every seed of `sweep` that MLflow's artifacts have, by configuration and seed. Another study has one."""
    found = {}
    for file in (home.artifacts / "sweep").rglob(f"{TRIALS}/*/{conversion.FACTS}"):
        (key,) = {seed["configuration"] for seed in json.loads(file.read_bytes())["seeds"]}
        found |= {(key, seed): part[0].tolist() for seed, part in conversion._read(file.parent, key).items()}
    return found


def test_a_home_is_converted_beside_what_was_there(earlier, here):
    before = snapshot(earlier.path)
    line = fails_with_one(2, "status", "--home", earlier.path)
    assert line.startswith(f"{earlier.path}/ledger.db: written by an earlier version of adder-search; ")
    assert f"; adder-search convert --home {os.path.relpath(earlier.path)} makes" in line
    assert fails_with_one(2, "run", "sweep", "--home", earlier.path) == line, "nor is a second one begun beside it"
    wanted = thetas_of_parts(earlier)
    assert done("convert", "--home", earlier.path) == f"{earlier.ledger_db}: 3 seeds with θ and curve\n"
    assert len(wanted) == 2 and thetas(earlier.path) == wanted
    after = snapshot(earlier.path)
    assert {Path("records.db"), Path("records.lock")} == after.keys() - before.keys()
    assert {name: after[name] for name in before} == before
    assert "is there already" in fails_with_one(2, "convert", "--home", earlier.path)
    assert "nothing has run yet" in fails_with_one(2, "convert", "--home", "nowhere")


def test_keys_that_are_gone_are_left_out_where_they_were_off():
    now = {"stop": {"screen": [{"at": 5}]}, "seeds": [1], "space": {"recipe.lr": {"float": [0.1, 0.2]}}}
    gone = {"stop": {"screen": [{"at": 5, "best": None}], "group": 16}, "stages": []}
    assert conversion.as_now(now | gone | {"space": {"recipe.lr": now["space"]["recipe.lr"] | {"when": {}}}}) == now
    assert conversion.as_now({"start": {"best": 1, "model": "57p"}}) == {"start": {"best": 1, "model": "57p"}}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_conversion_that_is_cut_off_is_gone_on_with(at, earlier, monkeypatch):
    """Before its first part, after that, and before it is put in its place."""
    wanted, inserted, insert = thetas_of_parts(earlier), [], conversion._insert

    def dying(*given):
        inserted.append(given[-1])
        if len(inserted) == at:
            raise KeyboardInterrupt
        insert(*given)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(conversion, "_insert", dying)
        patch.setattr(conversion, "_finish", Mock(side_effect=KeyboardInterrupt))
        convert(earlier)
    assert not earlier.ledger_db.exists()
    assert convert(earlier) == (3, 0) and thetas(earlier.path) == wanted
    assert not list(earlier.path.glob("*.new"))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["lost", "damaged", "too large"])
def test_a_part_that_is_lost_or_damaged_is_trained_again(how, earlier, here, monkeypatch):
    wanted = thetas_of_parts(earlier)
    monkeypatch.setattr(frames, "MOST_MEMORY", 1_000 if how == "too large" else frames.MOST_MEMORY)
    for path in earlier.artifacts.rglob(f"{TRIALS}/*/{conversion.FACTS}"):
        if how == "lost":
            shutil.rmtree(path.parent)
        if how == "damaged":
            path.write_bytes(path.read_bytes()[:-9])
    said = done("convert", "--home", earlier.path)
    assert said.endswith("0 seeds with θ and curve; the results of 3 are lost, and `run` trains them again\n")
    drive(earlier, study_of(), grokked=(2,))
    assert wanted.keys() <= thetas(earlier.path).keys() and len(thetas(earlier.path)) == 4


def test_a_study_that_runs_is_not_converted_under_its_driver(earlier):
    with closing(sqlite3.connect(earlier.earlier_ledger)) as db, db:
        db.execute("UPDATE ledger_studies SET owner = 'host/1/a', lease_until = 9e12 WHERE study = 'sweep'")
    with pytest.raises(Failure, match="study sweep is being run; stop it first"):
        convert(earlier)
    assert not earlier.ledger_db.exists()


@pytest.mark.full
def test_a_server_is_converted_where_it_is(earlier, monkeypatch):
    wanted, source = thetas_of_parts(earlier), sa.create_engine(f"sqlite:///{earlier.earlier_ledger}")
    (metadata := sa.MetaData()).reflect(source)
    with postgres() as server:
        monkeypatch.setenv("ADDER_SEARCH_DATABASE", server.url("optuna"))
        monkeypatch.setenv("PGPASSFILE", server.environment()["PGPASSFILE"])
        engine = sa.create_engine(earlier.ledger_url)
        metadata.create_all(engine)
        with source.connect() as read, engine.begin() as db:
            for table in metadata.sorted_tables:
                if rows := [dict(row) for row in read.execute(sa.select(table)).mappings()]:
                    db.execute(sa.insert(table), rows)
        with pytest.raises(UserError, match="adder-search convert"):
            Ledger(earlier)
        assert convert(earlier) == (3, 0) and thetas(earlier.path) == wanted


@needs_plugins
@pytest.mark.parametrize("name", ["search", "search-2"])
def test_a_stored_search_is_planned_on(name, home):
    """A ledger of two interrupted searches: by the first version with schema 6, and of 2026-11-26."""
    with closing(sqlite3.connect(home.ledger_db)) as db, lzma.open(SEARCHES, "rt") as dump:
        db.executescript(";".join([dump.read(), *conversion.STATEMENTS, "UPDATE ledger_version SET schema = 7"]))
    with Database(home).begin() as db:
        conversion.convert_definitions(db)
    shown = call("run", name, "--dry-run", "--home", home.path)
    assert shown.exit_code == 0 and "; 4 recorded, 4 to train" in shown.output, shown.output
    records = records_of(home, name)
    study = recorded_study(json.dumps(records.get_study()["definition"]), name)
    known = records.list_configurations().keys()
    planner = plan(study, records)
    planner.capacity = Capacity(2)
    pairs = [pair for worker in "abcd" for pair in taken(planner, worker)]
    planned = list(dict.fromkeys(pair.configuration.key for pair in pairs))
    assert planned[0] == "05b3a3bd263a" and planned[1] not in known
    assert len(records.list_proposals()) == 4


@pytest.mark.full
def test_a_dump_is_restored_in_another_postgresql(home, monkeypatch):
    """As docs/cluster.md has it, for the next major version."""

    def run(server, program, text=""):
        where = ["-h", LOOPBACK, "-p", str(server.port), "-U", server.USER, "optuna"]
        options = ["-v", "ON_ERROR_STOP=1", "--single-transaction", "-q"] if program == "psql" else []
        environment = os.environ | server.environment()
        command = [server.programs / program, *where, *options]
        return subprocess.run(command, input=text, env=environment, check=True, capture_output=True, text=True).stdout

    def rows(server):
        monkeypatch.setenv("ADDER_SEARCH_DATABASE", server.url("optuna"))
        monkeypatch.setenv("PGPASSFILE", server.environment()["PGPASSFILE"])
        return records_of(home)

    with postgres() as before, postgres() as after:
        records = rows(before)
        records.claim(work_of(study_of(), 1, 2))
        run(after, "psql", run(before, "pg_dump"))
        assert rows(after).list_seeds() == records.list_seeds() != []


# ---- another schema, a server


def test_an_earlier_schema_is_refused_and_left_as_it_is(home):
    """One that no conversion begins at. A newer one: test_cli.py."""
    with closing(sqlite3.connect(home.ledger_db)) as db, db:
        db.execute("CREATE TABLE ledger_version (schema INTEGER)")
        db.execute(f"INSERT INTO ledger_version VALUES ({database.SCHEMA - 2})")
    before = home.ledger_db.read_bytes()
    with pytest.raises(UserError, match=f"{home.ledger_db}: written by an earlier version of adder-search; .*--home"):
        Ledger(home)
    assert home.ledger_db.read_bytes() == before


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


def test_a_server_that_is_away_is_a_line(home, monkeypatch):
    monkeypatch.setenv("ADDER_SEARCH_DATABASE", "postgresql://me@127.0.0.1:1/db")
    monkeypatch.setattr(database, "RETRY_S", 0.0)
    with pytest.raises(DatabaseUnavailable, match=r"me@127\.0\.0\.1:1/db: .*refused"):
        Ledger(home)
