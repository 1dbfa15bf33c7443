#!/bin/sh
# Everything that is to be known of a GPU, in ten minutes: benchmarks/gpu.py says what. Leaves one JSON file.
#   benchmarks/gpu.sh [--minutes 10] [--only correctness,throughput] [--json FILE] [--rehearse]
# Uses .venv if it is there, else $PYTHON or python3 with what it has; installs what is missing into a folder aside.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
[ -x .venv/bin/python ] && python=$PWD/.venv/bin/python

lacks() { ! "$python" -c "import importlib.util as i, sys; sys.exit(i.find_spec('$1') is None)"; }

missing=
for module in torch numpy filelock safetensors; do
    if lacks "$module"; then missing="$missing $module"; fi
done
if [ -n "$missing" ]; then
    aside=${TMPDIR:-/tmp}/adder-search-gpu-$(id -u)
    mkdir -m 700 -p "$aside"
    "$python" -m venv --system-site-packages "$aside/venv"
    python=$aside/venv/bin/python
    for module in $missing; do
        lacks "$module" || continue
        from=requirements/core.txt
        if [ "$module" = torch ]; then from=requirements/torch-cuda.txt; cp "$from" "$aside/$module.txt"; else
            # one package of the file, with its hashes
            awk -v name="$module==" 'index($0, name) == 1 {on = 1} on {print; if ($0 !~ /\\$/) exit}' \
                "$from" > "$aside/$module.txt"
        fi
        "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$aside/$module.txt"
    done
fi
exec "$python" -m benchmarks.gpu "$@"
