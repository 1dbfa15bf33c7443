#!/usr/bin/env bash
# The stack of docker-compose.yml for real, as docs/cluster.md describes it: builds the image, brings the stack up with
# two workers, runs the smoke study through it, asks the UI, tries what the drivers' user of MLflow may, what a worker and
# a task that an intruder places on any node can reach, looks for passwords where none may be, kills a worker in the middle
# of a study, takes the stack down and up again and finds the records. Under a project name, with volumes and secrets of
# its own, all of which it removes; the image stays.
#
#   tests/slow/compose.sh                  needs a Docker engine, `docker compose` or docker-compose 1.29, and curl
#   COMPOSE=docker-compose            which of the two
#   BUILD_ARGS="--network host"       more options for `docker build`; TORCH_INDEX and WHEELS as in the Dockerfile
#   MLFLOW_PORT=15000                 a free port of 127.0.0.1
#   KEEP=1                            leave the stack up at the end, to look at
# Exit code: 0 passed, 1 failed, 77 no engine here (what automake calls a skip).
set -euo pipefail
cd "$(dirname "$0")/../.."

PROJECT="adder-test-$$"
export COMPOSE_PROJECT_NAME="$PROJECT" MLFLOW_PORT="${MLFLOW_PORT:-15000}" RAY_WORKER_CPUS=1
export ADDER_IMAGE="${ADDER_IMAGE:-adder-search:cpu}" PYTHON_IMAGE="${PYTHON_IMAGE:-$(sed -n "s/^ARG PYTHON_IMAGE=//p" Dockerfile)}"
UI="http://127.0.0.1:$MLFLOW_PORT"
WORKERS=2
export RAY_WORKERS="$WORKERS"
read -r -a COMPOSE_COMMAND <<<"${COMPOSE:-}"

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# compose SECONDS ARGUMENTS...
compose() {
    local limit="$1"
    shift
    timeout --foreground "$limit" "${COMPOSE_COMMAND[@]}" "$@" </dev/null
}

# The driver as a job: search SECONDS ARGUMENTS...; without a terminal, so that a script can call it.
search() {
    local limit="$1"
    shift
    compose "$limit" run --rm -T -v "$WORK/cut.yaml:/study/cut.yaml:ro" search "$@"
}

# Ids of a service's running containers; both kinds of compose set these labels.
containers() {
    docker ps --quiet --filter "label=com.docker.compose.project=$PROJECT" \
        --filter "label=com.docker.compose.service=$1"
}

# until_true SECONDS WHAT COMMAND...
until_true() {
    local deadline=$((SECONDS + $1)) what="$2"
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || fail "waited for $what in vain"
        sleep 2
    done
}

find_engine() {
    if ! command -v docker >/dev/null || ! timeout 20 docker info >/dev/null 2>&1; then
        echo "tests/slow/compose.sh: no Docker engine answers here: nothing was tested" >&2
        exit 77
    fi
    if [ "${#COMPOSE_COMMAND[@]}" -eq 0 ]; then
        if docker compose version >/dev/null 2>&1; then
            COMPOSE_COMMAND=(docker compose)
        elif command -v docker-compose >/dev/null; then
            COMPOSE_COMMAND=(docker-compose)
        else
            echo "tests/slow/compose.sh: neither docker compose nor docker-compose is here: nothing was tested" >&2
            exit 77
        fi
    fi
    echo "engine $(docker version --format '{{.Server.Version}}'), $("${COMPOSE_COMMAND[@]}" version --short)"
}

clean_up() {
    local code=$?
    trap - EXIT INT TERM
    if [ "$code" -ne 0 ]; then
        compose 60 logs --tail=25 2>&1 | tail -n 150 >&2 || true
    fi
    if [ -z "${KEEP:-}" ]; then
        # --profile: the classic docker-compose leaves a job's containers alone otherwise
        compose 180 --profile job down --volumes --remove-orphans --timeout 10 >/dev/null 2>&1 || true
        rm -rf "$WORK"
    else
        echo "left up: COMPOSE_PROJECT_NAME=$PROJECT SECRETS_DIR=$SECRETS_DIR MLFLOW_PORT=$MLFLOW_PORT"
    fi
    exit "$code"
}

build() {
    say "build $ADDER_IMAGE"
    # shellcheck disable=SC2086  # several options in one variable
    timeout --foreground 3000 docker build ${BUILD_ARGS:-} --tag "$ADDER_IMAGE" --build-arg PYTHON_IMAGE="$PYTHON_IMAGE" \
        --build-arg TORCH_INDEX="${TORCH_INDEX:-}" --build-arg WHEELS="${WHEELS:-wheels}" . >"$WORK/build.log" 2>&1 ||
        { tail -n 30 "$WORK/build.log" >&2 && fail "docker build"; }
    [ "$(docker image inspect --format '{{.Config.User}}' "$ADDER_IMAGE")" = 1000:1000 ] || fail "the image runs as root"
}

