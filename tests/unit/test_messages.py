"""Messages that are lost, late or repeated, workers and drivers that die: each seed is recorded once, and whole."""

import random

import pytest

from search.run.executor import DIED, Finished, Restarted
from search.run.messages import Report
from search.run.packing import Capacity
from search.stats.metrics import final_metrics
from search.store.database import STATES
from search.store.ended_seed import EndedSeed
from search.store.lease import Superseded
from tests.homes import TRAINED_BY, MadeUp, driver_of, empty_home, records_of, result_of, study_of
from tests.leases import dead_owner
from tests.planners import end, hear, row_of, taken
from trainer import Outcome

SEEDS = list(range(1, 13))
STUDY = study_of(seeds=SEEDS, resources={"slots": 2}, faults={"max_failures": 100})


@pytest.fixture
def home(here):
    return empty_home(here / "adder-runs")


class Faulty(MadeUp):
    """Workers and messages to which something happens each few polls, as `draw` has it."""

    def __init__(self, draw, faults, **options):
        super().__init__(Capacity(3), **options)
        self.draw, self.faults, self.held_back = draw, faults, []

    def poll(self, timeout_s):
        events = super().poll(timeout_s)
        for report in [e for e in events if isinstance(e, Report)]:
            fault = self.draw.choice(self.faults) if self.faults and self.draw.random() < 0.3 else None
            if fault == "repeated":
                events.append(report)
            elif fault == "late":
                self.held_back.append(report)
                events.append(self.kill(report.worker))
            elif fault == "lost":
                events = [self.kill(report.worker)]
            elif fault == "preempted":
                events = [self.kill(report.worker, preempted=True)]
            elif fault == "unanswered":
                events = [report, self.kill(report.worker)]
            elif fault == "for good":
                del self.workers[report.worker]
                events = [report, Finished(report.worker, DIED)]
        if self.held_back and self.draw.random() < 0.5:
            events.append(self.held_back.pop())
        return events


def check(home, executor):
    """All is recorded as if nothing had happened, and no state is left."""
    records = records_of(home)
    rows = {row["init_seed"]: row for row in records.list_seeds()}
    assert sorted(rows) == SEEDS and all(row.is_final for row in rows.values())
    configuration = next(iter(records.list_configurations().values()))
    for number, row in rows.items():
        whole = result_of(configuration, number, number in executor.grokked)
        assert (row["outcome"], row["steps"], row["best_exact"]) == (whole.outcome, whole.steps, whole.best_exact)
        assert row["owner"] is None and row["reason"] is None
    assert saved(records) == {}


def saved(records):
    """Saved states by seed, as the ledger has them."""
    with records.database.begin() as db:
        return dict(map(tuple, db.exec_driver_sql("SELECT init_seed, state FROM ledger_states")))


FAULTS = ["repeated", "late", "lost", "preempted", "unanswered", "for good"]
EVERY = 1  # a draw in which each of the faults comes, also among the others
DRAWS = [
    pytest.param(number, faults, marks=() if number == EVERY else pytest.mark.full)
    for number in range(3)
    for faults in (*([fault] for fault in FAULTS), FAULTS)
]


@pytest.mark.parametrize(("number", "faults"), [(EVERY, []), *DRAWS])
def test_whatever_becomes_of_messages_each_seed_is_recorded_once(number, faults, home):
    executor = Faulty(random.Random(number), faults, grokked=(3, 7))
    with driver_of(home, STUDY) as driver:
        ended = driver.run(executor)
    assert not (ended.interrupted or ended.failed)
    check(home, executor)
    if not faults:
        assert executor.trained.begun == {n: [0] for n in SEEDS} and set(executor.trained.ended.values()) == {1}
    elif faults == ["unanswered"]:
        assert any(steps[-1] for steps in executor.trained.begun.values()), "some go on from where they were saved"
        assert all(steps == sorted(steps) for steps in executor.trained.begun.values())


class Died(BaseException):
    """In the place of SIGKILL."""


