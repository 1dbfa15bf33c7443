"""What `--detach` leaves for the process that it starts is read whatever a user's file may have at most."""

import subprocess
from pathlib import Path

import pytest

from search.cli import run as command
from search.run.source import read_study
from search.store.home import Home
from search.study import reading, spelling
from search.study.file import load_study
from tests.commands import call, done
from tests.homes import two_studies

LISTED = "name: many\nmodel: 57p\nrecipe: {steps: 40000}\nseeds: [1]\nconfigurations:\n"
ENTRY = "  - {{recipe: {{lr: {lr}, warmup: 100, hold: 2}}}}\n"


class Started:
    """A process that ends at once, well."""

    pid = 1

    def poll(self):
        return 0


@pytest.fixture
def words(here, monkeypatch):
    """The words of the command that is started."""
    started: list[str] = []
    monkeypatch.setattr(command, "POLL_S", 0.0)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(
        subprocess, "Popen", lambda given, **options: started.extend(given[given.index("run") :]) or Started()
    )
    return started


def detached(words, count):
    """Detach a study of so many configurations; return its plan, and the plan by the file that it leaves."""
    text = LISTED + "".join(ENTRY.format(lr=0.001 + n / 1e6) for n in range(count))
    Path("many.yaml").write_text(text)
    plan = done("run", "many.yaml", "--dry-run", "--home", two_studies())
    assert "after the last step" in plan
    assert call("run", "many.yaml", "--detach", "--home", "runs").exit_code == 0
    assert load_study("many.yaml") == read_study(words[1], Home("runs"), pytest.fail)
    return plan, done(*words, "--dry-run")


def test_what_a_user_may_write_is_detached(words, monkeypatch):
    monkeypatch.setattr(reading, "MOST_VALUES", 50)  # the file has 38, and what is left of it several hundred
    plan, left = detached(words, 3)
    assert left == plan
    reread = call("run", words[1], "--dry-run", "--home", "elsewhere")
    assert "more than 50 keys and values" in reread.stderr, "as a file of the user's it is too large"


@pytest.mark.full
def test_as_many_configurations_as_a_study_may_have(words):
    plan, left = detached(words, 2_000)
    assert left == plan and "2000" in plan
    assert Path(words[1]).stat().st_size > spelling.LARGEST_FILE / 4
