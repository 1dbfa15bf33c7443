#!/usr/bin/env bash
# Run once by the postgres image, in an empty volume: two users, each with databases that the other cannot enter.
set -euo pipefail

# A password goes from its file (HOST:PORT:DATABASE:USER:PASSWORD) to psql's standard input: no command line shows it.
# As libpq does, `read` without -r takes `\:` for a colon and `\\` for a backslash, and ends it at a bare colon.
create_user() {
    local user="$1" password
    IFS=: read _ _ _ _ password _ <"/run/secrets/${user}_pgpass" || [ -n "$password" ] # the line may lack its end
    password="$(sed "s/[\\\\']/\\\\&/g" <<<"$password")" # as psql reads it in quotes
    printf "\\\\set password '%s'\nCREATE ROLE %s LOGIN PASSWORD :'password';\n" "$password" "$user" | sql
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
