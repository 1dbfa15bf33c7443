"""A study on PostgreSQL, MLflow with passwords and three Ray nodes, with a fault every 20 s: `make soak`.

`python -m tests.slow.soak FOLDER --minutes 60`. A round is one study: it is disturbed until it is done, and its
records are compared with undisturbed training. FOLDER/soak.json has every round; the same command goes on after
the last one, until the minutes are full. The faults are drawn from a number that is printed.
Needs to be root.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import ray  # noqa: F401

import psutil  # of those that Ray brings: found once it is imported  # isort: skip

from tests.processes import short_folder, wait_until
from tests.reference import QUICK, check_whole, client_of, environment, expected, rows_of, running_study, runs_of
from tests.scenarios.test_full_disk import fill, small_disk
from tests.services import MlflowServer, Postgres, RayCluster, mlflow_server, postgres, ray_cluster
from trainer.files import durable

AWAY_S = 8.0
NODES = 3
TRIALS_MB = 8
STUDY = QUICK | {
    "recipe": QUICK["recipe"] | {"steps": 40_000, "eval_every": 2_000},
    "resources": QUICK["resources"] | {"compiled": True, "slots": 4},
    "faults": {"max_failures": 1_000},
}


@dataclass
class Round:
    """One study: the faults that it had, what was measured at each, and how it ended."""

    number: int
    seed: int
    every_s: float
    """Seconds from one fault to the next."""
    faults: list[dict] = field(default_factory=list)
    starts: int = 0
    """How often its driver was started."""
    codes: list[int] = field(default_factory=list)
    seconds: float = 0.0
    is_equal: bool = False
    """True if its records are those of undisturbed training."""
    after: dict = field(default_factory=dict)


@dataclass
class Stack:
    """The services, and the disturbances that they can have."""

    database: Postgres
    mlflow: MlflowServer
    ray: RayCluster
    home: Path
    temporary: Path
    disk: Path

    def environment(self):
        values = self.database.environment() | self.mlflow.environment() | self.ray.environment()
        return values | {"ADDER_SEARCH_DATABASE": self.database.url("optuna"), "TMPDIR": str(self.temporary)}

    # ---- faults; each leaves the services as they were

    def kill(self, driver):
        driver.process.kill()

    def pause(self, driver):
        driver.process.send_signal(signal.SIGSTOP)
        time.sleep(AWAY_S)
        driver.process.send_signal(signal.SIGCONT)

    def lose_a_worker(self, driver):
        names = {p: p.info["name"] for p in self._processes(*self.ray.nodes)}
        for process in [p for p, name in names.items() if name.startswith("ray::Impl")][:1]:
            process.kill()

    def lose_a_node(self, driver):
        node = next(node for node in self.ray.nodes if not node.has_ended)
        node.end()
        self.ray.wait_for(self.ray.add(cpus=1))

    def drain_a_node(self, driver):
        node = next(node for node in self.ray.nodes if not node.has_ended)
        self.ray.drain(node, int(AWAY_S))
        self.ray.wait_for(self.ray.add(cpus=1))
        node.end()

    def lose_mlflow(self, driver):
        self.mlflow.stop()
        time.sleep(AWAY_S)
        self.mlflow.start()

    def lose_the_database(self, driver):
        """And with it MLflow's."""
        self.database.stop()
        time.sleep(AWAY_S)
        self.database.start()

    def cut_the_sockets(self, driver):
        """Of everyone who speaks with PostgreSQL."""
        self.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    def fill_the_disk(self, driver):
        fill(self.disk / "filler")
        time.sleep(AWAY_S)
        (self.disk / "filler").unlink()

    # ---- what is measured

    def ask(self, query):
        import psycopg

        address = self.database.url("optuna").replace("+psycopg", "")
        with environment(self.database.environment()), psycopg.connect(address) as db:
            return db.execute(query).fetchone()[0]

    def _processes(self, *services):
        """Of services, or of all of them."""
        every = services or (self.ray.head, *self.ray.nodes, self.mlflow.process, self.database.process)
        pids = {pid for service in every if service for pid in service.processes()}
        return [process for process in psutil.process_iter(["name", "memory_info"]) if process.pid in pids]

    def _megabytes(self, service):
        return sum(p.info["memory_info"].rss for p in self._processes(service)) / 1e6

    def measure(self, driver=None):
        """Memory in MB, files, ports, folders, sizes: of the driver, and of all that stays."""
        pids = {p.pid for p in self._processes()}
        ports = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in pids]
        values = {
            "head_mb": self._megabytes(self.ray.head),
            "mlflow_mb": self._megabytes(self.mlflow.process),
            "processes": len(pids),
            "ports": len(ports),
            "temporary": len(list(self.temporary.iterdir())),
            "database_mb": self.ask("SELECT sum(pg_database_size(datname)) / 1e6 FROM pg_database"),
        }
        with contextlib.suppress(psutil.Error):
            if driver and driver.process.poll() is None:
                process = psutil.Process(driver.process.pid)
                values |= {"driver_mb": process.memory_info().rss / 1e6, "driver_files": process.num_fds()}
        return {name: round(float(value), 1) for name, value in values.items()}