@pytest.mark.parametrize("number", range(8))
def test_a_driver_that_dies_anywhere_is_followed_by_another(number, home, monkeypatch):
    """Its claims are not renewed; what was saved goes on, and what was recorded is trained no more."""
    monkeypatch.setattr("search.store.ledger.driver_name", dead_owner)
    draw = random.Random(number)
    for _ in range(40):
        executor = Faulty(draw, FAULTS)
        whole, left = executor.poll, [draw.randint(1, 12)]

        def poll(timeout_s, whole=whole, left=left):
            left[0] -= 1
            if not left[0]:
                raise Died
            return whole(timeout_s)

        executor.poll = poll
        before = {r["init_seed"] for r in records_of(home).list_seeds() if r.is_final}
        try:
            with driver_of(home, STUDY) as driver:
                ended = driver.run(executor)
        except Died:
            assert not before & executor.trained.begun.keys(), "trained again"
            continue
        assert not ended.interrupted
        check(home, executor)
        return
    raise AssertionError("it does not end")


def test_what_is_said_of_pairs_that_a_worker_has_not_got_is_not_recorded(home):
    """Of another worker's, of a pair that was taken from it, of no pair at all."""
    forged, told = [], []

    class Forging(MadeUp):
        def poll(self, timeout_s):
            events = super().poll(timeout_s)
            for place, event in enumerate(events):
                if isinstance(event, Report) and event.number == 1 and not forged:
                    seed = EndedSeed.of(result_of(next(iter(told)).configuration, 1, grokked=True))
                    forged.append({n: seed for n in range(1, 50) if n not in event.steps})
                    forgery = {"ended": forged[0], "states": dict.fromkeys(forged[0], b"7")}
                    events[place] = Report(**vars(event) | forgery)
            return events

    executor = Forging(Capacity(2))
    with driver_of(home, STUDY) as driver:
        take = driver.planner.take
        driver.planner.take = lambda *given: told.extend((had := take(*given)).values()) or had
        driver.run(executor)
    assert forged and len(forged[0]) > 40
    check(home, executor)


def test_a_driver_that_lost_its_lease_records_nothing(home):
    executor, told = MadeUp(Capacity(1)), []

    def poll(timeout_s, whole=executor.poll):
        events = whole(timeout_s)
        told.extend(events)
        if len(told) == 3:  # it has pairs, and says how they are
            other = records_of(home)
            driver.lease.ended.set()
            with other.database.begin() as db:
                db.exec_driver_sql("UPDATE ledger_studies SET owner = 'elsewhere.0/1/0'")
            told.append(rows(home))
        return events

    executor.poll = poll
    with pytest.raises(Superseded), driver_of(home, STUDY) as driver:
        driver.run(executor)
    assert rows(home) == told[3] and {row["outcome"] for row in rows(home)} == {Outcome.RUNNING}
    assert len(told) == 4, "and no worker is told anything"


def rows(home):
    return records_of(home).list_seeds()


def test_a_report_is_written_whole_or_not_at_all(home, monkeypatch):
    """The disk under the ledger is full: one line, and the next run trains it."""
    executor, calls = MadeUp(Capacity(1)), []
    with driver_of(home, STUDY) as driver:
        delete = type(driver.records)._delete

        def full(self, db, table, keys):
            if table is STATES:
                calls.append(list(keys))
            if len(calls) == 3:
                db.exec_driver_sql("PRAGMA max_page_count = 1")
                db.exec_driver_sql("CREATE TABLE much AS SELECT zeroblob(9999999)")
            delete(self, db, table, keys)

        monkeypatch.setattr(type(driver.records), "_delete", full)
        with pytest.raises(Exception, match="full") as error:
            driver.run(executor)
        assert "\n" not in str(error.value) and str(home.ledger_db) in str(error.value)
    monkeypatch.undo()
    assert len(calls) == 3 and {row["outcome"] for row in rows(home)} <= {Outcome.RUNNING, Outcome.CENSORED}
    assert len(calls[1]) == len(saved(records_of(home))), "states as of the report before"
    with driver_of(home, STUDY) as driver:
        driver.run(again := MadeUp(Capacity(1)))
    check(home, again)


# ---- workers that fail


