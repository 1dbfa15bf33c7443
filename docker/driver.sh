#!/usr/bin/env bash
# adder-search as a job of the cluster. What trains joins Ray first: a driver talks to the rest of a cluster through
# a node on its own host, here one without any CPU.
set -euo pipefail

join() {
    local said
    # Ray keeps its processes' environment where its workers can read it: no password goes there.
    if ! said="$(env -u MLFLOW_TRACKING_PASSWORD -u PGPASSFILE ray start --address="$RAY_ADDRESS" \
        --num-cpus=0 --num-gpus=0 --object-store-memory="$RAY_OBJECT_STORE_BYTES" 2>&1)"; then
        printf '%s\nerror: no Ray cluster at %s, or it refuses this token\n' "$said" "$RAY_ADDRESS" >&2
        exit 1
    fi
}

case "${1:-}" in
run | resume) join ;;
esac
exec adder-search "$@"
