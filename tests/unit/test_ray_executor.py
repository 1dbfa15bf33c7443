"""What becomes of workers in Ray Tune, as far as it can be shown without a cluster."""

import asyncio
import pickle
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
import ray
from ray._private import auto_init_hook
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorDiedError, OutOfMemoryError, RayActorError, RayTaskError
from ray.train._internal.storage import StorageContext
from ray.tune.experiment import Trial as TuneTrial

from search.errors import UserError
from search.run import packing, ray_executor, ray_private
from search.run.desk import Desk
from search.run.executor import DIED, ExecutorDied, Finished, Restarted
from search.run.messages import Reply, Report
from search.run.packing import Capacity
from search.run.ray_executor import RayExecutor, StallWatchdog
from search.store.lease import LEASE_S
from tests.homes import study_of
from trainer.engine import accelerators
from trainer.engine.accelerators import NEEDED


@pytest.mark.parametrize("error", [OutOfMemoryError("no room"), ActorDiedError()])
def test_out_of_memory_is_a_process_that_died(error):
    """Ray's memory monitor has an error of its own, which Tune would raise out of the run."""
    ray_private.retry_after_out_of_memory()
    ray_private.retry_after_out_of_memory()  # once is enough
    errors = []
    actor = SimpleNamespace(actor_id=1, _on_error=lambda *given: errors.append(given[1]))
    task = SimpleNamespace(_tracked_actor=actor, _on_error=lambda *given: errors.append(given[1]))
    manager = SimpleNamespace(_failed_actor_ids=set(), _cleanup_actor=lambda tracked_actor: None)
    RayActorManager._actor_task_failed(manager, tracked_actor_task=task, exception=error)
    assert len(errors) == 2 and all(isinstance(e, RayActorError) for e in errors)
    assert (ray_private.OUT_OF_MEMORY in str(errors[0])) == isinstance(error, OutOfMemoryError)


class Events(list):
    """What Tune's thread says."""

    put = list.append


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(ray_executor.time, "monotonic", lambda: now.s)
    return now


def tune_trial():
    return SimpleNamespace(
        temporary_state=SimpleNamespace(ray_actor="its actor"), trial_id="a",
        config={"worker": "first"}, pickled_error_file=None,
    )  # fmt: skip


def watched(stall_s):
    """A watchdog over one worker that runs, and its trial."""
    watchdog, trial = StallWatchdog(stall_s, Events()), tune_trial()
    watchdog.on_trial_start(0, [], trial)
    return watchdog, trial


def step(watchdog, clock, seconds, every=1.0):
    """So much time passes, in which the driver looks as often as that."""
    until = clock.s + seconds
    while clock.s < until:
        clock.s += every
        watchdog.look()


def test_a_worker_that_is_silent_too_long_is_killed_once(clock, monkeypatch):
    """While it waits for a reply it may be silent, and a driver that did not look cannot say that it was."""
    killed = []
    monkeypatch.setattr(ray, "kill", killed.append)
    watchdog, trial = watched(stall_s=30)
    step(watchdog, clock, 25)
    watchdog.hear("first")
    step(watchdog, clock, 100)
    watchdog.expect("first")
    step(watchdog, clock, 25)
    step(watchdog, clock, 1_000, every=1_000)
    step(watchdog, clock, 25)
    assert killed == []
    step(watchdog, clock, 10)
    assert killed == ["its actor"]
    stalled = "stalled: nothing was heard of it for 30 s"
    assert watchdog.reason("first") == stalled
    watchdog.on_trial_recover(0, [], trial)
    assert watchdog.events == [Restarted("first", stalled)]
    step(watchdog, clock, 100)
    assert killed == ["its actor"], "it waits to be started again"
    watchdog.on_trial_start(0, [], trial)
    step(watchdog, clock, 31)
    assert killed == ["its actor"] * 2 and watchdog.reason("another") == DIED


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """A trial of Tune's own, as it is when Tune tells of an error: its storage has nothing of it yet."""
    monkeypatch.setattr(StorageContext, "_get_session_path", lambda storage: str(tmp_path / "session"))
    storage = StorageContext(str(tmp_path / "storage"), "study", trial_dir_name="a")
    trial = TuneTrial("trainable", stub=True, trial_id="a", config={"worker": "first"}, storage=storage)
    Path(trial.local_path).mkdir(parents=True)
    return trial


