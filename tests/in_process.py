"""Ray's place taken by this process: the real driver, ledger, MLflow and worker, trial after trial."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from search.run import ray_executor
from search.run.executor import InProcessExecutor
from search.run.packing import Capacity
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
        patch.setattr(
            ray_executor,
            "RayExecutor",
            lambda study, *rest: InProcessExecutor(study.faults.max_failures, FITS),
        )
        yield
    signal.signal(signal.SIGTERM, before)
