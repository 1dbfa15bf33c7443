"""How many workers one driver keeps busy: a cluster in the time of a simulation, and all else real.

    python -m benchmarks.cluster [--workers 8,80,800] [--seeds 64] [--slots 16] [--speed 14000] [--way-ms 5]
                                 [--json FILE]

Driver, plan, ledger, messages and MLflow are those of a study; workers run the code of real ones, with
banks that train nothing (benchmarks/fake.py). What a worker does takes the time that training takes, of a
clock of the simulation; what the driver and its thread for MLflow do takes the processor time that it takes
here, so that other programs beside it matter little; waiting for the disk is left out.
`--speed`: seed-steps/s of a worker, as measured: a core's, or a GPU's. `--way-ms`: what a
message takes from a worker to the driver or back by Ray, which is not run here.

Says how long a study takes, of which share of it workers were busy, and of which the driver and the outbox:
who is at 100 % is what holds the others up.
"""

from __future__ import annotations

import argparse
import heapq
import json
import pickle
import platform
import tempfile
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Self

from benchmarks.fake import FakeBank
from search.run import worker as module
from search.run.driver import Driver
from search.run.executor import Event, Finished
from search.run.messages import Reply, Report
from search.run.packing import Capacity
from search.run.worker import work
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.schema import Study
from tracking import mirror
from tracking.store import connect
from trainer.checkpoints.checkpoint import code_version
from trainer.files.cores import usable_cores

START_S = 10.0
"""A process that imports Ray and torch."""
MOST_SEEDS = 100_000
"""Of a configuration; a study file may ask for twice as many."""


class Silent:
    """A display that nobody looks at."""

    def due(self) -> bool:
        return False


class Inline:
    """An outbox whose jobs are done at once, by a server with a clock of its own."""

    def __init__(self, answers: Callable[[], Any], verify: Callable[[], None], name: str = ""):
        self.busy_s, self.jobs, self.away = 0.0, (), False

    def put(self, call: Callable[..., Any], *args: Any, key: Hashable = None) -> None:
        start = time.thread_time()
        call(*args)
        self.busy_s += time.thread_time() - start

    def drain(self, *given: Any) -> int:
        return 0

    def close(self) -> None:
        """There is no thread."""


@dataclass
class Place:
    """A worker: a real one but for its bank."""

    worker: Generator[Report, Reply, None]
    busy_s: float = 0.0