@pytest.mark.parametrize("preempted", [True, False])
def test_a_preempted_worker_has_not_failed(failing, preempted):
    """Ray says of an actor's death that its node was taken away after notice; Tune counts it as no failure."""
    failing.handle_error(RayActorError(preempted=preempted))
    assert failing.run_metadata.num_failures == (not preempted)
    watchdog = StallWatchdog(9, Events())
    watchdog.on_trial_recover(0, [], failing)
    assert watchdog.events == [Restarted("first", DIED, preempted)]


def test_a_worker_that_took_too_much_memory_is_said_to_have(failing):
    failing.handle_error(RayActorError(error_msg=f"{ray_private.OUT_OF_MEMORY}: it took all"))
    watchdog = StallWatchdog(9, Events())
    watchdog.on_trial_start(0, [], failing)
    assert watchdog.reason("first") == "out of memory: Ray ended its process"


def test_a_worker_that_could_not_begin_says_what_its_node_lacks(failing):
    lacks = ModuleNotFoundError("No module named 'torch'")
    failing.handle_error(RayTaskError("train", "Traceback ...", lacks, "ray::train", 1, "127.0.0.1"))
    watchdog = StallWatchdog(9, Events())
    watchdog.on_trial_recover(0, [], failing)  # it never started
    assert watchdog.events == [Restarted("first", "ModuleNotFoundError: No module named 'torch'", False)]


# ---- the desk


def at_the_desk(scene):
    """Play a scene of coroutines at a desk."""
    return asyncio.run(scene(Desk()))


async def left(desk, *ticket):
    """A worker's call, once its report is at the desk."""
    call = asyncio.ensure_future(desk.exchange(ticket, b"%d" % ticket[2]))
    await asyncio.sleep(0)
    return call


def test_a_report_waits_at_the_desk_for_its_reply():
    async def scene(desk):
        assert await desk.enter("a") == 0 and await desk.enter("b") == 0 and await desk.collect(0.0) == []
        calls = [await left(desk, "a", 0, 7), await left(desk, "b", 0, 8)]
        assert await desk.collect(9.0) == [b"7", b"8"] and await desk.collect(0.0) == []
        assert not any(call.done() for call in calls)
        await desk.reply({("b", 0, 8): b"to b", ("a", 0, 99): b"of another report", ("c", 0, 0): b"to nobody"})
        assert await calls[1] == b"to b" and not calls[0].done()
        await desk.reply({("a", 0, 7): b"to a"})
        return await calls[0]

    assert at_the_desk(scene) == b"to a"


def test_a_start_of_a_workers_process_that_is_over_is_turned_away():
    async def scene(desk):
        assert [await desk.enter("a"), await desk.enter("a")] == [0, 1]
        assert await desk.exchange(("a", 0, 0), b"late") is None and await desk.collect(0.0) == []
        waiting = await left(desk, "a", 1, 0)
        assert await desk.enter("a") == 2 and await waiting is None
        return await desk.collect(0.0)

    assert at_the_desk(scene) == [b"0"], "the driver may hear of it, and knows what is over"


def test_a_desk_that_was_started_again_hears_the_same_calls_again():
    async def scene(desk):
        call = await left(desk, "a", 3, 7)
        assert await desk.exchange(("a", 2, 9), b"late") is None
        assert await desk.collect(9.0) == [b"7"]
        await desk.reply({("a", 3, 7): b"again"})
        assert await desk.enter("a") == 4
        return await call

    assert at_the_desk(scene) == b"again"


