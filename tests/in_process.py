"""Ray's place taken by this process: the real driver, ledger, MLflow and worker, trial after trial."""

from __future__ import annotations

import json
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest
from ray import tune

from search.run import engine, worker
from search.run.driver import Driver
from search.run.packing import Capacity
from search.study.trial import Trial
from tests.commands import OTHERS
from tests.reference import environment

FITS = Capacity(2)
"""What the planner is told of the machine: two trials at once, whatever it has."""


@contextmanager
def without_ray() -> Iterator[None]:
    """`run` and `resume`, called in this process, need no Ray and leave nothing of theirs behind."""
    before = signal.getsignal(signal.SIGTERM)
    with environment({}), pytest.MonkeyPatch.context() as patch:
        for name in OTHERS:
            patch.delenv(name, raising=False)
        patch.setattr(engine, "_ray", nullcontext)
        patch.setattr(engine, "_tune", _tune)
        yield
    signal.signal(signal.SIGTERM, before)


def _tune(driver: Driver) -> None:
    """What Tune does: ask for as many trials as fit, have each trained and say what became of it. Ctrl-C ends
    it, and what the driver raises.
    """
    driver.planner.capacity = FITS
    driver.wait_s = 0.0  # nobody else works while one waits
    placed: deque[Trial] = deque()
    with suppress(KeyboardInterrupt):
        while True:
            while len(placed) < FITS.concurrent and isinstance(trial := driver.start_next(), Trial):
                placed.append(trial)
            if not placed:
                return
            trial = placed.popleft()
            driver.finished(trial, _train(driver, trial))


def _train(driver: Driver, trial: Trial) -> str | None:
    """Train a trial, again where it fails and may be started again. Returns why it was given up."""
    broken = []

    def report(found: dict[str, Any]) -> None:
        try:
            driver.reported(trial, json.loads(found["payload"]))
        except Exception as error:
            broken.append(error)
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune, "report", report)
        for _ in range(driver.study.faults.max_failures + 1):
            try:
                worker.train(driver.config(trial))
                return None
            except Exception:
                if broken:
                    raise
    return "its process died"