def test_seeds_that_fail_with_their_workers_too_often_are_given_up_and_the_others_done(home):
    class Poisoned(MadeUp):
        """Whoever trains seed 5 dies."""

        def poll(self, timeout_s):
            events = super().poll(timeout_s)
            for event in [e for e in events if isinstance(e, Report) and e.number]:
                has = self.workers[event.worker].gi_frame.f_locals["at"].values()
                if 5 in [order.pair.seed.init_seed for order, _ in has]:
                    return [self.kill(event.worker, reason="out of memory (of 24 GiB): Ray ended its process")]
            return events

    study = study_of(seeds=SEEDS, resources={"slots": 2}, faults={"max_failures": 2})
    with driver_of(home, study) as driver:
        ended = driver.run(executor := Poisoned(Capacity(2)))
    assert not ended.interrupted
    lost = {row["init_seed"]: row["reason"] for row in rows(home) if not row.is_final}
    assert 5 in lost and len(lost) <= 2 and set(lost.values()) == {"out of memory (of 24 GiB): Ray ended its process"}
    assert len(executor.trained.begun[5]) == 3 and list(ended.failed.values()) == [lost[5]]
    with driver_of(home, study) as driver:
        driver.run(again := MadeUp(Capacity(2)))
    check(home, again)


@pytest.mark.parametrize("most", [0, 2])
def test_workers_that_never_begin_end_the_run(most, home):
    class Stillborn(MadeUp):
        def poll(self, timeout_s):
            worker, _ = self.turns.popleft() if self.turns else ("", None)
            return [Restarted(worker)] * most + [Finished(worker, DIED)] if worker else []

    study = study_of(seeds=[1], faults={"max_failures": most})
    with driver_of(home, study) as driver:
        ended = driver.run(Stillborn(Capacity(1)))
    assert ended.why == "no worker can begin" and not ended.was_stopped
    assert set(ended.failed.values()) == {f"it could not begin: {DIED}"}


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_worker_that_waits_is_asked_again_or_leaves_others_its_room(is_shared, home, monkeypatch):
    """One pair is left, which the other worker has. On a cluster an idle worker ends before it."""
    monkeypatch.setattr("search.run.workers.WAIT_S", 0.0)
    monkeypatch.setattr("search.run.workers.SPARED_S", -1.0)
    study = study_of(seeds=[1, 2], resources={"slots": 1})
    with driver_of(home, study) as driver:
        executor = MadeUp(Capacity(2, is_shared=is_shared), evaluations=6)
        one, left = executor.start, []

        def start(worker, on_gpu, attempt=0):
            one(worker, on_gpu, attempt)
            executor.options = {"evaluations": 2}  # of the second worker

        def at_report(report, executor, before=driver._on_report):
            before(report, executor)
            left.append(len(driver.workers))

        executor.start = start
        monkeypatch.setattr(driver, "_on_report", at_report)
        ended = driver.run(executor)
    assert not ended.failed and len(rows(home)) == 2
    assert (left.count(1) > 2) is is_shared, "reports of the other worker alone"
    assert is_shared or driver.progress.reports > 10, "it is asked each time"


def test_what_mlflow_is_told_meanwhile_is_what_the_ledger_has(home, monkeypatch):
    monkeypatch.setitem(TRAINED_BY.environment, "engine", "native")  # of others nobody knows the core-seconds
    told = []
    with driver_of(home, STUDY) as driver:

        def compare(configuration, rows):
            recorded = driver.records.list_seeds(configuration.key)
            told.append((final_metrics(list(rows)), final_metrics(recorded)))

        driver.shown[0].note_counts.side_effect = compare
        driver.run(MadeUp(Capacity(2), grokked={3, 8}))
    assert len(told) > 3 and all(given == recorded for given, recorded in told)
    assert told[-1][0]["grokked"] > 0 and told[-1][0]["core_s_per_grokked"] > 0


def test_needless_seeds_of_a_worker_that_dies_last_end_their_configuration(home):
    """No report follows, after which a driver would look."""
    study = study_of(seeds=SEEDS, resources={"slots": 2}, until={"grokked": 1, "max_seeds": len(SEEDS)})
    with driver_of(home, study) as driver:
        planner, (mirror,) = driver.planner, driver.shown
        planner.capacity = Capacity(2)
        first, second = taken(planner, "a"), taken(planner, "b")
        hear(planner, "a", grokked=(1,))
        end(planner, "a", first, [row_of(pair, Outcome.GROKKED) for pair in first])
        driver._free_pairs("b", "lost")
        mirror.note_configuration.assert_called_once_with(second[0].configuration, True)
