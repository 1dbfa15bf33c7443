"""Homes of which a part is missing, as where a disk is not mounted, or that cannot be written: commands that read make
nothing in its place, and say in one line what is not there.
"""

import os
import subprocess
import webbrowser
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import call, done, fails_with_one
from tests.homes import STUDY, two_studies
from tests.processes import free_port
from tracking import server
from tracking import ui as ui_command

COMMANDS = (
    ("pull", "sweep", "-o", "best"),
    ("records", "sweep", "--of", "curves", "-o", "curves.csv"),
    pytest.param(("report", "sweep", "-o", "page.html"), marks=pytest.mark.full),
    ("records", "sweep", "--of", "seeds", "-o", "seeds.csv"),
    ("status", "sweep"),
    ("best",),
    pytest.param(("table", "sweep"), marks=pytest.mark.full),
)
"""The first three need curves or θ, the others rows alone."""
LOST = "is missing; is its disk mounted"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a home in it, of which each test gives back what it takes."""
    two_studies((folder := tmp_path_factory.mktemp("missing")) / "runs")
    return folder


@pytest.fixture
def home(place, here, monkeypatch):
    monkeypatch.chdir(place)
    return place / "runs"


@contextmanager
def taken_away(path):
    path.rename(aside := path.with_name(f"{path.name}.aside"))
    try:
        yield
        assert not path.exists(), "a twin was made"
    finally:
        aside.rename(path)


@pytest.mark.parametrize("words", COMMANDS)
def test_what_is_recorded_needs_no_mlflow(words, home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/other.db")
    with taken_away(home / "mlflow.db"), taken_away(home / "artifacts"):
        assert call(*words, "--home", "runs").exit_code in (0, 2), "2: nothing to be put into a table"
    assert not (home / "other.db").exists()


@pytest.mark.parametrize("words", COMMANDS)
def test_no_ledger_is_made_where_one_was(words, home):
    with taken_away(home / "records.db"):
        result = call(*words, "--home", "runs")
    assert f"{home / 'records.db'}: {LOST}" in result.output


def test_the_ui_opens_no_new_store_and_says_what_writes_one(home):
    with taken_away(home / "mlflow.db"):
        line = fails_with_one(2, "ui", "--no-browser", "--home", "runs")
    assert line == f"{home / 'mlflow.db'}: is missing; adder-search sync --home runs writes it from the ledger"


def test_a_run_begins_no_second_ledger_where_one_was(home, no_ray):
    """It would train all again."""
    Path("sweep.yaml").write_text(STUDY)
    with taken_away(home / "records.db"):
        assert fails_with_one(1, "run", "sweep.yaml", "--home", "runs").startswith(f"{home / 'records.db'}: {LOST}")


# ---- homes that cannot be written


@contextmanager
def read_only(folder):
    """Nothing can be written below a folder; root needs a file system that says so."""
    if os.geteuid():
        subprocess.run(["chmod", "-R", "a-w", folder], check=True)
    elif subprocess.run(["mount", "--bind", "-o", "ro", folder, folder], capture_output=True).returncode:
        pytest.skip("no read-only file system can be mounted here")
    try:
        with pytest.raises(OSError):
            (folder / "written").touch()
        yield
    finally:
        if os.geteuid():
            subprocess.run(["chmod", "-R", "u+w", folder], check=True)
        else:
            subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def taken_elsewhere(home):
    """A home under another name, where it cannot be written."""
    home.rename(moved := home.with_name("moved"))
    try:
        with read_only(moved):
            yield moved
    finally:
        moved.rename(home)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_home_that_cannot_be_written_is_read_where_it_was_taken_to(words, home):
    with taken_elsewhere(home):
        assert call(*words, "--home", "moved").exit_code in (0, 2), "2: nothing to be put into a table"


def test_the_ui_shows_a_home_that_cannot_be_written_and_opens_no_page_of_it(home, monkeypatch):
    """Taken elsewhere it is one line: MLflow would have to be told where its artifacts are."""
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(ui_command, "_has_display", lambda: True)
    monkeypatch.setattr(server, "serve", lambda door, home, uri, token, entered, *given: entered())
    with read_only(home):
        assert f"#/experiments shows {home} " in done("ui", "--port", free_port(), "--home", "runs")
    assert not opened
    with taken_elsewhere(home) as moved:
        line = fails_with_one(1, "ui", "--port", free_port(), "--home", "moved")
    assert line == f"{moved / 'mlflow.db'}: cannot be written, as it must be in a moved home; copy the home"


@pytest.mark.full
def test_a_verification_that_cannot_be_recorded_says_so_and_goes_on(home):
    call("pull", "sweep", "-o", "verified", "--home", "runs")
    with read_only(home):
        result = call("verify", "verified", "--home", "runs")
    assert result.stderr.startswith("this call could not be recorded: ") and result.stderr.count("\n") == 1
    assert "/10,010" in result.stdout
