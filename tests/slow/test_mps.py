"""A real run whose workers share a GPU, a stand-in: they reach the run's own MPS, and it ends with the run."""

import os
import signal
from pathlib import Path

import pytest

from tests.commands import running
from tests.processes import short_folder
from tests.reference import QUICK, wait_for_progress, write_study
from tests.standin import standin_folder, standin_mps

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]
STUDY = QUICK | {"name": "shared", "resources": QUICK["resources"] | {"gpu": 0.5}}
LONG = STUDY | {"recipe": STUDY["recipe"] | {"steps": 100_000}}


def pipes_of(pid):
    try:
        told = (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return set()
    return {line.partition(b"=")[2].decode() for line in told if line.startswith(b"CUDA_MPS_PIPE_DIRECTORY=")}


@pytest.mark.parametrize("interrupted", [True, False])
def test_workers_share_a_gpu_by_the_runs_own_mps(interrupted, tmp_path):
    libraries, calls = standin_folder(tmp_path / "cuda"), standin_mps(tmp_path / "bin")
    with short_folder() as temporary:
        environment = {
            "TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary), "ADDER_SEARCH_CUDA": str(libraries),
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        }  # fmt: skip
        words = ("run", write_study(tmp_path, LONG if interrupted else STUDY), "--home", "home")
        with running(*words, cwd=tmp_path, environment=environment) as command:
            wait_for_progress(command, tmp_path / "home")
            seen = set[str]().union(*map(pipes_of, command.descendants()))
            if interrupted:
                command.process.send_signal(signal.SIGINT)
            said = command.wait()
            assert said.code == (130 if interrupted else 0), said
            assert command.gone() and list(temporary.rglob("*")) == []
    (pipes,) = seen
    assert Path(pipes).name == "mps" and Path(pipes).parents[1] == temporary
    assert "gpu: 0.5: 2 banks side by side on a GPU, by an MPS of this run" in said.err.splitlines()
    assert calls.read_text().splitlines() == ["start", "quit -t 5"]
