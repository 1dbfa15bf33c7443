#!/usr/bin/env bash
# Run once by the postgres image, in an empty volume: two users, each with databases that the other cannot enter.
set -euo pipefail

# A password goes from its file (HOST:PORT:DATABASE:USER:PASSWORD) to psql's standard input: no command line shows it.
create_user() {
    local user="$1" line
    IFS= read -r line <"/run/secrets/${user}_pgpass"
    printf "\\\\set password '%s'\nCREATE ROLE %s LOGIN PASSWORD :'password';\n" "${line##*:}" "$user" | sql
}

create_database() {
    printf 'CREATE DATABASE %s OWNER %s;\nREVOKE CONNECT ON DATABASE %s FROM PUBLIC;\n' "$1" "$2" "$1" | sql
}

sql() {
    psql --no-psqlrc --quiet -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres
}

create_user mlflow
create_database mlflow mlflow
create_database mlflow_auth mlflow
create_user optuna
create_database optuna optuna