# Every container that exists, those that have ended too: no privilege, and an end to its memory and processes.
are_confined() {
    say "limits"
    local id said
    for id in $(docker ps --all --quiet --filter "label=com.docker.compose.project=$PROJECT"); do
        said="$(docker inspect --format \
            '{{.Name}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}} {{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}' "$id")"
        echo "$said"
        [[ "$said" =~ \[ALL\]\ \[no-new-privileges:true\]\ [1-9][0-9]+\ [1-9][0-9]+$ ]] || fail "not confined: $said"
        [ "$(docker inspect --format '{{.State.Status}}' "$id")" != running ] ||
            [ "$(docker exec "$id" cat /proc/1/status | grep -c '^CapEff:.0*$')" -eq 1 ] || fail "$said has capabilities"
    done
}

is_healthy() {
    [ "$(docker inspect --format '{{.State.Health.Status}}' "$(containers "$1")")" = healthy ]
}

# What Ray's head counts is what a study sees.
workers_joined() {
    docker exec "$(containers ray-head)" ray status | grep -q "/$1.0 CPU"
}

up() {
    say "up"
    compose 600 up -d 2>&1 | tail -n 3
    until_true 240 "MLflow" is_healthy mlflow
    until_true 120 "$WORKERS Ray workers" workers_joined "$WORKERS"
    [ -z "$(containers search)" ] || fail "up started the driver"
}

# The seeds of a study that are recorded, their trials' names and times left out.
recorded() {
    compose 120 run --rm -T --no-deps search status "$1" --json |
        python3 -c 'import json, sys
keys = ("configuration", "init_seed", "data_seed", "outcome", "steps", "best_token")
for row in sorted([r[k] for k in keys] for r in json.load(sys.stdin)["seeds"]): print(*row)'
}

# expect_seeds STUDY NUMBER: so many seeds, each once, all trained to an end
expect_seeds() {
    recorded "$1" >"$WORK/$1.seeds" || fail "no records of $1"
    [ "$(wc -l <"$WORK/$1.seeds")" -eq "$2" ] || fail "$1: not $2 records: $(cat "$WORK/$1.seeds")"
    [ "$(cut -d' ' -f1-3 "$WORK/$1.seeds" | sort -u | wc -l)" -eq "$2" ] || fail "$1: a seed is recorded twice"
    ! grep -qE 'censored|running' "$WORK/$1.seeds" || fail "$1: seeds did not end: $(cat "$WORK/$1.seeds")"
}

run_smoke() {
    say "the smoke study on $WORKERS workers"
    search 600 run studies/smoke.yaml 2>&1 | tee "$WORK/smoke.log"
    expect_seeds smoke 4
    [ "$(mlflow_runs smoke)" -gt 0 ] || fail "no runs in MLflow"
    ! docker exec "$(containers ray-worker | head -n 1)" test -e /var/lib/adder/home/records.db || fail "records are not in PostgreSQL"
}

# as USER SECRET PATH CURL-OPTIONS...: asks MLflow; the password comes by standard input, not by a command line
as() {
    local user="$1" secret="$2" path="$3"
    shift 3
    printf 'user = "%s:%s"\n' "$user" "$(<"$SECRETS_DIR/$secret")" |
        curl --silent --show-error --max-time 30 --config - "$@" "$UI$path"
}
ask() { as adder mlflow_admin_password "$@"; }
as_driver() { as driver mlflow_driver_password "$@"; }

experiment() {
    ask "/api/2.0/mlflow/experiments/get-by-name?experiment_name=$1" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["experiment"]["experiment_id"])'
}

mlflow_runs() {
    local id
    id="$(experiment "$1")"
    ask /api/2.0/mlflow/runs/search --json "{\"experiment_ids\": [\"$id\"], \"max_results\": 1000}" |
        python3 -c 'import json, sys; print(len(json.load(sys.stdin).get("runs", [])))'
}

status_code() { printf '%s' "$("$@" --output /dev/null --write-out '%{http_code}')"; }
stranger() { curl --silent --max-time 30 "$@"; }

expect_code() {
    local wanted="$1" got
    shift
    got="$(status_code "$@")"
    [ "$got" = "$wanted" ] || fail "$got instead of $wanted: ${*:2}"
}

