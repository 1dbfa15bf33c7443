"""Doors for tasks of other packages, and for modules of installed ones."""

import json
import shutil
from pathlib import Path

import pytest

from tests import ROOT
from tests.commands import python, refusal
from tests.unit.test_doors import install
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("here")
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from model import make_spec, verify
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
gpt = make_spec("module", module="my_nets:GPT", args={"vocabulary": 5}, task={"name": "sort", "length": 3})
recipe = Recipe(steps=20, eval_every=20, hold=0, batch=500, lr=0.01, warmup=0)
bank = Bank(gpt, [Pair(recipe, Seed.of(0))])
while bank.advance(): pass
theta = bank.result(0).theta_P
Checkpoint(gpt, theta).save("gpt")
print(json.dumps({"rows": verify(gpt, theta).total, "equal": Checkpoint.load("gpt").spec == gpt}))
"""


def test_an_installed_module_trains_on_an_installed_task_and_its_checkpoint_names_the_package():
    install("site")
    shutil.copy(Path(__file__).with_name("nets.py"), "site/my_nets.py")
    with Path("site/my_package-0.3.dist-info/top_level.txt").open("a") as tops:
        tops.write("my_nets\n")
    said = json.loads(python("-c", SCRIPT, "site", PYTHONPATH=ROOT).splitlines()[-1])
    assert said == {"rows": 64, "equal": True}
    assert json.loads(Path("gpt/checkpoint.json").read_text())["packages"] == {"my-package": "0.3"}

    # without the package it says in one line what it needs
    text = refusal(ValueError, Checkpoint.load, "gpt")
    assert "my_nets:GPT: no module 'my_nets' is installed here" in text
    assert text.endswith("; it needs my-package 0.3, which is not installed here")
