"""A stored home (tests/golden/data/home.txz) has the tables of today, and stored searches are planned on; how homes
are gone on with: tests/scenarios/test_recorded_home.py. The database under the ledger: other schemas, servers, and what
is away.
"""

import json
import lzma
import os
import re
import sqlite3
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

import search
from model import preset
from search.errors import UserError
from search.run.driver import plan
from search.run.packing import Capacity
from search.store import database
from search.store.database import CONFIGURATIONS, Database, DatabaseUnavailable
from search.store.home import Home
from search.store.ledger import Ledger
from search.study.file import recorded_study
from search.study.trial import Configuration
from tests import needs_plugins
from tests.commands import done, fails_with_one, refusal
from tests.homes import Recorder, records_of, snapshot, study_of, work_of
from tests.planners import taken
from tests.processes import LOOPBACK
from tests.services import postgres
from trainer import Recipe

STORED = Path(__file__).parents[1] / "golden" / "data" / "home.txz"
SEARCHES = STORED.with_name("searches.sql.xz")


def tables(engine):
    """Columns of the ledger's tables, with the types of their values."""
    inspector = sa.inspect(engine)
    return {
        name: {c["name"]: c["type"].python_type for c in inspector.get_columns(name)}
        for name in sorted(inspector.get_table_names())
    }


def test_a_stored_home_has_the_tables_of_a_new_one(home):
    """Columns of `SeedRecord` and a ledger's name are added to a home by themselves; other tables need a new schema."""
    with tarfile.open(STORED) as archive:
        archive.extractall(home.path / "stored", filter="data")
    stored = [Database(Home(home.path / "stored")) for _ in range(2)]
    assert tables(stored[0].engine) == tables(Database(home).engine)
    assert stored[0].identity == stored[1].identity != ""
    with pytest.raises(sa.exc.IntegrityError), stored[0].begin() as db:  # of two drivers at once the second is refused
        db.execute(sa.insert(database.IDENTITY).values(number=1, identity="another"))


@needs_plugins
@pytest.mark.parametrize("name", ["search", "search-2"])
def test_a_stored_search_is_planned_on(name, home):
    """A ledger of two interrupted searches, of 2026-11-24 and 2026-11-26."""
    with closing(sqlite3.connect(home.ledger_db)) as db, lzma.open(SEARCHES, "rt") as dump:
        db.executescript(dump.read())
    assert "; 4 recorded, 4 to train" in done("run", name, "--dry-run", "--home", home.path)
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


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["records.db", "ledger.db"])
@pytest.mark.parametrize("words", [["status"], ["run", "smoke"], ["best"]])
def test_an_earlier_schema_is_refused_and_left_as_it_is(words, name, home):
    """In the file of today, or in that of the first versions. A newer one: test_cli.py."""
    ledger = home.path / name
    with closing(sqlite3.connect(ledger)) as db, db:
        db.execute("CREATE TABLE ledger_version (schema INTEGER)")
        db.execute(f"INSERT INTO ledger_version VALUES ({database.SCHEMA - 1})")
    before = snapshot(home.path)
    said = fails_with_one(2, *words, "--home", home.path)
    assert said == (
        f"{ledger}: written by an earlier version of adder-search; read it with that version, and choose another home "
        "for this one (--home)"
    )
    assert snapshot(home.path) == before


@pytest.mark.usefixtures("here", "quick")
def test_a_field_that_no_recipe_has_is_one_line(home):
    """As in records that were converted from those of an earlier version."""
    recorder = Recorder(home, study_of())
    recorder.seeds((1,))
    recorder.done()
    recipe = recorder.configuration.recipe.as_dict()
    with records_of(home).database.begin() as db:
        db.execute(sa.update(CONFIGURATIONS).values(recipe=recipe | {"jiggle_every": 0}))
    said = fails_with_one(1, "best", "--home", home.path)
    assert said == (
        f"{home.ledger_db}: damaged, a configuration: jiggle_every: this version's recipes have no such field"
    )


EARLIER = {
    "recycle_every does not go with ramp": {"ramp": 100, "recycle_every": 1_000, "recycle_unless": [["token", 1]]},
    "recycle_until must not be before recycle_from, got 3000 and 4000": {
        "recycle_every": 1_000, "recycle_until": 3_000, "recycle_unless": [["token", 1]],
    },
    "wd_schedule=cyclical takes at most 15,900 cycles, got steps=20000 and wd_period=1": {
        "wd_schedule": "cyclical", "wd_period": 1, "steps": 20_000,
    },
    "stages must have one eval_every, got [500, 1000]": {
        "stages": [{"name": "whole", "model": "57p", "recipe": {"eval_every": 500}}],
    },
    "stages[1]: rope with these constraints has heads, and no 'units'": {
        "stages": [
            {"name": "wide", "model": {"preset": "36p", "ffn": 4}},
            {"name": "two", "keep": {"units": 2}, "recipe": {"ramp": 100}},
        ],
    },
}  # fmt: skip


@pytest.mark.usefixtures("here", "quick")
@pytest.mark.parametrize("line", EARLIER)
def test_what_only_an_earlier_version_trained_is_read_and_not_trained(line, home):
    recipe = {"steps": 3_000} | EARLIER[line]
    configuration = Configuration(preset("57p"), Recipe(**recipe))
    recorder = Recorder(home, study_of())
    recorder.seeds((1,), configuration, shown=False)
    recorder.done()
    rows = search.records("sweep", "configurations", home=home.path)
    assert list(rows["configuration"]) == [configuration.key]
    study = {"name": "other", "model": "57p", "recipe": recipe, "seeds": [1]}
    assert refusal(UserError, search.run, study, home=home.path) == f"other: recipe: {line}"


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