class SimulatedCluster:
    """An executor in simulated time, from its first worker's start until all is recorded. Times are seconds.

    What the driver does between two polls takes as long as it takes; while it does, no other event is handled. A reply
    is on its way for `way_s`, and so was the report.
    """

    def __init__(self, workers: int, way_s: float):
        self.workers, self.way_s = workers, way_s
        self.now = self.free_s = self.busy_s = self.spent = 0.0
        self.worker_s, self.reports, self.count = 0.0, 0, 0
        self.events: list[tuple[float, int, Report | Finished]] = []
        self.outbox: Inline | None = None
        self.places: dict[str, Place] = {}
        FakeBank.spend = staticmethod(self._spend)  # type: ignore[method-assign]

    def __enter__(self) -> Self:
        self.since = self._driver_s()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs."""

    def _spend(self, seconds: float) -> None:
        self.spent += seconds

    def _driver_s(self) -> float:
        """The processor time of all but workers and outbox."""
        return time.thread_time() - (self.outbox.busy_s if self.outbox else 0.0)

    def _serve(self) -> None:
        """Count what the driver did since the last event."""
        took = self._driver_s() - self.since
        self.free_s, self.busy_s = max(self.now, self.free_s) + took, self.busy_s + took

    def capacity(self) -> Capacity:
        return Capacity(self.workers)

    def start(self, worker: str, on_gpu: bool) -> None:
        self._serve()
        self.places[worker] = Place(work(worker))
        self._go_on(worker, None, self.free_s + START_S)
        self.since = self._driver_s()

    def reply(self, report: Report, reply: Reply) -> None:
        self._serve()
        self._go_on(report.worker, pickle.loads(pickle.dumps(reply)), self.free_s + self.way_s)
        self.since = self._driver_s()

    def poll(self, timeout_s: float) -> Sequence[Event]:
        self._serve()
        events: list[Event] = []
        if self.events:
            self.now, _, event = heapq.heappop(self.events)
            events, self.reports = [event], self.reports + isinstance(event, Report)
        self.since = self._driver_s()
        return events

    def export(self, values: Callable[[], Any]) -> None:
        """Nobody looks."""

    def summary(self) -> dict[str, float]:
        assert self.outbox is not None
        wall_s = max(self.now, self.free_s, self.outbox.busy_s)
        return {
            "wall_s": wall_s,
            "workers_busy": self.worker_s / (wall_s * self.workers),
            "driver_busy": self.busy_s / wall_s,
            "outbox_busy": self.outbox.busy_s / wall_s,
            "reports": self.reports,
            "report_ms": 1e3 * self.busy_s / max(1, self.reports),
        }

    def _go_on(self, name: str, reply: Reply | None, now: float) -> None:
        """Let a worker work until it says something; it looks at the simulation's clock."""
        before, place = self.spent, self.places[name]
        module.time = _Clock(lambda: now + self.spent - before, self._spend)  # type: ignore[assignment]
        try:
            said: Report | Finished = next(place.worker) if reply is None else place.worker.send(reply)
        except StopIteration:
            said = Finished(name)
        took = self.spent - before
        place.busy_s += took
        self.worker_s += took
        self.count += 1
        heapq.heappush(self.events, (now + took + self.way_s, self.count, pickle.loads(pickle.dumps(said))))


@dataclass
class _Clock:
    """What a worker uses of `time`."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]


def study_of(workers: int, seeds: int, slots: int) -> Study:
    """A sweep of so many seeds for each worker, in four configurations or, of many seeds, more."""
    count = max(4, ceil(workers * seeds / MOST_SEEDS))
    each = max(1, workers * seeds // count)
    return Study.model_validate(
        {
            "name": "cluster", "model": "57p", "seeds": {"first": 1, "count": each},
            "configurations": [{"recipe": {"lr": 0.01 + 0.015 * n / (count - 1)}} for n in range(count)],
            "resources": {"gpu": 0, "slots": slots},
        }
    )  # fmt: skip


def measure(workers: int, seeds: int, slots: int, speed: float, way_s: float) -> dict[str, Any]:
    study = study_of(workers, seeds, slots)
    FakeBank.speed = speed
    module.Bank, mirror.Outbox = FakeBank, Inline  # type: ignore[misc, assignment]
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        home.create()
        records = StudyRecords(Ledger(home), study.name)
        connect(home, creates=True)
        with records.lease:
            cluster = SimulatedCluster(workers, way_s)
            with Driver.open(study, records, Silent()) as driver:
                cluster.outbox = driver.shown[0].outbox  # type: ignore[attr-defined]
                driver.run(cluster)
            found = cluster.summary()
        rows = records.list_seeds()
        assert all(row.is_final for row in rows), "not all is recorded"
    return {
        "workers": workers, "seeds": len(rows), "slots": slots, "speed": speed, "way_ms": 1e3 * way_s,
        "seeds_per_s": len(rows) / found["wall_s"], **found,
    }  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--workers", default="8,80,800")
    parser.add_argument("--seeds", type=int, default=64, help="for each worker")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--speed", type=float, default=14_000.0, help="seed-steps/s of a worker")
    parser.add_argument("--way-ms", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)
    rows = []
    for workers in map(int, args.workers.split(",")):
        rows.append(measure(workers, args.seeds, args.slots, args.speed, args.way_ms / 1e3))
        print(json.dumps(rows[-1]), flush=True)
    if args.json:
        about = {"cores": usable_cores(), "cpu": platform.machine(), "code": code_version()}
        args.json.write_text(json.dumps(about | {"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
