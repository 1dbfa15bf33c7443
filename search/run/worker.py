"""A worker: it reports to the driver, trains the pairs of the reply, and reports again.

It begins with no pairs: its first report asks for some. It trains only between a reply and its next report, so that
the workers of a driver that is paused or gone stand still.
"""

from __future__ import annotations

import logging
import platform
import time
import traceback
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import torch

from model.spec import Spec
from model.tied import project
from search.run.messages import EndedSeed, NewBank, Reply, Report, Speed
from search.study.resources import Resources
from trainer import Bank, Pair, Result
from trainer.checkpoints.checkpoint import code_version
from trainer.engine import accelerators
from trainer.engine.build import denormals
from trainer.engine.native import has_kernel
from trainer.outcomes import OPEN
from trainer.road import RoadBank

AnyBank = Bank | RoadBank


def work(name: str, attempt: int = 0, on_gpu: bool = False) -> Generator[Report, Reply, None]:
    """Work until a reply says that it is the end: yields reports, and is sent the reply to each.

    name: what the driver calls this worker. attempt: number of starts of its process before. on_gpu: true if its
    place is on a GPU. A worker in which something goes wrong reports that, and ends.
    """
    worker, remarks = Worker(name, attempt, on_gpu), Remarks()
    logging.getLogger("trainer").addHandler(remarks)
    try:
        reply = yield worker.report(remarks.take())
        while not reply.is_end:
            worker.obey(reply)
            worker.train(reply.report_after_s)
            reply = yield worker.report(remarks.take())
    except Exception as error:
        first = str(error).strip().partition("\n")[0]  # a driver prints one line; the traceback is in a file
        failure = f"{type(error).__name__}: {first}"
        yield Report(name, attempt, worker.reports, failure=failure, traceback=traceback.format_exc())
    finally:
        logging.getLogger("trainer").removeHandler(remarks)


