"""What Tune makes of a trial's end, as far as it can be shown without a cluster."""

from types import SimpleNamespace

import pytest
import ray
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorDiedError, OutOfMemoryError

from search.run import engine


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
    driver = SimpleNamespace(study=SimpleNamespace(faults=SimpleNamespace(stall_s=1)), tick=lambda: None)
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
        study=SimpleNamespace(faults=SimpleNamespace(stall_s=stall_s)),
        tick=lambda: None,
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
