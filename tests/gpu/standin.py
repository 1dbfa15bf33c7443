"""CUDA without a GPU: a folder of libraries that the engine takes for CUDA's (standin_cuda.cpp)."""

import os
import subprocess
import sys
from pathlib import Path

from gpu.machine import SOURCES
from trainer.files.installed import compiler_command


def standin_folder(folder):
    """Return a folder with libcuda.so.1 and libnvrtc.so.13, for ADDER_SEARCH_CUDA."""
    folder.mkdir(exist_ok=True)
    cuda = folder / "libcuda.so.1"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", f'-DEMULATOR="{SOURCES / "emulator.cpp"}"']
    source = Path(__file__).with_name("standin_cuda.cpp")
    subprocess.run([*compiler_command(), *options, source, "-o", cuda, "-ldl"], check=True)
    if not (nvrtc := folder / "libnvrtc.so.13").exists():
        os.link(cuda, nvrtc)
    return folder


MPS = """#!/bin/sh
if [ "$1" = -d ]; then
    echo "start" >> {calls}
    if [ "$STANDIN_MPS" ]; then echo "$STANDIN_MPS" >&2; exit 1; fi
    setsid sleep 1000 &
    echo $! > "$CUDA_MPS_PIPE_DIRECTORY/pid"
    touch "$CUDA_MPS_PIPE_DIRECTORY/control"
else
    read -r order
    echo "$order" >> {calls}
    kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")" && rm "$CUDA_MPS_PIPE_DIRECTORY/control"
fi
"""


def standin_mps(folder):
    """Make a nvidia-cuda-mps-control in a folder, which writes to the file that is returned how it is called.

    STANDIN_MPS: what it says when it fails to start.
    """
    folder.mkdir()
    program, calls = folder / "nvidia-cuda-mps-control", folder / "calls"
    program.write_text(MPS.format(calls=calls))
    program.chmod(0o755)
    return calls


if __name__ == "__main__":
    print(standin_folder(Path(sys.argv[1])))