class Remote:
    """An actor in this process whose calls return at once, as bytes would."""

    def __init__(self, **calls):
        for name, call_ in calls.items():
            setattr(self, name, SimpleNamespace(remote=call_))


def work(monkeypatch, exchange, get=lambda answer, timeout=None: answer, attempt=0):
    """Let a worker work at a desk that does this with its reports."""
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray_executor.tune, "report", lambda result: None)
    desk = Remote(enter=lambda worker: attempt, exchange=exchange)
    ray_executor.train({"worker": "a", "on_gpu": False}, desk)


@pytest.mark.parametrize("how", ["the end", "turned away", "no answer", "desk gone"])
def test_a_worker_works_until_it_is_told_to_end_or_nobody_answers(how, monkeypatch):
    said, waited = [], []

    def exchange(ticket, data):
        said.append((ticket, pickle.loads(data)))
        return pickle.dumps(Reply(is_end=how == "the end" and len(said) == 3))

    def get(answer, timeout=None):
        waited.append(timeout)
        if how == "no answer" and len(said) == 3:
            raise ray.exceptions.GetTimeoutError
        if how == "desk gone" and len(said) == 3:
            raise ray.exceptions.ActorDiedError
        return None if how == "turned away" and len(said) == 3 else answer

    work(monkeypatch, exchange, get, attempt=5)
    assert [ticket for ticket, _ in said] == [("a", 5, n) for n in range(3)]
    assert all((r.worker, r.attempt, r.number) == ticket for ticket, r in said)
    assert set(waited[1:]) == {ray_executor.ANSWER_S} and ray_executor.ANSWER_S > LEASE_S


def test_a_node_without_a_package_of_the_study_says_so_in_one_line(monkeypatch):
    said, nothing = [], pickle.dumps(Reply())
    answers = iter([nothing, b"cgone_away\nSort\n.", nothing])

    def exchange(ticket, data):
        said.append(pickle.loads(data))
        return next(answers)

    work(monkeypatch, exchange)
    failure = said[-1].failure
    assert [report.failure for report in said[:-1]] == ["", ""] and "\n" not in failure
    assert failure.endswith(
        "cannot read its work (ModuleNotFoundError: No module named 'gone_away'): a study's packages "
        "must be installed on every node"
    )


def test_events_of_tune_come_before_reports(tmp_path, monkeypatch):
    """Those of a new start are there after it is said that the one before has died."""
    report = Report("a", 1, 0)
    monkeypatch.setattr(ray_executor, "dead_process", lambda: None)
    monkeypatch.setattr(ray, "wait", lambda calls, timeout: (calls, []))
    monkeypatch.setattr(ray, "get", lambda answer: answer)
    executor, replies = RayExecutor(study_of(), tmp_path, print), []
    executor._desk = Remote(collect=lambda timeout_s: [pickle.dumps(report)], reply=replies.append)
    executor._events.put(Restarted("a"))
    executor._watchdog.expect("a")
    assert executor.poll(0.0) == [Restarted("a"), report] and not executor._watchdog.expected
    executor.reply(report, Reply(is_end=True))
    assert [pickle.loads(data) for data in replies[0].values()] == [Reply(is_end=True)]
    assert list(replies[0]) == [("a", 1, 0)] and list(executor._watchdog.expected) == ["a"]


# ---- nodes


@pytest.fixture
def cluster(monkeypatch, clock):
    """Nodes that come and go, and how many workers' room an autoscaler was asked for."""
    found = SimpleNamespace(nodes=[], lines=[], asked=[])
    monkeypatch.setattr(ray_executor, "request_resources", lambda bundles: found.asked.append(bundles))
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setattr(ray_executor, "nodes", lambda: found.nodes)
    return found


