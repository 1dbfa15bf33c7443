#!/usr/bin/env bash
# Brings secrets from their files to where PostgreSQL's and MLflow's clients look for them, then runs a command.
# An environment variable that a compose file sets shows in `docker inspect`: so that names the file only.
set -euo pipefail
umask 077

# NAME_FILE=/run/secrets/... becomes NAME=<what is in it>.
export_secrets() {
    local variable name value
    for variable in $(compgen -e); do
        name="${variable%_FILE}"
        if [ "$name" != "$variable" ] && [[ "${!variable}" == /run/secrets/* ]]; then
            value="$(<"${!variable}")"
            export "$name=$value"
            unset "$variable"
        fi
    done
}

# libpq reads a password file only if it is private, and a mounted secret keeps the modes of the host.
own_password_file() {
    if [ -n "${PGPASSFILE:-}" ]; then
        cp "$PGPASSFILE" /run/adder/pgpass
        chmod 600 /run/adder/pgpass
        export PGPASSFILE=/run/adder/pgpass
    fi
}

export_secrets
own_password_file
exec "$@"
