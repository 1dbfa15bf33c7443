"""Runs of a study in milliseconds: the real driver, plan and ledger, made-up workers, and MLflow only by `drive`.

Workers train nothing: what a seed comes to is a function of its number (tests/homes.py), after so many evaluations.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import Mock

import numpy as np
import sqlalchemy as sa

from search.run.driver import Driver
from search.run.executor import LocalExecutor, Restarted
from search.run.messages import Report, Speed
from search.run.planner import plan
from search.stats.record import UNMEASURED
from search.store.ended_seed import EndedSeed
from search.study.trial import Configuration
from search.tracking.tracking import connect
from tests.homes import TRAINED_BY, Silent, records_of, result_of
from trainer import Outcome, Seed

EVALUATIONS = 3
"""Evaluations after which a seed ends."""


@contextmanager
def driver_of(home, study) -> Iterator[Driver]:
    """A study's driver that has its lease; MLflow is told nothing."""
    records, nobody = records_of(home, study.name), Mock(jobs=(), away=False)
    sa.event.listen(records.database.engine, "connect", _in_memory)
    records.database.engine.dispose()
    nobody.drain.return_value = 0
    with records.lease:
        records.censor_orphaned()
        records.update_study(study.model_dump(mode="json", by_alias=True))
        yield Driver(study, records, Silent(), plan(study, records), Mock(), nobody)


def _in_memory(connection, _):
    """What an fsync promises is tried elsewhere (tests/scenarios/test_power_cut.py)."""
    connection.execute("PRAGMA journal_mode = MEMORY")
    connection.execute("PRAGMA synchronous = OFF")


def cut(steps):
    """What a worker says of a seed that it ended because there was enough."""
    nothing = (np.zeros(shape, np.float32) for shape in (0, (0, 0), (0, 0)))
    return EndedSeed(Outcome.CENSORED, UNMEASURED | {"steps": steps}, *nothing)


class Trained:
    """What made-up workers did: of each seed the steps at which its process began, and how often it ended."""

    def __init__(self):
        self.begun: dict[int, list[int]] = {}
        self.ended: dict[int, int] = {}


def made_up(name, attempt, trained: Trained, grokked=(), evaluations=EVALUATIONS):
    """A worker that is real but for its bank: its pairs are one evaluation further at each report."""
    number, report, at = 0, Report(name, attempt, 0), {}
    while not (reply := (yield report)).is_end:
        bank = reply.bank or bank  # noqa: F821  the first reply with pairs has one
        for order in reply.orders:
            step = int(order.state or b"0")
            at.setdefault(order.number, [order, step])
            trained.begun.setdefault(order.pair.seed.init_seed, []).append(step)
        ended, perfect = {}, []
        for n, (order, step) in list(at.items()):
            at[n][1] = step = step + order.pair.recipe.eval_every
            seed = order.pair.seed.init_seed
            if n in reply.enough and seed not in grokked:
                ended[n] = cut(step)
            elif step >= evaluations * order.pair.recipe.eval_every:
                ended[n] = EndedSeed.of(result_of(Configuration(bank.spec, order.pair.recipe), seed, seed in grokked))
                trained.ended[seed] = trained.ended.get(seed, 0) + 1
            elif seed in grokked:
                perfect.append(n)
        for n in ended:
            del at[n]
        steps = {n: step for n, (_, step) in at.items()}
        states = {n: str(step).encode() for n, step in steps.items()}
        number += 1
        report = Report(
            name, attempt, number, ended, steps, perfect, states,
            environment=TRAINED_BY.environment, speed=Speed(5.0, sum(steps.values())),
        )  # fmt: skip


class MadeUp(LocalExecutor):
    """Made-up workers in turns. capacity: how many. A test does with messages what it likes."""

    def __init__(self, capacity, grokked=(), **options):
        super().__init__(capacity)
        self.trained, self.grokked, self.options = Trained(), grokked, options
        self.attempts: dict[str, int] = {}

    def start(self, worker, on_gpu, attempt=0):
        self.attempts[worker] = attempt
        self.workers[worker] = made_up(worker, attempt, self.trained, self.grokked, **self.options)
        self.turns.append((worker, None))

    def reply(self, report, reply):
        if report.worker in self.workers and report.attempt == self.attempts[report.worker]:
            super().reply(report, reply)

    def kill(self, worker, **about):
        """A worker's process dies, with all that it has not said, and is started again."""
        self.turns = type(self.turns)(turn for turn in self.turns if turn[0] != worker)
        self.start(worker, False, self.attempts[worker] + 1)
        return Restarted(worker, **about)


class Watched(LocalExecutor):
    """Made-up workers, whose seeds end as soon as they begin. seen: called before the first one, after each
    report of ended seeds, and at the end.
    """

    def __init__(self, grokked=(), seen: Callable[[], None] = lambda: None):
        super().__init__()
        self.grokked, self.seen, self.ended = grokked, seen, False

    def __enter__(self):
        self.seen()
        return self

    def __exit__(self, *error):
        if not any(error):
            self.seen()
            self.seen()

    def start(self, worker, on_gpu, attempt=0):
        self.workers[worker] = made_up(worker, attempt, Trained(), self.grokked, evaluations=1)
        self.turns.append((worker, None))

    def poll(self, timeout_s: float):
        if self.ended:
            self.seen()
        events = super().poll(timeout_s)
        self.ended = any(isinstance(event, Report) and event.ended for event in events)
        return events


def drive(home, study, grokked=(), client=None, seen: Callable[[Driver], None] = lambda driver: None) -> None:
    """Run a study to its end with the real driver, whose seeds end as soon as they begin. seen: called with
    the driver after whatever it did.
    """
    records, client = records_of(home, study.name), client or connect(home, creates=True)
    with records.lease, Driver.open(study, records, client, Silent()) as driver:
        records.update_study(study.model_dump(mode="json", by_alias=True))
        driver.run(Watched(grokked, lambda: seen(driver)))


def results(records):
    """θ and outcome of each recorded seed, by its number."""
    return {Seed(row["init_seed"], row["data_seed"]).init_seed: row for row in records.list_seeds()}
