"""What Tune makes of a trial's end, as far as it can be shown without a cluster."""

from types import SimpleNamespace

import pytest
import ray
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorDiedError, OutOfMemoryError
from ray.tune.experiment import Trial as TuneTrial

from model import PRESETS
from search.errors import UserError
from search.run import engine
from search.run.packing import Capacity
from search.study.schema import Resources, Stop
from search.study.trial import Configuration, Trial
from trainer import Recipe, Seed


@pytest.mark.parametrize("error", [OutOfMemoryError("no room"), ActorDiedError()])
def test_out_of_memory_is_a_process_that_died(error):
    """Ray's memory monitor has an error of its own, which Tune would raise out of the driver."""
    engine._retry_after_out_of_memory()
    engine._retry_after_out_of_memory()  # once is enough
    told = []
    actor = SimpleNamespace(actor_id=1, _on_error=lambda *given: told.append(given[1]))
    task = SimpleNamespace(_tracked_actor=actor, _on_error=lambda *given: told.append(given[1]))
    manager = SimpleNamespace(_failed_actor_ids=set(), _cleanup_actor=lambda tracked_actor: None)
    RayActorManager._actor_task_failed(manager, tracked_actor_task=task, exception=error)
    assert len(told) == 2 and all(isinstance(e, ray.exceptions.RayActorError) for e in told)
    assert (engine.OUT_OF_MEMORY in str(told[0])) == isinstance(error, OutOfMemoryError)


def test_what_the_driver_raises_ends_the_run_and_not_the_trial():
    driver = SimpleNamespace(
        study=SimpleNamespace(name="any", faults=SimpleNamespace(stall_s=1)), tick=lambda: None, measures=dict
    )
    watch = engine.Watch(driver)
    with watch.kept():
        raise KeyError("the ledger is away")
    with pytest.raises(KeyError, match="the ledger is away"):
        watch.on_step_begin(0, [])


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(engine.time, "monotonic", lambda: now.s)
    return now


def watched(stall_s):
    """A watch over one trial that runs, and its trial."""
    lost = []
    driver = SimpleNamespace(
        study=SimpleNamespace(name="any", faults=SimpleNamespace(stall_s=stall_s)),
        tick=lambda: None,
        measures=dict,
        lost=lambda first, preempted: lost.append((first, preempted)),
    )
    actor = SimpleNamespace(
        temporary_state=SimpleNamespace(ray_actor="its actor"), trial_id="a", lost=lost,
        config={"folder": "trials/first"}, get_pickled_error=lambda: None,
    )  # fmt: skip
    watch = engine.Watch(driver)
    watch.on_trial_start(0, [], actor)
    return watch, actor


def step(watch, clock, seconds, every=1.0):
    """So much time passes, in which the driver looks up as often as that."""
    until = clock.s + seconds
    while clock.s < until:
        clock.s += every
        watch.on_step_begin(0, [])


def test_a_trial_that_is_silent_too_long_is_killed_once(clock, monkeypatch):
    killed = []
    monkeypatch.setattr(ray, "kill", killed.append)
    watch, trial = watched(stall_s=30)
    step(watch, clock, 25)
    watch.on_trial_result(0, [], trial, {})
    step(watch, clock, 25)
    assert killed == []
    step(watch, clock, 10)
    assert killed == ["its actor"] and watch.why("a") == "stalled: nothing was heard of it for 30 s"
    watch.on_trial_recover(0, [], trial)
    assert trial.lost == [("first", False)]
    step(watch, clock, 100)
    assert killed == ["its actor"], "it waits to be started again"
    watch.on_trial_start(0, [], trial)
    step(watch, clock, 31)
    assert killed == ["its actor"] * 2


@pytest.fixture
def cluster(monkeypatch, clock):
    """Nodes that come and go, and a driver that is asked whom to train; time passes while one waits."""
    given = SimpleNamespace(nodes=[], said=[], ticks=0, at_tick=lambda: None)

    def tick():
        given.ticks += 1
        given.at_tick()

    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setattr(engine, "nodes", lambda: given.nodes)
    monkeypatch.setattr(engine.time, "sleep", lambda seconds: setattr(clock, "s", clock.s + seconds))
    given.driver = SimpleNamespace(
        study=SimpleNamespace(resources=Resources(gpu=0)), planner=SimpleNamespace(capacity=None), tick=tick,
        display=SimpleNamespace(due=lambda: True, say=given.said.append), start_next=lambda: None,
    )  # fmt: skip
    return given