ask_the_ui() {
    say "the UI's doors"
    expect_code 200 stranger "$UI/health"
    expect_code 401 stranger "$UI/"
    expect_code 401 stranger "$UI/api/2.0/mlflow/experiments/search?max_results=1"
    expect_code 401 stranger --user adder:wrong "$UI/"
    expect_code 200 ask /
    expect_code 200 ask "/api/2.0/mlflow/experiments/search?max_results=1"
    expect_code 403 ask / --header "Host: elsewhere.example"
    expect_code 403 ask /api/2.0/mlflow/experiments/create --header "Origin: https://elsewhere.example" --json '{"name": "x"}'
    docker port "$(containers mlflow)" | grep -v ' 127.0.0.1:' && fail "a port is open to other hosts"
    [ "$(docker ps --filter "label=com.docker.compose.project=$PROJECT" --format '{{.Ports}}' | grep -c -- '->')" -eq 1 ] ||
        fail "more than MLflow's port is published"
}

# Drivers' user: its own studies and no other's, and no users.
driver_is_no_admin() {
    say "what MLflow lets a driver do"
    local id users=/api/2.0/mlflow/users
    ask /api/2.0/mlflow/experiments/create --json '{"name": "of-others"}' >/dev/null
    id="$(experiment of-others)"
    expect_code 200 as_driver "/api/2.0/mlflow/experiments/get?experiment_id=$id"
    expect_code 403 as_driver /api/2.0/mlflow/experiments/delete --json "{\"experiment_id\": \"$id\"}"
    expect_code 403 as_driver /api/2.0/mlflow/experiments/update --json "{\"experiment_id\": \"$id\", \"new_name\": \"x\"}"
    expect_code 403 as_driver /api/2.0/mlflow/runs/create --json "{\"experiment_id\": \"$id\"}"
    expect_code 403 as_driver $users/create --json '{"username": "intruder", "password": "0123456789abcdef"}'
    expect_code 403 as_driver $users/update-admin --request PATCH --json '{"username": "driver", "is_admin": true}'
    expect_code 403 as_driver $users/update-password --request PATCH --json '{"username": "adder", "password": "0123456789abcdef"}'
    expect_code 403 as_driver $users/delete --request DELETE --json '{"username": "adder"}'
    expect_code 200 ask "$users/get?username=adder"
    expect_code 200 as_driver /api/2.0/mlflow/experiments/create --json '{"name": "of-a-driver"}'
    expect_code 200 as_driver /api/2.0/mlflow/experiments/delete --json "{\"experiment_id\": \"$(experiment of-a-driver)\"}"
}

# While a driver is at work: what a task placed on each node finds. MLflow's port opens on the head alone, and asks for a
# password; the database has no port.
intruders_find_nothing() {
    say "what a task can reach"
    local mlflow worker
    worker="$(containers ray-worker | head -n 1)"
    [ "$(docker inspect --format '{{.HostConfig.NetworkMode}}' "$(containers postgres)")" = none ] || fail "a network"
    mlflow="$(docker inspect --format '{{range $name, $network := .NetworkSettings.Networks}}{{$name}}={{$network.IPAddress}}:5000 {{end}}' "$(containers mlflow)")"
    # shellcheck disable=SC2086  # a word for each network
    docker exec --interactive "$worker" timeout 300 python - mlflow=mlflow:5000 $mlflow postgres=postgres:5432 \
        local=127.0.0.1:5432 head=ray-books:6379 outside=1.1.1.1:443 <tests/intruder.py >"$WORK/intruder.log"
    cat "$WORK/intruder.log"
    # What makes the difference is the user: the drivers' own does find a password in their environment.
    [ -n "$(docker exec --user adder "$(containers ray-head)" bash -c \
        'grep -lz ^MLFLOW_TRACKING_PASSWORD= /proc/[0-9]*/environ 2>/dev/null')" ] || fail "no password where one is"
    python3 - "$WORKERS" "$WORK/intruder.log" <<'PYTHON' || fail "an intruder found something"
import json, sys
nodes = [json.loads(line) for line in open(sys.argv[2])]
heads = [node for node in nodes if node["drivers"]]
assert len(nodes) == 1 + int(sys.argv[1]) and len(heads) == 1, "the drivers' node and the workers"
for node in nodes:
    assert node["secrets"] == ["/run/secrets/ray_token"] and not node["sockets"] and not node["passwords"], node
    reached = {door.removesuffix("tracking").removesuffix("published") for door in node["open"]}
    assert "head" in reached and not reached & {"postgres", "local", "outside"}, node
    assert node in heads or reached == {"head"}, node
assert "mlflow" in heads[0]["open"], "the doors that were tried are doors"
PYTHON
}

ray_refuses_strangers() {
    say "Ray without the token"
    local head said
    head="$(containers ray-head)"
    printf '%064d\n' 0 | docker exec --interactive "$head" bash -c 'cat >/tmp/wrong-token'
    said="$(docker exec --env RAY_AUTH_TOKEN_PATH=/tmp/wrong-token "$head" timeout 60 ray status 2>&1)" &&
        fail "Ray took a wrong token"
    grep -q InvalidAuthToken <<<"$said" || fail "Ray refused a wrong token with other words: $said"
}

