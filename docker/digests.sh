#!/usr/bin/env bash
# make digests: pulls the newest two base images by their tags and writes their digests to .env. From then on
# `docker compose` builds and runs these in place of those that docker-compose.yml names, until this is run again.
set -euo pipefail
file="${1:-.env}"

# digest NAME: its digest where it was pulled from.
digest() {
    docker pull --quiet "$1" >/dev/null
    docker image inspect --format '{{index .RepoDigests 0}}' "$1"
}

postgres="$(digest "${POSTGRES_TAG:-postgres:15-bookworm}")"
python="$(digest "${PYTHON_TAG:-python:3.11-slim-bookworm}")"
touch "$file"
others="$(grep -vE '^(POSTGRES|PYTHON)_IMAGE=' "$file" || true)"
# Into the file that is there: it keeps its mode.
printf '%s\n' ${others:+"$others"} "POSTGRES_IMAGE=$postgres" "PYTHON_IMAGE=$python" >"$file"
tail -n 2 "$file"
