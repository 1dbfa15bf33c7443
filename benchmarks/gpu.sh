#!/bin/sh
# benchmarks/gpu.sh [--small] [OUT.json]: is the CUDA engine right on this machine's GPU, and how fast? In ten minutes.
# Run in an environment with adder-search; NVRTC is installed where it is missing. --small: a rehearsal, some seconds.
set -u
small=; [ "${1:-}" = --small ] && small=--small && shift
out=${1:-gpu.json}
cd "$(dirname "$0")/.." || exit 1
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
"$python" -c 'from gpu import nvrtc; nvrtc.version()' 2>/dev/null ||
    "$python" -m pip install --quiet 'nvidia-cuda-nvrtc>=13,<14' || exit 1
exec timeout 660 "$python" -m benchmarks.gpu --json "$out" $small
