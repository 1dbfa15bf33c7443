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
