"""The command with workers that go wrong: `python faulty.py HOW TIMES run STUDY ...`.

The worker that gets seed 5 raises, runs out of memory, hangs or freezes the first TIMES times.
"""

import os
import signal
import sys
import time
from pathlib import Path

HOW, TIMES = sys.argv[1], int(sys.argv[2])
ATTEMPTS = Path.cwd() / "attempts"
MEMORY = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
LIMITS = "memory.limit_in_bytes", "memory.max"
ROOM = 1 << 30  # bytes; more than torch and Ray need to start


def group(name):
    """A control group with little memory, where this user may make one; None elsewhere."""
    for root, limit in zip(MEMORY, LIMITS, strict=True):
        place = root / f"adder-search-{name}"
        try:
            place.mkdir()
            (place / limit).write_text(str(ROOM))
        except OSError:
            continue
        return place
    return None


def train(config, desk):
    """In the place of ray_executor.train. Ray carries it over as it is, because it is __main__'s."""
    from search.run import ray_executor, worker

    whole = worker.Worker.obey

    def obey(self, reply):
        if any(order.pair.seed.init_seed == 5 for order in reply.orders):
            with ATTEMPTS.open("a") as file:
                file.write("x")
            if len(ATTEMPTS.read_text()) <= TIMES:
                go_wrong()
        whole(self, reply)

    worker.Worker.obey = obey
    ray_executor.train(config, desk)


def go_wrong():
    if HOW == "raise":
        raise RuntimeError("no luck\nat all")
    if HOW == "memory":
        (GROUP / "cgroup.procs").write_text(str(os.getpid()))
        hoard = []
        while True:
            hoard.append(bytes(range(256)) * 4096 * 64)
    if HOW == "hang":
        time.sleep(10_000)
    if HOW == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    from search.cli import main
    from search.run import ray_executor

    GROUP = group(os.getpid()) if HOW == "memory" else None
    if HOW == "memory" and GROUP is None:
        sys.exit("no control group can be made here")
    ray_executor.train = train
    sys.argv = ["adder-search", *sys.argv[3:]]
    try:
        main()
    finally:
        if GROUP:
            deadline = time.monotonic() + 10
            while GROUP.exists() and time.monotonic() < deadline:
                try:
                    GROUP.rmdir()
                except OSError:
                    time.sleep(0.2)