def test_a_cluster_without_a_node_is_waited_for(cluster):
    def come():
        cluster.nodes = [{"CPU": 2.0}] if cluster.ticks == 3 else []

    room, cluster.at_tick = engine.Room(cluster.driver), come
    assert (
        room.wait()
        and room.share == {"cpu": 1, "gpu": 0.0}
        and cluster.driver.planner.capacity == Capacity(2)
    )
    line = "waiting for a node that has room (resources.cpu: a trial asks for 1, there are 0)"
    assert cluster.said == [line] * 3

    def stop():
        raise KeyboardInterrupt

    cluster.nodes, cluster.at_tick = [], stop
    assert not engine.Room(cluster.driver).wait(), "a run can be stopped while it waits"


def test_on_one_machine_nobody_waits_for_another(cluster, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS")
    with pytest.raises(UserError, match=r"resources\.cpu"):
        engine.Room(cluster.driver).wait()


def test_as_many_workers_as_there_is_room_for_now(cluster, clock):
    cluster.nodes = [{"CPU": 2.0}]
    trial = Trial("study", ((Configuration(PRESETS["57p"], Recipe()), Seed.of(1)),), 1, Resources(), Stop())
    cluster.driver.start_next = lambda: trial
    cluster.driver.config = lambda trial: {"folder": trial.key}
    searcher = engine.PlanSearcher(cluster.driver, None, engine.Room(cluster.driver))
    assert searcher.set_max_concurrency(7), "Tune does not count them"

    def ask():
        clock.s += engine.ASK_S + 1
        return sum(searcher.suggest(f"{clock.s}-{n}") is not None for n in range(5))

    assert ask() == 2 and ask() == 0
    cluster.nodes = [{"CPU": 2.0}, {"CPU": 1.0}]
    assert ask() == 1 and cluster.driver.planner.capacity == Capacity(3)
    cluster.nodes = []
    assert ask() == 0 and cluster.said and cluster.driver.planner.capacity == Capacity(3), (
        "who is left is not replanned"
    )
    searcher.trials.clear()
    assert ask() == 0
    cluster.nodes = [{"CPU": 1.0}]
    assert ask() == 1


def test_a_preempted_worker_has_not_failed():
    """Ray says of an actor's death that its node was taken away after notice; Tune counts it as no failure,
    and the driver as no start.
    """
    trial = TuneTrial("trainable", stub=True, trial_id="a")
    for preempted, failures in ((True, 0), (False, 1)):
        trial._handle_ray_actor_error(_died(preempted))
        assert trial.run_metadata.num_failures == failures
    told = []
    driver = SimpleNamespace(
        study=SimpleNamespace(name="any", faults=SimpleNamespace(stall_s=9)),
        measures=dict,
        lost=lambda *given: told.append(given),
    )
    watch = engine.Watch(driver)
    for preempted in (True, False):
        died = SimpleNamespace(
            trial_id="a", config={"folder": "trials/first"}, get_pickled_error=lambda p=preempted: _died(p)
        )
        watch.on_trial_recover(0, [], died)
    assert told == [("first", True), ("first", False)]


def _died(preempted):
    return ray.exceptions.RayActorError(preempted=preempted)


def test_a_trial_is_not_silent_while_the_driver_does_not_look(clock, monkeypatch):
    """A machine that slept, a database that was waited for."""
    monkeypatch.setattr(ray, "kill", pytest.fail)
    watch, _ = watched(stall_s=30)
    step(watch, clock, 300, every=60.0)


def test_a_machine_too_busy_to_start_ray_in_time_gets_a_second_try(monkeypatch):
    errors = [Exception("The current node timed out during startup. This could happen because ..."), None]
    tried = []

    def init(**options):
        tried.append(options)
        if error := errors[len(tried) - 1]:
            raise error

    monkeypatch.setattr(ray, "init", init)
    engine._init(address="local")
    assert tried == [{"address": "local"}] * 2

    tried.clear()
    errors[0] = ConnectionError("no such cluster")
    with pytest.raises(ConnectionError):
        engine._init(address="local")
    assert len(tried) == 1