class Remarks(logging.Handler):
    """Collects the trainer's warnings for the next report."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self.lines = self.lines, []
        return lines


class Worker:
    """A worker's bank, and the numbers of the driver's pairs in it."""

    def __init__(self, name: str, attempt: int, on_gpu: bool):
        self.name = name
        self.attempt = attempt
        self.on_gpu = on_gpu
        self.reports = 0
        self.bank: AnyBank | None = None
        self.resources = Resources()
        self.numbers: list[int] = []
        """The driver's numbers of the bank's pairs, in the bank's order."""
        self.perfect: set[int] = set()
        """Pairs that were reported as perfect once."""
        self.evaluations = 0
        """Evaluations since states were saved."""
        self.saved = time.monotonic()
        """Time when states were saved."""
        self.save_after_s = 0.0
        self.earlier = Speed()
        """Sums over the banks before this one."""

    # ---- replies

    def obey(self, reply: Reply) -> None:
        """Take the pairs of a reply into the bank, or into a new one, and end those that are not needed."""
        self.save_after_s = reply.save_after_s
        # A reply may come twice.
        orders = [order for order in reply.orders if order.number not in self.numbers]
        pairs = [order.pair for order in orders]
        if orders and reply.bank:
            self._begin_bank(reply.bank, pairs)
        elif orders:
            assert self.bank, "the first pairs come with a bank"
            self.bank.add(pairs)
        if self.bank is None:
            return

        self.numbers += [order.number for order in orders]
        place = {number: n for n, number in enumerate(self.numbers)}
        # One whose state is damaged is trained from its beginning.
        self.bank.restore_all({place[order.number]: order.state for order in orders if order.state})
        # But for those that have grokked: they train on, to see if they hold.
        needless = [place[number] for number in reply.enough if number in place]
        self.bank.end([n for n in needless if self.bank.result(n).grok_step is None])

    def _begin_bank(self, made: NewBank, pairs: Sequence[Pair]) -> None:
        self.earlier = self._speed()
        self.numbers = []
        self.resources = made.resources
        self.evaluations = 0
        device = accelerators.device() if self.on_gpu else "cpu"
        self.bank = bank_of(made.spec, pairs, made.slots, made.resources, device)

    # ---- training

    def train(self, report_after_s: float) -> None:
        """Train until there are news, or for so many seconds."""
        due = time.monotonic() + report_after_s
        while self.numbers and self.bank and self.bank.advance():
            self.evaluations += 1
            if time.monotonic() >= due or self._has_news(self.bank):
                return

    def _has_news(self, bank: AnyBank) -> bool:
        """True if a seed was perfect for the first time, or many have ended."""
        rows = bank.newest()
        perfect = sum(row["grok_step"] is not None for row in rows)
        open_ = sum(row["outcome"] in OPEN for row in rows)
        # The bank has an eighth more pairs than slots (`Planner._room`): when more have ended, slots stand empty.
        are_many = len(rows) - open_ > bank.slots // 8
        return perfect > len(self.perfect) or not open_ or are_many

    # ---- reports

    def report(self, remarks: Sequence[str]) -> Report:
        """Report the pairs that have ended, which leave the bank, and the steps of the others."""
        progress = self._progress(self.bank) if self.bank and self.numbers else {}
        report = Report(self.name, self.attempt, self.reports, remarks=remarks, speed=self._speed(), **progress)
        self.reports += 1
        return report

    def _progress(self, bank: AnyBank) -> dict[str, Any]:
        """Return what a report says of pairs. Those that have ended leave the bank."""
        rows = dict(zip(self.numbers, bank.newest(), strict=True))
        ended = [n for n, row in enumerate(rows.values()) if row["outcome"] not in OPEN]
        results = {self.numbers[n]: EndedSeed.of(own_numbers(bank.result(n))) for n in ended}
        environment = environment_of(bank, self.resources) if ended else {}

        bank.remove(ended)
        self.numbers = [number for number in self.numbers if number not in results]
        self.perfect = {number for number in self.numbers if rows[number]["grok_step"] is not None}
        return {
            "ended": results,
            "environment": environment,
            "steps": {number: rows[number]["step"] for number in self.numbers},
            "perfect": sorted(self.perfect),
            "best_exact": max(row["best_exact"] for row in rows.values()),
            "states": self._states(bank),
        }

    def _states(self, bank: AnyBank) -> dict[int, bytes]:
        """Return the states of pairs that have begun, when it is time to save them."""
        now = time.monotonic()
        if self.evaluations < self.resources.save_every or now - self.saved < self.save_after_s:
            return {}

        self.evaluations = 0
        self.saved = now
        begun = [n for n, row in enumerate(bank.newest()) if row["step"]]
        numbers = [self.numbers[n] for n in begun]
        return dict(zip(numbers, bank.save_all(begun), strict=True))

    def _speed(self) -> Speed:
        bank, earlier = self.bank, self.earlier
        if bank is None:
            return earlier
        return Speed(
            bank.seed_steps_per_s,
            earlier.seed_steps + bank.seed_steps,
            earlier.train_s + bank.train_s,
            earlier.compile_s + bank.backend.compile_s,
        )


def bank_of(spec: Spec, pairs: Sequence[Pair], slots: int, resources: Resources, device: str) -> AnyBank:
    """Return a bank of pairs before their first step. It computes in as many threads as its resources have."""
    torch.set_num_threads(resources.threads)
    kind = RoadBank if pairs[0].recipe.stages else Bank
    return kind(spec, pairs, slots=slots, device=device, compiled=resources.compiled)


def environment_of(bank: AnyBank, resources: Resources) -> dict[str, Any]:
    """Return the facts on which θ depends beside configuration and seed."""
    return {
        "code": code_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": platform.machine(),
        "threads": resources.threads,
        "slots": bank.slots,
        "engine": bank.backend.name,
        "denormals": denormals(),
        "finish": "engine" if has_kernel(bank.spec) else "torch",
        "compiled": resources.compiled,
        **bank.backend.about,
    }


def own_numbers(result: Result) -> Result:
    """Return a bank's result with θ in its configuration's own numbers: of a tied spec the bank trains the base."""
    ties = result.pair.ties
    if ties is None:
        return result
    return replace(result, theta_P=project(ties, result.theta_P[None])[0])
