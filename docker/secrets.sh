#!/usr/bin/env bash
# make secrets: random passwords in files, made once and never overwritten (the databases remember the first ones).
# The folder is the owner's alone; the files in it can be read by all, because a container gets each file with the
# modes that it has here, and reads it as another user. So can then what docker-compose.yml mounts of this checkout.
set -euo pipefail
folder="${1:-secrets}"
here="$(dirname "$0")"

random() {
    od -An -tx1 -N32 /dev/urandom | tr -d ' \n'
}

# Written beside and renamed: a file that is there is whole.
make_secret() {
    if [ ! -e "$folder/$1" ]; then
        printf '%s%s\n' "${2:-}" "$(random)" >"$folder/.new"
        chmod 644 "$folder/.new"
        mv "$folder/.new" "$folder/$1"
        echo "made $folder/$1"
    fi
}

install -d -m 700 "$folder"
make_secret postgres_password
make_secret mlflow_pgpass '*:*:*:mlflow:'
make_secret optuna_pgpass '*:*:*:optuna:'
make_secret mlflow_admin_password
make_secret mlflow_driver_password
make_secret mlflow_secret_key
make_secret ray_token
find "$here" "$here/../studies" ! -perm -go=r -exec chmod go+rX {} +