FAULTS = (
    Stack.kill, Stack.pause, Stack.lose_a_worker, Stack.lose_a_node, Stack.drain_a_node, Stack.lose_mlflow,
    Stack.lose_the_database, Stack.cut_the_sockets, Stack.fill_the_disk,
)  # fmt: skip


@contextlib.contextmanager
def stack(folder):
    home = folder / "home"
    with (
        small_disk(home / "progress", TRIALS_MB) as disk,
        short_folder() as temporary,
        postgres() as database,
        mlflow_server(database) as mlflow,
        ray_cluster(workers=NODES) as cluster,
    ):
        yield Stack(database, mlflow, cluster, home, temporary, disk)


def disturb(stack, folder, entry, seeds, until):
    """Run a study to its end, its driver again whenever it has ended, with faults until a time. Returns it."""
    draw = random.Random(entry.seed)
    study = STUDY | {"name": f"soak-{entry.number}", "seeds": {"first": 1_000 * entry.number, "count": seeds}}
    is_done, begun = False, time.monotonic()
    due = begun + entry.every_s
    while not is_done:
        with running_study(study, folder, stack.home, environment=stack.environment()) as driver:
            entry.starts += 1
            while time.monotonic() < until:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    driver.process.wait(max(0.0, due - time.monotonic()))
                    break
                due = max(due, time.monotonic()) + entry.every_s
                fault = draw.choice(FAULTS)
                at = round(time.monotonic() - begun, 1)
                with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                    fault(stack, driver)
                entry.faults.append({"s": at, "fault": fault.__name__, **stack.measure(driver)})
                print(json.dumps(entry.faults[-1]), flush=True)
            said = driver.wait()
        entry.codes.append(said.code)
        assert said.code in (0, 1, -signal.SIGKILL) and "Traceback" not in said.err, said
        has_all = "in MLflow yet" not in said.out  # what MLflow lacked is written too
        is_done = said.code == 0 and "nothing left to train" in said.out and has_all
    entry.seconds = round(time.monotonic() - begun, 1)
    return study


def run_round(stack, folder, entry, seeds, until):
    study = disturb(stack, folder, entry, seeds, until)
    with environment(stack.environment()):
        side_by_side = study | {"resources": study["resources"] | {"slots": seeds}}
        check_whole(stack.home, study, expected(side_by_side))
        assert {row["outcome"] for row in rows_of(stack.home, study["name"])} <= {"failed", "grokked"}
        runs = len(runs_of(client_of(stack.home), study["name"]))
    entry.is_equal = True
    kills = entry.codes.count(-signal.SIGKILL)
    wait_until(lambda: len(list(stack.temporary.iterdir())) <= 2 * kills, "a run that ended by itself left a folder")
    for left in stack.temporary.iterdir():  # what a killed driver was about to read, and its pictures
        shutil.rmtree(left)
    entry.after = stack.measure() | {"runs": runs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=12, help="of a round")
    parser.add_argument("--every", type=float, default=20, help="seconds; a busy machine needs more")
    parser.add_argument("--seed", type=int, default=20261124, help="of the faults")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    record = options.folder.absolute() / "soak.json"
    rounds = json.loads(record.read_text()) if record.exists() else []
    print(f"seed {options.seed}; {len(rounds)} rounds are done", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-home-") as scratch, stack(Path(scratch)) as services:
        while (spent := sum(r["seconds"] for r in rounds)) < 60 * options.minutes:
            entry = Round(len(rounds), options.seed + len(rounds), options.every)
            until = time.monotonic() + 60 * options.minutes - spent
            run_round(services, Path(scratch), entry, options.seeds, until)
            rounds.append(asdict(entry))
            durable.write(record, json.dumps(rounds, indent=1).encode())
            print(json.dumps({k: v for k, v in rounds[-1].items() if k != "faults"}), flush=True)
    report(rounds)


def report(rounds):
    """Print what was done, and fail where something grows from one round to the next."""
    done = sum(len(r["faults"]) for r in rounds)
    print(f"{len(rounds)} rounds, {done} faults, {sum(r['starts'] for r in rounds)} starts; all records equal")
    first, last = rounds[0]["after"], rounds[-1]["after"]
    print(f"after the first round {first}\nafter the last round  {last}")
    most = {name: first[name] for name in ("temporary", "runs")}
    most |= {name: first[name] + 10 for name in ("ports", "processes")}
    most |= {name: 1.5 * first[name] + 200 for name in ("head_mb", "mlflow_mb")}
    for name, limit in most.items():
        assert last[name] <= limit, f"{name} grows: {first[name]} to {last[name]}"


if __name__ == "__main__":
    os.environ |= {"ADDER_SEARCH_SERVICES": "required", "RAY_worker_niceness": "0"}  # Ray's 15 starves
    for number in (signal.SIGINT, signal.SIGTERM):  # also from the background: the services end with it
        signal.signal(number, signal.default_int_handler)
    main()
