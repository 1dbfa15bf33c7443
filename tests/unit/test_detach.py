"""What `--detach` leaves for the process that it starts is read whatever a user's file may have at most."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from search.cli import run as command
from search.run.source import read_study
from search.store.home import Home
from search.study import reading, spelling
from search.study.file import load_study
from search.study.written import UNCHANGED
from tests.commands import call, done
from tests.homes import two_studies

LISTED = "name: many\nmodel: 57p\nrecipe: {steps: 40000}\nseeds: [1]\nconfigurations:\n"
ENTRY = "  - {{recipe: {{lr: {lr}, warmup: 100, hold: 2}}}}\n"


@pytest.fixture
def words(here, monkeypatch):
    """The words of the command that is started."""
    started, process = [], SimpleNamespace(pid=1, poll=lambda: 0)  # it ends at once, well
    monkeypatch.setattr(command, "POLL_S", 0.0)
    monkeypatch.setattr(
        subprocess, "Popen", lambda given, **options: started.extend(given[given.index("run") :]) or process
    )
    return started


def detached(words, count):
    """Detach a study of so many configurations; return its plan, which is that by the file that it leaves."""
    text = LISTED + "".join(ENTRY.format(lr=0.001 + n / 1e6) for n in range(count))
    Path("many.yaml").write_text(text)
    plan = done("run", "many.yaml", "--dry-run", "--home", two_studies())
    assert "after the last step" in plan
    done("run", "many.yaml", "--detach", "--home", "runs")
    assert load_study("many.yaml") == read_study(words[1], Home("runs"), pytest.fail, UNCHANGED)
    assert done(*words, "--dry-run") == plan
    return plan


def test_what_a_user_may_write_is_detached(words, monkeypatch):
    monkeypatch.setattr(reading, "MOST_VALUES", 50)  # the file has 38, and what is left of it several hundred
    detached(words, 3)
    reread = call("run", words[1], "--dry-run", "--home", "elsewhere")
    assert "more than 50 keys and values" in reread.stderr, "as a file of the user's it is too large"


@pytest.mark.full
def test_as_many_configurations_as_a_study_may_have(words):
    assert "2000" in detached(words, 2_000)
    assert Path(words[1]).stat().st_size > spelling.LARGEST_FILE / 4