def test_capacity_follows_the_nodes_of_a_cluster(cluster, clock, tmp_path):
    executor = RayExecutor(study_of(), tmp_path, cluster.lines.append)

    def capacity(nodes):
        cluster.nodes = [{"CPU": n} for n in nodes]
        clock.s += 10
        return executor.capacity()

    for alone in ([], [0.0]):  # the head has no CPUs
        assert capacity(alone) == Capacity(0)
        assert cluster.lines.pop() == "waiting for a node that has room (there is no node)"
    assert capacity([2.0]) == Capacity(2, is_shared=True) and executor.share == {"CPU": 1, "GPU": 0.0}
    assert [capacity(nodes).concurrent for nodes in ([2.0, 1.0], [], [1.0])] == [3, 0, 1]


@pytest.mark.parametrize(
    ("first", "share", "later", "room"),
    [
        ({"CPU": 16.0, "GPU": 1.0}, 1.0, [{"CPU": 64.0}], 0),
        ({"CPU": 16.0, "GPU": 1.0}, 1.0, [{"CPU": 64.0}, {"CPU": 4.0, "GPU": 2.0}], 2),
        ({"CPU": 16.0}, 0.0, [{"CPU": 16.0}, {"CPU": 4.0, "GPU": 1.0}], 20),
    ],
)
def test_whether_workers_have_gpus_is_decided_once(first, share, later, room, cluster, clock, tmp_path, monkeypatch):
    """Nodes that come later have room for workers as they are, or for none."""

    def fastest(programs, cpu, nodes, by):
        return float(any(n.get("GPU") for n in nodes) and sum(n["CPU"] for n in nodes) < 32)

    monkeypatch.setattr(packing, "fastest_share", fastest)
    executor = RayExecutor(study_of(resources={"gpu": "auto"}), tmp_path, cluster.lines.append)
    for cluster.nodes, fits in (([first], None), (later, room)):
        clock.s += 10
        capacity = executor.capacity()
        assert executor.share["GPU"] == share == capacity.gpu
        assert fits is None or capacity.concurrent == fits
    assert bool(room) != any("waiting for a node that has room" in line for line in cluster.lines)


