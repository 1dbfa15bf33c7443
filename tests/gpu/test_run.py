"""A real run on a stand-in of a GPU leaves nothing of the MPS that it started."""

import os
import signal
from pathlib import Path

import pytest

from tests.gpu.standin import standin_folder, standin_mps
from tests.reference import LONG, QUICK, running_study, wait_for_progress

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]


def pipes_of(pid):
    try:
        told = (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return set()
    return {line.partition(b"=")[2].decode() for line in told if line.startswith(b"CUDA_MPS_PIPE_DIRECTORY=")}


@pytest.mark.parametrize("interrupted", [True, False])
def test_workers_share_a_gpu_by_the_runs_own_mps(interrupted, temporary, tmp_path):
    libraries, calls = standin_folder(tmp_path / "cuda"), standin_mps(tmp_path / "bin")
    environment = {"TMPDIR": temporary, "RAY_TMPDIR": temporary, "ADDER_SEARCH_CUDA": libraries}
    environment["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    study = (LONG if interrupted else QUICK) | {"resources": QUICK["resources"] | {"gpu": 0.5}}
    with running_study(study, tmp_path, environment=environment) as command:
        wait_for_progress(command, tmp_path / "home")
        seen = set().union(*map(pipes_of, command.descendants()))
        if interrupted:
            command.process.send_signal(signal.SIGINT)
        said = command.wait()
        assert said.code == (130 if interrupted else 0), said
        assert command.gone() and list(temporary.rglob("*")) == []
    (pipes,) = seen
    assert Path(pipes).name == "mps" and Path(pipes).parents[1] == temporary
    assert "gpu: 0.5: 2 banks side by side on a GPU, by an MPS of this run" in said.err.splitlines()
    assert calls.read_text().splitlines() == ["start", "quit -t 5"]
