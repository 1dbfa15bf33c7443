"""Homes that others made are data: what is wrong with them is one line, and nothing is written outside."""

from __future__ import annotations

import io
import tarfile

import pytest
import sqlalchemy as sa
import torch
from safetensors.torch import save_file

from search.home import Home
from search.ledger import ROWS, STUDIES, Ledger
from tests.commands import call, fails_with_one
from tests.homes import quick, recorded, study_of, thetas
from tests.test_merge import change, merged, refused

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("here", "quick")


@pytest.mark.parametrize("name", ["../../x", "/etc", "", ".hidden", "a/b", "Default", "x" * 65, "a\nb"])
def test_a_name_that_is_none_is_refused(name):
    recorded("a", (1,))
    change("a", ROWS, study=name)
    change("a", STUDIES, study=name)
    assert "is no name of a study" in refused("a", into="empty")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("init_seed", "'x'"), ("init_seed", "-1"), ("outcome", "'won'"), ("steps", "1.5"), ("trial", "x'00'"),
        ("environment", "'{'"), ("verify_calls", "'many'"),
    ],
)  # fmt: skip
def test_rows_that_no_ledger_writes_are_refused(column, value):
    recorded("a", (1,))
    with Ledger(Home("a")).database.engine.begin() as db:
        db.execute(sa.text(f"UPDATE ledger SET {column} = {value}"))
    assert refused("a", into="empty").count("error: ") == 1


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + b"\x00" * 4_000])
@pytest.mark.parametrize("name", ["optuna.db", "mlflow.db"])
def test_databases_that_are_none_are_refused(name, content, here):
    recorded("a", (1,))
    (here / "a" / name).write_bytes(content)
    said = call("merge", "a", "--home", "joined")
    empty_ledger = (name, content) == ("optuna.db", b"")
    assert said.exit_code in ((0,) if empty_ledger else (1, 2)) and said.stderr.count("error: ") == (
        not empty_ledger
    )
    assert not (here / "joined").exists()


@pytest.mark.parametrize("key", ["../../../x", "", "0123456789AB", "0123456789ab/.."])
def test_a_trials_key_that_is_none_is_refused(key):
    recorded("a", (1,))
    change("a", ROWS, trial=key)
    assert "is no trial's key" in refused("a", into="empty")


@pytest.mark.parametrize("definition", [{"name": "sweep"}, [], "x", {"name": "other"}, 3])
def test_a_definition_that_is_none_is_refused(definition):
    recorded("a", (1,))
    if isinstance(definition, dict):
        definition = study_of().model_dump(mode="json", by_alias=True) | definition | {"seeds": "none"}
    change("a", STUDIES, definition=definition)
    assert "definition" in refused("a", into="empty")
    assert "study sweep as it was recorded: " in fails_with_one(2, "run", "sweep", "--home", "a")


def test_a_definition_of_another_study_is_refused():
    recorded("a", (1,))
    other = study_of().model_dump(mode="json", by_alias=True) | {"name": "other"}
    change("a", STUDIES, definition=other)
    assert "its definition is that of 'other'" in refused("a", into="empty")


@pytest.mark.parametrize("name", ["theta.safetensors", "curves.parquet", "results.json", "trial.json"])
@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 40])
def test_artifacts_that_cannot_be_read_are_refused(name, content, here):
    recorded("a", (1,))
    (found,) = (here / "a" / "artifacts").rglob(f"trials/*/{name}")
    found.write_bytes(content)
    assert refused("a", into="empty", code=1).count("error: ") == 1


def test_the_theta_of_another_model_is_refused(here):
    recorded("a", (1,))
    (found,) = (here / "a" / "artifacts").rglob("trials/*/theta.safetensors")
    save_file({"theta": torch.zeros(1, 58)}, found)
    assert "its θ is not that of 57p" in refused("a", into="empty", code=1)


def test_a_packed_home_stays_in_its_folder(here):
    recorded("a", (1, 2))
    with tarfile.open("a.tar.gz", "w:gz") as packed:
        packed.add("a", arcname="sweep")
    merged("a.tar.gz")
    assert thetas("joined") == thetas("a")
    for name, kind in (
        ("../outside", tarfile.REGTYPE),
        ("/tmp/outside", tarfile.REGTYPE),
        ("l", tarfile.SYMTYPE),
    ):
        with tarfile.open("bad.tar.gz", "w:gz") as packed:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc" if kind == tarfile.SYMTYPE else "", 0
            packed.addfile(member, io.BytesIO(b""))
        said = call("merge", "bad.tar.gz", "--home", "joined")
        assert said.exit_code == 2 and not (here / "outside").exists()
    (here / "cut.tar.gz").write_bytes((here / "a.tar.gz").read_bytes()[:2_000])
    assert "no packed one" in call("merge", "cut.tar.gz", "--home", "joined").stderr
