"""The MPS of a run: started where workers share a GPU and none is there, and ended whatever becomes of the run."""

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from gpu import driver, mps
from search.run.packing import check_resources
from search.run.ray_session import private_session
from search.study.resources import Resources
from tests.gpu.standin import standin_mps
from tests.processes import short_folder, wait_until

BY_MPS = "gpu: 0.25: 4 banks side by side on a GPU, by an MPS of this run"
TURNS = (
    "gpu: 0.25 without MPS{}: 4 banks take turns on the GPU, at 1/4 of its speed together "
    "(nvidia-cuda-mps-control on the PATH would start it; or set gpu: 1)"
)


@pytest.fixture
def machine(libraries, tmp_path, monkeypatch):
    """A machine with a GPU and MPS. Yields how the daemon was called; none is left."""
    calls = standin_mps(tmp_path / "bin")
    monkeypatch.setenv(driver.SWITCH, str(libraries))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv(driver.MPS_PIPES, raising=False)
    monkeypatch.setattr(mps, "SYSTEM", str(tmp_path / "nothing"))
    for module, limit in ((driver, "ANSWER_S"), (mps, "START_S"), (mps, "END_S")):  # a machine can be busy
        monkeypatch.setattr(module, limit, 300.0)
    driver.gpus.cache_clear()
    yield lambda: calls.read_text().splitlines() if calls.exists() else []
    driver.gpus.cache_clear()


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def check_ended(pid):
    """The stand-in kills its daemon, which takes a moment."""
    wait_until(lambda: not is_alive(pid), "the daemon lives")


@pytest.mark.parametrize("ends_by", [None, KeyboardInterrupt])
def test_it_is_started_once_and_ended(ends_by, machine, tmp_path, caplog):
    with suppress(KeyboardInterrupt), mps.own_mps(tmp_path, 0.25) as variables:
        folder = Path(variables["CUDA_MPS_PIPE_DIRECTORY"])
        assert folder.parent == tmp_path and set(variables.values()) == {str(folder)}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        pid = (folder / "pid").read_text().strip()
        assert is_alive(pid) and machine() == ["start"]
        if ends_by:
            raise ends_by
    assert machine() == ["start", "quit -t 5"]
    check_ended(pid)
    assert [r.getMessage() for r in caplog.records] == [BY_MPS]


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("STANDIN_MPS", "No permission", " (No permission)"),
        ("STANDIN", "no context by MPS", " (cuDevicePrimaryCtxRetain failed (CUDA_ERROR))"),
    ],
)  # fmt: skip
def test_one_that_fails_is_said_and_trials_take_turns(variable, value, why, machine, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(variable, value)
    with mps.own_mps(tmp_path, 0.25) as variables:
        assert variables == {} and machine()[:2] == ["start", "quit -t 5"], "it holds no GPU"
    assert [r.getMessage() for r in caplog.records] == [TURNS.format(why)]


def test_where_it_is_not_wanted_none_is_started(machine, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)

    def is_none(share):
        with mps.own_mps(tmp_path, share) as variables:
            return variables == {} and not machine() and not caplog.records

    assert is_none(0.0) and is_none(1.0) and is_none(2.0)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "control").touch()
    monkeypatch.setenv(driver.MPS_PIPES, str(tmp_path / "theirs"))
    assert is_none(0.25), "another runs"
    monkeypatch.delenv(driver.MPS_PIPES)
    monkeypatch.setenv(driver.SWITCH, "off")
    driver.gpus.cache_clear()
    assert is_none(0.25), "there is no GPU"


def test_what_shares_of_a_gpu_cost_without_mps_is_said(machine, monkeypatch):
    assert check_resources(Resources(gpu=0.25)) is None
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert check_resources(Resources(gpu=0.25)) == TURNS.format("")
    assert check_resources(Resources(gpu=1)) is None


def test_that_of_a_killed_run_is_ended_by_the_next(machine, monkeypatch):
    with short_folder() as parent:
        monkeypatch.setenv("RAY_TMPDIR", str(parent))
        dead = parent / f"ray-{os.geteuid()}-dead"
        dead.mkdir()
        killed = mps.own_mps(dead, 0.5)
        pid = Path(killed.__enter__()["CUDA_MPS_PIPE_DIRECTORY"], "pid").read_text().strip()
        os.utime(dead, (0, 0))
        assert is_alive(pid)
        with private_session():
            assert not dead.exists()
            check_ended(pid)
