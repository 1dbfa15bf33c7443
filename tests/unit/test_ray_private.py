"""What search/run/ray_private.py uses of Ray beyond its public interface is still there, and Ray still reads it."""

import ast
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import ray

from search.run import ray_private
from tests import ROOT
from tests.commands import python

IMPORTS_RAY = re.compile(r"\b(import|from) ray\b")
SOURCE = Path(ray_private.__file__).read_text(encoding="utf-8")
OF_VALUES = {
    "dead_processes": "ray._private.node.Node",
    "reset_cache": "ray._raylet.AuthenticationTokenLoader",
    "get_all_node_info": "ray._raylet.InnerGcsClient",
    "pickled_error_file": "ray.tune.experiment.Trial",
}
"""Methods that are called on a value: the class that has each."""
READERS = {
    "ray._private.utils.set_sigterm_handler": "ray._private.worker",
    "ray._private.auto_init_hook.enable_auto_connect": "ray._private.auto_init_hook",
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER": "ray._private.services",
    "ray.tune.execution.class_cache.ENV_VARS_TO_PROPAGATE": "ray.tune.execution.class_cache",
    "ray.air.execution._internal.RayActorManager._actor_task_failed": "ray.air.execution._internal.actor_manager",
}
"""What is set, and the module of Ray that must read it: setting what nobody reads says nothing."""


def uses(source):
    """Return the dotted names of Ray that a module reads, and those that it sets."""
    tree = ast.parse(source)
    of_ray, read, written = {}, set(), set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        whole = {alias.asname or alias.name: f"{above}{alias.name}" for alias in node.names}
        of_ray |= {name: names for name, names in whole.items() if names.split(".")[0] == "ray"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        first, _, rest = ast.unparse(node).partition(".")
        if node.attr in OF_VALUES:
            read.add(f"{OF_VALUES[node.attr]}.{node.attr}")
        elif first in of_ray and "(" not in rest:
            names = read if isinstance(node.ctx, ast.Load) else written
            names.add(f"{of_ray[first]}.{rest}")
    return read | set(of_ray.values()), written


def missing(names):
    """Return a line for each name that this Ray does not have."""
    gone = []
    for name in sorted(names):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError) as error:
            gone.append(f"Ray {ray.__version__} has no {name}: {error}")
    return gone


READ, WRITTEN = uses(SOURCE)


def test_all_that_is_used_is_there():
    assert len(READ) > 20, READ
    assert missing(READ | WRITTEN) == []


def test_what_is_set_is_read_by_ray():
    assert READERS.keys() == WRITTEN
    unread = {name for name, module in READERS.items() if not reads(module, name.rpartition(".")[2])}
    assert not unread, f"Ray {ray.__version__} does not read these any more"


def reads(module, name):
    """Whether a module's source reads a name, alone or as an attribute."""
    nodes = ast.walk(ast.parse(inspect.getsource(pkgutil.resolve_name(module))))
    loaded = (node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Load))
    return any(name in (getattr(node, "id", None), getattr(node, "attr", None)) for node in loaded)


def test_a_method_takes_what_it_is_given():
    for name, words in {
        "ray.air.execution._internal.RayActorManager._actor_task_failed": ["tracked_actor_task", "exception"],
        "ray._private.utils.set_sigterm_handler": ["sigterm_handler"],
    }.items():
        assert list(inspect.signature(pkgutil.resolve_name(name)).parameters)[-len(words) :] == words


def test_no_other_module_uses_what_is_private():
    files = set((ROOT / "search").rglob("*.py")) - {Path(ray_private.__file__)}
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    found = {str(file): set().union(*uses(text)) for file, text in texts.items() if IMPORTS_RAY.search(text)}
    assert found
    private = {file: [name for name in names if "._" in name] for file, names in found.items()}
    assert not any(private.values()), private


def test_a_new_use_is_seen():
    read, written = uses("import ray\nfrom ray._private import new as x\nray._private.old = 1\nray._private.a.b()\n")
    assert "ray._private.a.b" in read and written == {"ray._private.old"}


GARBAGE = """
import ray
import threading
from search.run.ray_private import shut_down

class Cycle:
    def __init__(self):
        self.own, self.reference = self, ray.put(0)

def work():
    while cycles:
        cycles.pop()
        [[] for _ in range(900)]  # enough that the collector looks now and then
        ended.wait(0.0002)

ray.init(num_cpus=1, include_dashboard=False, logging_level=40)
cycles, ended = [Cycle() for _ in range(60_000)], threading.Event()
threading.Thread(target=work, daemon=True).start()
shut_down()
assert cycles, "too few to outlast the end of Ray"
cycles.clear()
"""


@pytest.mark.full
def test_another_threads_garbage_does_not_end_the_process_with_ray(tmp_path):
    python("-c", GARBAGE, cwd=tmp_path)
