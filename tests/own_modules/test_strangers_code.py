"""Code of others on two Ray nodes that see no folder of the driver's: a file's unmodified module, and an installed
package with a task, a module and a family. `make test-full`.
"""

import os
import shutil
import signal

import pytest

from tests import ROOT
from tests.commands import COMMAND, declare, python
from tests.machines import machines
from tests.reference import rows_of, running_study, wait_for_progress
from tests.services import need_services, ray_cluster
from tests.slow.test_extending import BLOCK

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]

STEPS = 40_000
RECIPE = {"steps": STEPS, "hold": STEPS, "batch": 64, "lr": 0.01, "warmup": 0, "eval_every": 500}
"""To its last step, whatever it has learnt: long enough to be killed on the way."""
SHARED = {
    "recipe": RECIPE,
    "seeds": {"first": 5, "count": 2},
    "resources": {"cpu": 1, "gpu": 0, "slots": 1, "save_every": 1},
}
MINE = SHARED | {
    "name": "mine",
    "task": {"name": "parity", "bits": 6, "of": 2},
    "model": {"module": "nets.py:Net"},
    "toggle": ["tied"],
}
INSTALLED = SHARED | {
    "name": "installed",
    "configurations": [
        {"model": {"module": "adder_nets:Tiny", "task": "sort"}, "recipe": {"steps": 2_000, "hold": 2_000}},
        {"model": {"family": "window", "hidden": 3}, "recipe": {"steps": 2_000, "hold": 2_000, "batch": 32}},
    ],
}


def write_package(site):
    """The task, the module and the family of docs/extending.md, as an installed package of its own."""
    package = site / "my_families/window"
    package.mkdir(parents=True)
    for name, _, text in BLOCK.findall((ROOT / "docs/extending.md").read_text("utf-8")):
        if name.startswith("my_families/window/") or name in ("adder_sort.py", "adder_nets.py"):
            (site / name).write_text(text)
    points = {"families": "window = my_families.window:Window", "tasks": "sort = adder_sort:Sort"}
    lines = [f"[adder_search.{group}]\n{point}\n" for group, point in points.items()]
    declare(site, "my-nets", 3, "".join(lines), "my_families\nadder_sort\nadder_nets\n")


@pytest.fixture(scope="module")
def around(tmp_path_factory):
    """The driver's folder, which no node sees, words before its commands, and their environment."""
    need_services()
    folder, installed = tmp_path_factory.mktemp("driver"), tmp_path_factory.mktemp("installed")
    shutil.copy(ROOT / "tests/own_modules/nets.py", folder)
    write_package(folder / "site")
    write_package(installed / "site")
    with machines(3) as (head, *others), ray_cluster(workers=0, machine=head) as cluster:
        known = {"PYTHONPATH": str(installed / "site"), "TORCHINDUCTOR_CACHE_DIR": str(cluster.folder / "cache")}
        nodes = [cluster.add(cpus=1, machine=m, hidden=folder, environment=known) for m in others]
        cluster.wait_for(*nodes)
        own = cluster.environment() | {"PYTHONPATH": str(folder / "site")}
        yield folder, {"environment": own, "program": (*head.inside, COMMAND)}


def killed_and_gone_on(study, folder, options):
    """Train a study whose driver is killed while both nodes train."""
    home = folder / "home"
    with running_study(study, folder, **options) as command:
        wait_for_progress(command, home)
        os.kill(command.process.pid, signal.SIGKILL)
        assert command.wait(20).code == -signal.SIGKILL
    assert not all(row.is_final for row in rows_of(home, study["name"])), "nothing was left to train"
    with running_study(study, folder, **options) as command:
        command.done()


def check(study, folder, options):
    """The records are those of a training without faults, to the bit: compared in a Python that has the package too."""
    program = f"check_whole(Path('home'), {study}, expected({study}))"
    words = f"from pathlib import Path\nfrom tests.reference import check_whole, expected\n{program}"
    python("-c", words, cwd=folder, PYTHONPATH=f"{ROOT}:{options['environment']['PYTHONPATH']}")


@pytest.mark.parametrize("study", [MINE, INSTALLED], ids=["a file's", "a package's"])
def test_a_study_of_their_code_is_killed_and_gone_on_with(study, around):
    folder, options = around
    killed_and_gone_on(study, folder, options)
    check(study, folder, options)
