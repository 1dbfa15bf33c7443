"""NVIDIA's GPUs by the core's door: declared, loaded without torch, and asked only where a study wants one."""

import json

import pytest

from gpu import door, driver, guard
from search.errors import UserError
from search.run.packing import check_resources
from search.study.resources import Resources
from tests.commands import python
from trainer.engine.accelerators import Accelerator, installed

LOADED = """
import json, sys
from trainer import Bank, Pair, Recipe, Seed
from model import preset
Bank(preset("57p"), [Pair(Recipe(), Seed.of(1))])
before = [name for name in sys.modules if name.partition(".")[0] == "gpu"]
print(json.dumps(before))
"""
PRICED = """
import json, sys
from trainer.engine.accelerators import accelerator
accelerator().price(None), accelerator().count(), accelerator().remark(0.5)
print(json.dumps([name for name in sys.modules if name in ("torch", "numpy", "gpu.guard", "gpu.door")]))
"""


def test_it_is_declared_and_has_all_that_the_door_asks_for():
    assert installed()["cuda"] is door
    members = {name for name in vars(Accelerator) if not name.startswith("_")}
    assert len(members) == 8 and all(callable(getattr(door, name)) for name in members)


def test_nothing_of_it_is_imported_for_a_bank_on_a_cpu():
    assert json.loads(python("-c", LOADED)) == []


def test_a_plan_needs_neither_torch_nor_the_engine():
    assert json.loads(python("-c", PRICED)) == ["gpu.door"]


def test_what_fails_on_a_gpu_is_a_remark_of_the_trainer():
    """Which a worker reports (tests/unit/test_worker.py)."""
    assert guard.log.name.startswith("trainer.") and guard.log.propagate


def test_more_gpus_than_there_are_is_refused():
    much = len(driver.gpus()[0]) + 4
    with pytest.raises(UserError, match=rf"^resources\.gpu: a bank asks for {much}, there are {much - 4}$"):
        check_resources(Resources(gpu=much))
