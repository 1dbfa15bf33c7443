"""The real command with real Ray, Optuna and MLflow, as a stranger meets it: one run to its end, one that is
interrupted and killed. What needs no Ray of its own is in test_driver.py.
"""

import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from search.study.file import load_study
from search.tracking.tracking import KEY_TAG
from tests.commands import adder_search, call, running
from tests.reference import QUICK, check_whole, client_of, expected, rows_of, wait_for_progress, write_study

pytestmark = pytest.mark.end_to_end

SMOKE = load_study("smoke").model_dump(mode="json", by_alias=True)
SMALL = QUICK | {
    "name": "small",
    "recipe": QUICK["recipe"] | {"steps": 200},
    "seeds": {"first": 5, "count": 2},
}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """`adder-search run smoke` in its own processes, from a folder of things that must not be taken for ours.

    A namespace: folder, home, what the command said, and the file that a decoy makes when it is imported.
    """
    folder = tmp_path_factory.mktemp("smoke")
    marker = folder / "a-decoy-was-imported"
    decoy = f"open({str(marker)!r}, 'w').close()\nprint('decoy')\nraise RuntimeError('decoy')\n"
    for name in ("model/__init__.py", "search.py", "trainer/__init__.py", "studies/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(decoy)
    said = adder_search("run", "smoke", cwd=folder)
    return SimpleNamespace(folder=folder, home=folder / "adder-runs", said=said, marker=marker)


def runs_of(home, study):
    client = client_of(home)
    found = client.search_runs([client.get_experiment_by_name(study).experiment_id])
    return [r for r in found if KEY_TAG in r.data.tags]


def is_plain(said):
    """No traceback, no escape sequences, no line that is drawn again and again."""
    return not any(sign in said.out + said.err for sign in ("Traceback", "\x1b", "\r"))


# ---- a finished run


def test_a_run_says_what_came_of_it_and_what_to_type_next(smoke):
    assert smoke.said.code == 0, smoke.said
    assert is_plain(smoke.said)
    assert smoke.said.err == ""
    assert "smoke: 0 of 4 grokked: 0.0% (95 % interval 0.0% to 52.7%)" in smoke.said.out.splitlines()
    for command in ("report smoke -o smoke.html", "ui"):
        assert f"  adder-search {command}" in smoke.said.out.splitlines()
    assert "pull smoke" not in smoke.said.out, "nothing grokked"


def test_nothing_is_imported_from_the_folder_that_the_command_is_called_in(smoke):
    assert not smoke.marker.exists()
    assert "decoy" not in smoke.said.out + smoke.said.err


def test_records_are_those_of_training_without_ray(smoke, tmp_path):
    """To the bit, and each once: ledger, artifacts, MLflow's runs."""
    check_whole(smoke.home, SMOKE, tmp_path, expected(SMOKE))


# ---- interruption


@pytest.mark.full
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_interrupted_and_killed_a_study_ends_as_if_nothing_had_happened(tmp_path, no_ray):
    """Ctrl-C, then SIGKILL; the third run, which ends it, trains in this process and gets the same bits."""
    home = tmp_path / "home"
    client_of(home)  # its tables, which take a process of its own seconds
    words = ("run", write_study(tmp_path, SMALL), "--home", str(home))

    with running(*words, cwd=tmp_path) as command:
        wait_for_progress(command, home)
        told = time.monotonic()
        os.kill(command.process.pid, signal.SIGINT)
        said = command.wait()
        assert time.monotonic() - told < 60
        assert said.code == 130, said
        assert is_plain(said), said
        assert "To go on:\n  adder-search run" in said.out
        assert command.gone(60), command.descendants()
    rows = rows_of(home, "small")
    assert rows
    assert {(r["outcome"], r["reason"], r["owner"]) for r in rows} == {("censored", "interrupted", None)}
    assert [r.info.status for r in runs_of(home, "small")] == ["KILLED"]

    with running(*words, cwd=tmp_path) as command:
        wait_for_progress(command, home)
        os.kill(command.process.pid, signal.SIGKILL)
        assert command.wait(20).code == -signal.SIGKILL
        assert command.gone(60, killed=True), command.workers()
    assert "running" in {r["outcome"] for r in rows_of(home, "small")}

    assert call(*words).exit_code == 0
    check_whole(home, SMALL, tmp_path, expected(SMALL))