# files_with CONTAINER FOLDERS...: the files in there with a password in them. Each of the two users reads its own.
files_with() {
    local id="$1" user
    shift
    for user in adder ray; do
        docker exec --interactive --user "$user" "$id" grep -rslFf - "$@" <"$WORK/passwords" || [ "$?" -le 2 ]
    done
}

# What the engine tells of containers and image, command lines, logs, and what MLflow and Optuna have recorded.
everything_said() {
    local id
    for id in $(docker ps --all --quiet --filter "label=com.docker.compose.project=$PROJECT"); do
        docker inspect "$id"
        docker logs "$id" 2>&1
        docker top "$id" -eo args 2>/dev/null || true # of those that run
    done
    docker image inspect "$ADDER_IMAGE"
    docker history --no-trunc "$ADDER_IMAGE"
    for id in mlflow mlflow_auth optuna; do
        docker exec "$(containers postgres)" bash -c 'PGPASSWORD="$(<"$POSTGRES_PASSWORD_FILE")" pg_dump --username=postgres "$0"' "$id"
    done
    cat "$WORK"/*.log
}

# Neither there nor in Ray's session files or the home, which has Tune's state in it, may a password be.
look_for_passwords() {
    say "passwords where none may be"
    local id found
    sed 's/.*://' "$SECRETS_DIR"/* >"$WORK/passwords"
    [ "$(sort -u "$WORK/passwords" | wc -l)" -eq 7 ] || fail "seven passwords expected"
    everything_said >"$WORK/said"
    [ "$(wc -l <"$WORK/said")" -gt 1000 ] || fail "there was nothing to look at"
    ! grep -qFf "$WORK/passwords" "$WORK/said" || fail "a password shows"
    for id in $(containers ray-head) $(containers ray-worker); do
        [ -n "$(files_with "$id" /run/secrets)" ] || fail "looking for passwords finds none where they are"
        found="$(files_with "$id" /tmp/ray /var/lib/adder)"
        [ -z "$found" ] || fail "a password is in $found"
    done
}

# A study of four seeds in banks of one slot, long enough to lose a worker in its middle.
write_cut_study() {
    sed -e 's/^name: .*/name: cut/' -e 's/^  steps: .*/  steps: 2500/' -e 's/^  eval_every: .*/  eval_every: 100/' \
        -e 's/slots: 2/slots: 1/' studies/smoke.yaml >"$WORK/cut.yaml"
    chmod 644 "$WORK/cut.yaml"
}

both_train() {
    search 60 status cut | grep -q ", $WORKERS training"
}

kill_a_worker() {
    say "a worker is killed in the middle of a study"
    search 900 run cut.yaml >"$WORK/cut.log" 2>&1 &
    local driver=$! code=0 victim
    until_true 240 "two workers that train" both_train
    intruders_find_nothing
    are_confined
    victim="$(containers ray-worker | head -n 1)"
    docker kill "$victim" >/dev/null
    echo "killed $victim"
    wait "$driver" || code=$?
    tail -n 12 "$WORK/cut.log"
    [ "$code" -le 1 ] || fail "the driver ended with exit code $code"
    # Exit code 1: seeds were left out after their retries; the next run tries them again, on the worker that is left.
    [ "$code" -eq 0 ] || search 900 run cut.yaml
    expect_seeds cut 4
}

down_and_up() {
    say "down and up again"
    local before study
    before="$(mlflow_runs smoke) $(mlflow_runs cut)"
    compose 240 --profile job down --timeout 30 2>&1 | tail -n 2
    [ -z "$(docker ps --all --quiet --filter "label=com.docker.compose.project=$PROJECT")" ] || fail "down left containers"
    up
    for study in smoke cut; do
        cp "$WORK/$study.seeds" "$WORK/$study.before"
        expect_seeds "$study" 4
        cmp "$WORK/$study.before" "$WORK/$study.seeds" || fail "$study: other records than before"
    done
    [ "$(mlflow_runs smoke) $(mlflow_runs cut)" = "$before" ] || fail "MLflow has other runs than before"
    search 300 run studies/smoke.yaml | tail -n 5 # nothing is left to do
    expect_seeds smoke 4
    cmp "$WORK/smoke.before" "$WORK/smoke.seeds" || fail "smoke was trained again"
}

find_engine
WORK="$(mktemp -d)"
export SECRETS_DIR="$WORK/secrets"
trap clean_up EXIT INT TERM
make --silent secrets SECRETS_DIR="$SECRETS_DIR"
write_cut_study
build
up
run_smoke
ask_the_ui
driver_is_no_admin
ray_refuses_strangers
kill_a_worker
look_for_passwords
down_and_up
say "passed"
