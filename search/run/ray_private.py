"""All uses of Ray 2.60 beyond its public interface, each with its reason."""

import functools
import gc
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray._private import auto_init_hook, ray_constants
from ray._raylet import AuthenticationTokenLoader, GcsClient  # type: ignore[attr-defined]
from ray.air.execution._internal import RayActorManager
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial

OUT_OF_MEMORY = "OutOfMemoryError"
VITAL = {ray_constants.PROCESS_TYPE_GCS_SERVER, ray_constants.PROCESS_TYPE_RAYLET}
"""Processes without which a node's Ray ends this one too, within a minute and with a line of its own."""


def nodes() -> list[dict[str, float]]:
    """Return the resources of each node that stays.

    `ray.nodes()` lists nodes that are being drained as alive, and `ray.util.state` needs a dashboard.
    """
    draining = ray._private.state.state.get_draining_nodes()
    return [n["Resources"] for n in ray.nodes() if n["Alive"] and n["NodeID"] not in draining]


def error_of(trial: Trial) -> Exception | None:
    """Return the error that a trial's process ended with last; None if there is none.

    `Trial.get_pickled_error` looks in Tune's storage, where the error comes after callbacks were told of it.
    """
    file = trial.pickled_error_file
    if not file or not Path(file).exists():
        return None
    return ray.cloudpickle.loads(Path(file).read_bytes())


def dead_process() -> str | None:
    """Return the name of a vital process that has died, if this process started Ray; None if all live."""
    node = ray._private.worker._global_node
    dead = (kind for kind, _ in node.dead_processes()) if node else ()
    return next((kind for kind in dead if kind in VITAL), None)


def shield(token: Path) -> None:
    """Let a Ray that this process starts listen on loopback alone, and answer only holders of its own token.

    token: the file with it. Ray listens so by itself on macOS and Windows, by a variable that it reads when it is
    imported. A token of the environment, or one that was read before, would take precedence; others may know it.
    """
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"  # for the processes that Ray starts
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):  # without a mode Ray asks for tokens
        os.environ.pop(name, None)
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    AuthenticationTokenLoader.instance().reset_cache()


def shut_down() -> None:
    """Shut Ray down while nobody collects garbage.

    Of what Tune leaves some holds references to Ray's objects, in cycles. A thread that collected them meanwhile, as
    the outbox may, would reach Ray's C++ when it is no more, which ends this process with code 1.
    """
    gc.disable()
    try:
        ray.shutdown()
    finally:
        gc.enable()


def withhold_secrets() -> None:
    """Keep Tune from sending AWS keys of the environment to workers: Ray would write them into its logs."""
    class_cache.ENV_VARS_TO_PROPAGATE -= {n for n in class_cache.ENV_VARS_TO_PROPAGATE if n.startswith("AWS_")}


@contextmanager
def leaving_signals() -> Iterator[None]:
    """Leave signals to the driver, not to a Ray that this process starts in the block.

    Ray would take SIGTERM, exit and clean up nothing of ours; a SIGHUP to all processes of a terminal would end
    Ray's first, and with them this one. And where a signal ended our Ray, Tune's thread must not start a second one
    in the system's folder.
    """
    ray._private.utils.set_sigterm_handler = lambda handler: None
    auto_init_hook.enable_auto_connect = False
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # what is started has it blocked
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_cluster(address: str) -> None:
    """Raise at once for a wrong address or token of a cluster.

    `ray.init` tries for most of a minute, writes to stderr meanwhile, and may exit.
    """
    token = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if token and not Path(token).is_file():  # Ray would exit without a word
        raise FileNotFoundError(f"there is no token at {token} (RAY_AUTH_TOKEN_PATH)")

    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10):
        pass

    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # Ray's C++ writes there whatever the log level
    try:
        GcsClient(address=address).get_all_node_info(timeout=10)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def retry_after_out_of_memory() -> None:
    """Let Tune start a trial again that Ray's memory monitor ended.

    Tune does not know that kind of error, and raises it out of the whole run.
    """
    original = RayActorManager._actor_task_failed
    if hasattr(original, "__wrapped__"):  # an earlier run of this process did it
        return

    @functools.wraps(original)
    def actor_task_failed(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, ray.exceptions.OutOfMemoryError):
            exception = ray.exceptions.RayActorError(error_msg=f"{OUT_OF_MEMORY}: {exception}")
        original(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = actor_task_failed
