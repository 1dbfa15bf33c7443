"""The command with trials that go wrong: `python faulty.py HOW TIMES run STUDY ...`.

The trial of seed 5 raises, runs out of memory, hangs or freezes the first TIMES times that it is started.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

HOW, TIMES = sys.argv[1], int(sys.argv[2])
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


def train(config):
    """In the place of search.run.worker.train. Ray carries it over as it is, because it is __main__'s."""
    from search.run import worker

    folder = Path(config["folder"])
    seeds = {pair[1] for pair in json.loads((folder / "trial.json").read_text())["pairs"]}
    if 5 in seeds:
        attempts = folder.parent / "attempts"
        with attempts.open("a") as file:
            file.write("x")
        if len(attempts.read_text()) <= TIMES:
            if HOW == "raise":
                (folder / "error.txt").write_text("RuntimeError: no luck\n\nof an earlier attempt")
                worker.run_trial = unlucky
            if HOW == "memory":
                (GROUP / "cgroup.procs").write_text(str(os.getpid()))
                hoard = []
                while True:
                    hoard.append(bytes(range(256)) * 4096 * 64)
            if HOW == "hang":
                time.sleep(10_000)
            if HOW == "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
    worker.train(config)


def unlucky(*_):
    raise RuntimeError("no luck\nat all")
    yield


if __name__ == "__main__":
    from search.cli import main
    from search.run import worker

    GROUP = group(os.getpid()) if HOW == "memory" else None
    if HOW == "memory" and GROUP is None:
        sys.exit("no control group can be made here")
    worker.train = train
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
