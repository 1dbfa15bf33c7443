"""Names that would lead to other folders, and text that would be code, are refused or stay text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from benchmarks.startup import record
from model import PRESETS
from search.cli import ui
from search.store.home import Home
from search.store.ledger import Ledger
from search.tracking.tracking import connect
from tests.commands import fails_with_one
from trainer.checkpoints.checkpoint import Checkpoint

SMALL = {
    "name": "small",
    "model": "57p",
    "recipe": {"steps": 20, "batch": 8, "eval_every": 20},
    "seeds": [1],
    "resources": {"gpu": 0, "compiled": False},
}


# ---- names that become paths

EVIL = "../../x"


@pytest.mark.parametrize("command", ["run", "resume", "stop", "status", "pull", "best", "report", "delete"])
def test_a_study_that_is_a_path_is_refused(command, here):
    Home("home").create()
    Ledger(Home("home"))
    more = {"report": ("-o", "report.html")}.get(command, ())
    assert EVIL in fails_with_one(2, command, EVIL, *more, "--home", "home")


@pytest.mark.parametrize("name", [EVIL, "$(touch made)", "<script>", "\x1b[31m"])
def test_an_experiment_that_is_no_study_is_not_listed(name, home, capsys):
    """Any program can make one in MLflow's store, by any name."""
    client = connect(home, f"sqlite:///{home.mlflow_db}")
    for each in (name, "honest"):
        client.create_experiment(each)
    ui.show_studies(client, "http://127.0.0.1:5000", no_browser=True)
    assert [line.strip() for line in capsys.readouterr().out.splitlines() if "http" not in line] == ["honest"]


@pytest.mark.parametrize("key", [EVIL, "..", "%", "' or 1=1 --"])
def test_a_configuration_that_is_a_path_is_none(key, here):
    study = record(Home("home"), 10)
    line = fails_with_one(2, "pull", study, "--configuration", key, "--home", "home")
    assert line.startswith(f"study 'startup' has no configuration {key!r}; ")


@pytest.mark.parametrize("name", ["..", "a/b", "x" * 65, "ä", "x\n", "-x"])
def test_no_file_gives_a_study_such_a_name(name, here):
    Path("own.yaml").write_text(yaml.safe_dump(SMALL | {"name": name}))
    line = fails_with_one(2, "run", "own.yaml")
    assert line.startswith("own.yaml: name: "), line


# ---- text that would be code


def test_what_a_checkpoint_says_reaches_the_terminal_as_text(here):
    """No escape sequences and no second line, whatever names a checkpoint has."""
    spec = PRESETS["57p"]
    Checkpoint(spec, spec.initial(3)).save(Path("hostile"))
    file = Path("hostile/checkpoint.json")
    about = json.loads(file.read_text())
    for change in (
        {"seed": {"a\nb\x1b[31m": "x"}},
        {"spec": about["spec"] | {"a\nb\x1b[31m": 1}},
        {"code": ["\x1b[31m"]},
        {"spec": about["spec"] | {"family": "\x1b[31m"}},
    ):
        file.write_text(json.dumps(about | change))
        assert fails_with_one(2, "verify", "hostile").isprintable()
