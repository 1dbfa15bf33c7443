"""Ray's place taken by this process: the real driver, ledger, MLflow and workers, which take turns.

`python -m tests.in_process WORDS ...` is the command so, in a process of its own (PAUSE, LEASE_S: see below).
"""

import functools
import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from mlflow import MlflowClient

from search.cli import main
from search.run import ray_executor
from search.run.executor import LocalExecutor
from search.run.packing import Capacity
from search.store import lease
from search.store.database import Database
from tests.commands import OTHERS
from tests.reference import environment
from tracking.store import WRITING

FITS = Capacity(2)
"""What the planner is told of the machine: room for two workers, whatever it has."""


@contextmanager
def without_ray():
    """`run` and `resume`, called in this process, need no Ray and leave nothing of theirs behind."""
    before = signal.getsignal(signal.SIGTERM)
    with environment({}), pytest.MonkeyPatch.context() as patch:
        for name in OTHERS:
            patch.delenv(name, raising=False)
        patch.setattr(ray_executor, "RayExecutor", _executor)
        yield
    signal.signal(signal.SIGTERM, before)


def _executor(study, *rest):
    gpu = FITS.gpu or float(study.resources.gpu not in (0, "auto"))
    return LocalExecutor(replace(FITS, gpu=gpu))


# ---- as a process of its own


def hold_while_training(lock):
    """Have the executor hold a lock while a worker trains."""
    poll = LocalExecutor.poll

    def polled(executor, timeout_s):
        with lock:
            return poll(executor, timeout_s)

    LocalExecutor.poll = polled


def stop_in_call(when, method, at, note):
    """Have this process stop itself (SIGSTOP) before or after a call that changes something in MLflow.

    method: of MlflowClient; "any" counts all of them. note: a file that gets the number of calls. No other thread
    is in a transaction then, and none trains: nobody could help that a stopped process keeps a file locked.
    """
    counted, alone, begin = count(1), threading.RLock(), Database.begin
    training = threading.RLock()

    def stop():
        with training, alone:  # to this thread, which else goes on until another one has noticed
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def watched(name, call):
        @functools.wraps(call)
        def calling(*args, **options):
            number = next(counted) if name.startswith(WRITING) and method in ("any", name) else None
            if note and number:
                note.write_text(str(number))
            if number == at and when == "before":
                stop()
            with alone:
                answer = call(*args, **options)
            if number == at and when == "after":
                stop()
            return answer

        return calling

    @contextmanager
    def alone_in_it(database):
        with alone, begin(database) as db:
            yield db

    Database.begin = alone_in_it
    hold_while_training(training)
    for name, call in list(vars(MlflowClient).items()):
        if callable(call) and not name.startswith("_"):
            setattr(MlflowClient, name, watched(name, call))


if __name__ == "__main__":
    if "PAUSE" in os.environ:  # as in "before create_run 2"
        when, method, at = os.environ["PAUSE"].split()
        stop_in_call(when, method, int(at), Path(os.environ["NOTE"]) if "NOTE" in os.environ else None)
    if "LEASE_S" in os.environ:  # else a lease is waited for two minutes
        lease.LEASE_S = float(os.environ["LEASE_S"])
        lease.RENEW_S, lease.FRESH_S = lease.LEASE_S / 8, lease.LEASE_S / 2
    with without_ray():
        main()
