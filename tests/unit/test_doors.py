"""Doors for tasks and families of other packages, and for modules of installed ones."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT, modules
from tests.commands import own_environment
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("here")
SORT = '''
import dataclasses
from typing import ClassVar
from model.fields import option
from model.tasks import Rows

@dataclasses.dataclass(frozen=True, kw_only=True)
class Sort(Rows):
    """Digits, a separator, and the digits in order."""
    name: ClassVar[str] = "sort"
    length: int = option(3, "digits", unit="digits", ge=2, le=6)
    values: int = option(4, "values of a digit", unit="values", ge=2, le=10)

    @property
    def prompt(self): return self.length + 1
    @property
    def answers(self): return self.length
    @property
    def outputs(self): return self.values
    @property
    def vocabulary(self): return self.values + 1
    @property
    def count(self): return self.values ** self.length

    def row(self, number):
        import torch
        digits = [number // self.values**n % self.values for n in range(self.length)]
        return [*digits, number * 0 + self.values, *torch.stack(digits).sort(dim=0).values]
'''
FAMILY = """
import dataclasses
from typing import ClassVar
from model.families.module.spec import Module
from model.fields import option
from model.spec import Spec

@dataclasses.dataclass(frozen=True, kw_only=True)
class Bilinear(Spec):
    family: ClassVar[str] = "bilinear"
    about: ClassVar[str] = "a table of pairs"
    roles: ClassVar[dict] = {"table": "logits of each pair"}
    gain: float = option(1.0, "scale of the logits", ge=0.1, le=10)
    vocabulary, prompt, decoded, answers = 12, 3, 1, 1
    tokens_of, prompt_of, read_answer = Module.tokens_of, Module.prompt_of, Module.read_answer

    def check_task(self): pass
    def shapes(self): return {"table": (12, 12, 11)}
    def folds(self): return []
"""
FORWARD = """
import torch
def expand(spec, theta_SP): return spec.layout.split(theta_SP)
def apply(spec, wide, tokens_STB, first):
    a, b = (tokens_STB[:, n].long() for n in range(2))
    seeds = torch.arange(len(wide["table"]))[:, None]
    logits_SBV = spec.gain * wide["table"][seeds, a, b]
    return [v[:, None] for v in logits_SBV.unbind(-1)]
def kernel(spec): return None
"""
INITIAL = """
import torch
def initial(spec, seed): return torch.randn(spec.params, generator=torch.Generator().manual_seed(seed))
"""
DECLARED = """[adder_search.tasks]
sort = my_tasks:Sort
broken = my_broken:Task
other = my_tasks:Other
[adder_search.families]
bilinear = my_family.spec:Bilinear
"""
SCRIPT = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
from model import make_spec, verify
from model.tasks import make_task
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
QUICK = dict(steps=20, eval_every=20, hold=0, batch=500, lr=0.01, warmup=0)
def trained(spec):
    bank = Bank(spec, [Pair(Recipe(**QUICK), Seed.of(0))])
    while bank.advance(): pass
    return bank.result(0).theta_P
def wrong(call):
    try: call()
    except ValueError as error: return str(error)
gpt = make_spec("module", module="my_nets:GPT", args={"vocabulary": 5}, task={"name": "sort", "length": 3})
theta = trained(gpt)
Checkpoint(gpt, theta).save("gpt")
said = {"rows": verify(gpt, theta).total, "equal": Checkpoint.load("gpt").spec == gpt}
bilinear = make_spec("bilinear", task="modular modulus=11")
said["loss"] = float(torch.linalg.norm(trained(bilinear) - bilinear.initial(0)))
Checkpoint(bilinear, bilinear.initial(0)).save("bilinear")
said["broken"] = wrong(lambda: make_task("broken"))
said["other"] = wrong(lambda: make_task("other"))
said["near"] = wrong(lambda: make_task("srot"))
said["window"] = wrong(lambda: make_spec("bilinaer"))
print(json.dumps(said))
"""


def install(site):
    about = Path(site, "my_package-0.3.dist-info")
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 0.3\n")
    (about / "entry_points.txt").write_text(DECLARED)
    (about / "top_level.txt").write_text("my_tasks\nmy_family\nmy_nets\n")
    Path(site, "my_tasks.py").write_text(SORT)
    Path(site, "my_broken.py").write_text("raise RuntimeError('no licence\\nat all')")
    shutil.copy(Path(modules.__file__).with_name("nets.py"), Path(site, "my_nets.py"))
    family = Path(site, "my_family")
    family.mkdir()
    for name, text in {"__init__": "", "spec": FAMILY, "forward": FORWARD, "initial": INITIAL}.items():
        (family / f"{name}.py").write_text(text)


def run(*words):
    done = subprocess.run(
        [sys.executable, *words], env=own_environment() | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tasks_and_families_of_a_package_train_and_their_checkpoints_name_it():
    install("site")
    said = json.loads(run("-c", SCRIPT, "site").splitlines()[-1])
    assert said["rows"] == 64 and said["equal"] and said["loss"] > 0
    assert said["broken"] == "task broken: my_broken:Task cannot be imported: RuntimeError: no licence"
    assert said["other"].startswith("task other: my_tasks:Other cannot be imported: AttributeError: ")
    assert said["near"] == "unknown task 'srot'; did you mean sort?"
    assert said["window"] == "unknown family 'bilinaer'; did you mean bilinear?"
    for name in ("gpt", "bilinear"):
        assert json.loads(Path(name, "checkpoint.json").read_text())["packages"] == {"my-package": "0.3"}

    # without the package each says in one line what it needs
    for name, missing in {"gpt": "unknown task 'sort'", "bilinear": "unknown family 'bilinear'"}.items():
        with pytest.raises(ValueError) as error:
            Checkpoint.load(name)
        text = str(error.value)
        if name == "gpt":
            missing = "my_nets:GPT: no module 'my_nets' is installed here"
        assert missing in text and text.endswith("; it needs my-package 0.3, which is not installed here")
        assert "\n" not in text