def test_gpus_of_a_cluster_that_no_package_knows_are_not_used(cluster, clock, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(accelerators, "installed", dict)
    executor = RayExecutor(study_of(resources={"gpu": "auto"}), tmp_path, cluster.lines.append)
    for nodes in ([{"CPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}], [{"CPU": 4.0, "GPU": 1.0}]):
        cluster.nodes = nodes
        clock.s += 10
        assert executor.capacity().gpu == 0.0 == executor.share["GPU"]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said == f"gpu: auto: no GPU is used, which needs {NEEDED}"


@pytest.mark.parametrize(
    ("before", "after", "problem", "of"),
    [
        ([], [{"CPU": 0.5}], "resources.cpu: a bank asks for 1, there are 0.5", UserError),
        ([{"CPU": 2}], [], "Ray's node on this machine has died", ExecutorDied),
        ([{"CPU": 2}], [{"CPU": 0.5}], "Ray's node on this machine has died", ExecutorDied),
        ([], [], "Ray's node on this machine has died", ExecutorDied),
    ],
)
def test_a_node_that_was_too_small_is_the_users_mistake_and_one_that_is_gone_is_not(
    before, after, problem, of, cluster, clock, tmp_path, monkeypatch
):
    """Of a Ray that the run started: it has one node, and a bank had room there or had none from the start."""
    monkeypatch.delenv("RAY_ADDRESS")
    executor = RayExecutor(study_of(), tmp_path, cluster.lines.append)
    for cluster.nodes in filter(None, (before,)):
        assert executor.capacity() == Capacity(2)
    cluster.nodes, clock.s = after, clock.s + 10
    with pytest.raises(of, match=problem):
        executor.capacity()


@pytest.mark.parametrize(
    ("dead", "vital"), [(["gcs_server"], "gcs_server"), (["log_monitor", "raylet"], "raylet"), (["log_monitor"], None)]
)
def test_a_process_that_ray_needs_is_missed_before_ray_ends_the_driver(dead, vital, tmp_path, monkeypatch):
    node = SimpleNamespace(dead_processes=lambda: [(kind, "its process") for kind in dead])
    monkeypatch.setattr(ray._private.worker, "_global_node", node)
    executor = RayExecutor(study_of(), tmp_path, print)
    executor._thread = Mock(join=lambda: pytest.fail("Tune may wait for Ray for ever"))
    if vital is None:
        assert executor.poll(0) == []
        return
    with pytest.raises(ExecutorDied, match=f"Ray's {vital} on this machine has died"):
        executor.poll(0)
    executor.__exit__()


def test_an_autoscaler_is_asked_for_one_worker_more_than_work(cluster, clock, tmp_path, monkeypatch):
    """So a cluster grows until nothing waits, and shrinks as trials end. Without a node a kind is asked for too."""
    study = study_of(resources={"cpu": 2, "accelerator_type": "T4"})
    executor = RayExecutor(study, tmp_path, cluster.lines.append)
    monkeypatch.setattr(RayExecutor, "_run_tune", lambda self: None)
    bundle = {"CPU": 2, "accelerator_type:T4": 0.001}
    executor.capacity()
    assert cluster.asked == [[bundle]]
    cluster.nodes = [{"CPU": 4, "accelerator_type:T4": 1}]
    for started in range(3):
        clock.s += 10
        assert executor.capacity() == Capacity(2, is_shared=True)
        assert cluster.asked[-1] == [bundle] * (1 + started)
        executor.start(str(started), on_gpu=False)
    executor._events.put(Finished("0"))
    executor.poll(1)
    clock.s += 10
    executor.capacity()
    assert cluster.asked[-1] == [bundle] * 3


def test_workers_start_by_a_python_in_a_folder_with_a_space(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/my nets/.venv/bin/python")
    monkeypatch.setattr(ray_executor, "leaving_signals", nullcontext)  # which stays in force until the process ends
    monkeypatch.setattr(ray_executor, "init_ray", init := Mock())
    ray_executor.start_ray(None, {})
    given = init.call_args.kwargs["runtime_env"]["py_executable"]
    said = subprocess.check_output(["bash", "-c", f"printf '<%s>' {given} -m worker"], text=True)
    assert said == "</my nets/.venv/bin/python><-m><worker>"
    monkeypatch.setenv("RAY_ADDRESS", "auto")  # its nodes have Pythons of their own
    ray_executor.start_ray(None, {})
    assert "py_executable" not in init.call_args.kwargs["runtime_env"]


def test_a_machine_too_busy_to_start_ray_in_time_gets_a_second_try(monkeypatch):
    late = Exception("The current node timed out during startup. This could happen because ...")
    monkeypatch.setattr(ray, "init", init := Mock(side_effect=[late, None, ConnectionError("no such cluster")]))
    ray_executor.init_ray(address="local")
    assert init.call_args_list == [call(address="local")] * 2
    with pytest.raises(ConnectionError):
        ray_executor.init_ray(address="local")
    assert init.call_count == 3


def test_signals_are_the_drivers_and_what_outlives_a_ray_that_one_ended_starts_no_other(monkeypatch):
    """Tune's thread, where a second Ctrl-C did not wait for it: by itself Ray starts anew at any call."""
    monkeypatch.setattr(ray._private.utils, "set_sigterm_handler", None)
    monkeypatch.setattr(auto_init_hook, "enable_auto_connect", True)
    monkeypatch.setattr(ray, "init", lambda: pytest.fail("a second Ray"))
    with ray_private.leaving_signals():
        child = subprocess.run(["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True)
    assert int(child.stdout.split()[1], 16) == 1 << (signal.SIGHUP - 1), "Ray's own processes would end by it"
    assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with pytest.raises(Exception, match="not"):
        ray.put(1)
