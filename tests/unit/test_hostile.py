"""Databases with values no column can have, pipes, names that are paths, text that is code: refused in one line."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from model import PRESETS
from search.cli import ui
from search.store.home import Home
from search.store.ledger import Ledger
from search.tracking.tracking import connect
from tests.commands import call, fails_with_one
from tests.homes import two_studies
from trainer import Recipe
from trainer.checkpoints.checkpoint import JSON_FILE, Checkpoint

pytestmark = pytest.mark.usefixtures("here")


def refused(*words):
    """Return the error lines of a command that must refuse its input."""
    result = call(*words)
    lines = result.stderr.splitlines()
    assert result.exit_code in (1, 2) and lines and all(line.startswith("error: ") for line in lines), lines
    assert all(line.isprintable() and len(line) < 2_000 for line in lines)
    return "\n".join(lines)


# Databases from elsewhere


DEEP = "[" * 100_000 + "]" * 100_000
STATEMENTS = {
    "steps": "UPDATE ledger SET steps = 'many'",
    "best_exact": "UPDATE ledger SET best_exact = 'all'",
    "an outcome": "UPDATE ledger SET outcome = char(27) || '[31m'",
    "an owner": "UPDATE ledger SET owner = 'me', lease_until = 9e12",
    "a trial": "UPDATE ledger SET trial = '../../x'",
    "no JSON": "UPDATE ledger_configurations SET spec = '{'",
    "a recipe": """UPDATE ledger_configurations SET recipe = '{"steps": 1000000000, "eval_every": 1}'""",
    "deep brackets": f"UPDATE ledger_configurations SET spec = '{DEEP}'",
    "no study": "UPDATE ledger_studies SET definition = '[]'",
}  # fmt: skip


@pytest.mark.parametrize("case", STATEMENTS)
def test_what_no_column_can_have(case):
    with closing(sqlite3.connect(f"{two_studies()}/ledger.db")) as db, db:
        db.execute(STATEMENTS[case])
    assert "ledger.db: " in refused("report", "sweep", "-o", "x.html", "--home", "runs")
    assert not Path("x.html").exists()


# Pipes, devices and threads


@pytest.mark.timeout(60)  # a reader of a pipe waits for ever
@pytest.mark.parametrize(
    "words",
    [["run", "pipe"], ["run", "pipe.yaml"], ["verify", "pipe"], ["import", "pipe", "-o", "x"],
     ["verify", "folder"], ["table", "pipe.parquet"], ["export", "folder", "-o", "x.py"], ["rerun", "folder"],
     ["verify", "/dev/zero"]],
    ids=" ".join,
)  # fmt: skip
def test_pipes_and_devices(words):
    Path("folder").mkdir()
    for name in ("pipe", "pipe.yaml", "pipe.parquet", f"folder/{JSON_FILE}"):
        os.mkfifo(name)
    assert refused(*words)


@pytest.mark.parametrize("threads", [10_000, 1_000])
def test_a_checkpoint_of_a_thousand_threads(threads):
    spec, environment = PRESETS["57p"], {"threads": threads, "slots": 1, "compiled": False}
    provenance = {"trained": "from scratch", "environment": environment}
    seed = {"init_seed": 3, "data_seed": 3}
    Checkpoint(spec, spec.initial(3), Recipe().as_dict(), seed, 1_000, provenance=provenance).save(Path("it"))
    assert "threads" in refused("rerun", "it")


# Names that would be paths, and text that would be code

EVIL = "../../x"


@pytest.mark.parametrize("command", ["run", "resume", "stop", "status", "pull", "best", "report", "delete"])
def test_a_study_that_is_a_path_is_refused(command, here):
    Home("home").create()
    Ledger(Home("home"))
    more = {"report": ("-o", "report.html")}.get(command, ())
    assert EVIL in fails_with_one(2, command, EVIL, *more, "--home", "home")


@pytest.mark.parametrize("name", ["..", "a/b", "x" * 65, "ä", "x\n", "-x"])
def test_no_file_gives_a_study_such_a_name(name):
    Path("own.yaml").write_text(yaml.safe_dump({"name": name, "model": "57p", "seeds": [1]}))
    assert fails_with_one(2, "run", "own.yaml").startswith("own.yaml: name: ")


@pytest.mark.parametrize("name", [EVIL, "$(touch made)", "<script>", "\x1b[31m"])
def test_an_experiment_that_is_no_study_is_not_listed(name, home, capsys):
    """Any program can make one in MLflow's store, by any name."""
    client = connect(home, f"sqlite:///{home.mlflow_db}")
    for each in (name, "honest"):
        client.create_experiment(each)
    ui.show_studies(client, "http://127.0.0.1:5000/")
    assert [line.strip() for line in capsys.readouterr().out.splitlines() if "http" not in line] == ["honest"]


@pytest.mark.parametrize("key", [EVIL, "%", "' or 1=1 --"])
def test_a_configuration_that_is_a_path_is_none(key):
    line = fails_with_one(2, "pull", "sweep", "--configuration", key, "--home", two_studies())
    assert line.startswith(f"study 'sweep' has no configuration {key!r}; ")


@pytest.mark.parametrize(
    "change",
    [{"seed": {"a\nb\x1b[31m": "x"}}, {"code": ["\x1b[31m"]}, {"spec": {"family": "\x1b[31m"}}],
    ids=str,
)
def test_what_a_checkpoint_says_reaches_the_terminal_as_text(change):
    spec = PRESETS["57p"]
    Checkpoint(spec, spec.initial(3)).save(Path("hostile"))
    file = Path("hostile", JSON_FILE)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert fails_with_one(2, "verify", "hostile").isprintable()
