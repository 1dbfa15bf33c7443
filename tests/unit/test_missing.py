"""Homes of which a part is missing, as where a disk is not mounted, or that cannot be written: commands that read make
nothing in its place, and say in one line what is not there.
"""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import call, fails_with_one
from tests.homes import STUDY, forget_places, two_studies

OF_CURVES = (
    ("pull", "sweep", "-o", "best"),
    ("records", "sweep", "--of", "curves", "-o", "curves.csv"),
    pytest.param(("report", "sweep", "-o", "page.html"), marks=pytest.mark.full),
)
OF_ROWS = (
    ("records", "sweep", "--of", "seeds", "-o", "seeds.csv"),
    ("status", "sweep"),
    ("best",),
    pytest.param(("table", "sweep"), marks=pytest.mark.full),
)
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


@pytest.mark.parametrize("words", OF_CURVES)
@pytest.mark.parametrize("part", ["mlflow.db", "artifacts"])
def test_nothing_is_made_where_a_part_of_the_home_was(words, part, home):
    with taken_away(home / part):
        assert fails_with_one(1, *words, "--home", "runs").startswith(f"{home / part}: {LOST}")


@pytest.mark.parametrize("words", OF_CURVES)
def test_nor_where_the_environment_names_a_store_that_is_not_there(words, home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/other.db")
    assert fails_with_one(1, *words, "--home", "runs").startswith(f"{home}/other.db: {LOST}")


@pytest.mark.parametrize("words", OF_ROWS)
def test_what_the_ledger_says_needs_no_store(words, home):
    with taken_away(home / "mlflow.db"):
        call(*words, "--home", "runs")


@pytest.mark.parametrize("words", [*OF_CURVES, *OF_ROWS])
def test_no_ledger_is_made_where_one_was(words, home):
    with taken_away(home / "ledger.db"):
        result = call(*words, "--home", "runs")
    assert f"{home / 'ledger.db'}: {LOST}" in result.output


def test_the_ui_opens_no_new_store(home):
    with taken_away(home / "mlflow.db"):
        assert fails_with_one(1, "ui", "--no-browser", "--home", "runs").startswith(f"{home / 'mlflow.db'}: {LOST}")


def test_a_run_makes_no_second_store_beside_its_records(home, no_ray):
    Path("sweep.yaml").write_text(STUDY)
    with taken_away(home / "mlflow.db"):
        result = call("run", "sweep.yaml", "--home", "runs")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"error: {home / 'mlflow.db'}: {LOST}")


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


@pytest.mark.parametrize("words", [*OF_CURVES, *OF_ROWS])
def test_a_home_that_cannot_be_written_is_read_where_it_was_taken_to(words, home):
    """MLflow's store has absolute paths in it."""
    home.rename(moved := home.with_name("moved"))
    forget_places()
    try:
        with read_only(moved):
            assert call(*words, "--home", "moved").exit_code in (0, 2), "2: nothing to be put into a table"
    finally:
        moved.rename(home)


@pytest.mark.full
def test_a_verification_that_cannot_be_recorded_says_so_and_goes_on(home):
    call("pull", "sweep", "-o", "verified", "--home", "runs")
    with read_only(home):
        result = call("verify", "verified", "--home", "runs")
    assert result.stderr.startswith("this call could not be recorded: ") and result.stderr.count("\n") == 1
    assert "/10010" in result.stdout
