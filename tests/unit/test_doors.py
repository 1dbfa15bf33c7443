"""Doors for tasks and families of other packages."""

import json
from pathlib import Path

import pytest

from tests import ROOT
from tests.commands import declare, python
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
from model.fields import option
from model.spec import Spec

@dataclasses.dataclass(frozen=True, kw_only=True)
class Bilinear(Spec):
    family: ClassVar[str] = "bilinear"
    about: ClassVar[str] = "a table of pairs"
    roles: ClassVar[dict] = {"table": "logits of each pair"}
    gain: float = option(1.0, "scale of the logits", ge=0.1, le=10)
    vocabulary, prompt, decoded, answers = 12, 3, 1, 1

    def check_task(self): pass
    def tokens_of(self, a, b): return self.task.written(*self.task.asked(a, b))
    def prompt_of(self, a, b): return self.task.written(a, b)[:3]
    def read_answer(self, answer_AB): return self.task.read(answer_AB)
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
def made(spec):
    from model.spec import Choice
    return Choice(None, "torch: a table has no kernel")
def kernel(spec): return made
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
from model.spec import family_of
from model.tasks import make_task
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.engine.native import choice_of
QUICK = dict(steps=20, eval_every=20, hold=0, batch=500, lr=0.01, warmup=0)
def trained(spec):
    bank = Bank(spec, [Pair(Recipe(**QUICK), Seed.of(0))])
    while bank.advance(): pass
    return bank.result(0).theta_P
def wrong(call):
    try: call()
    except ValueError as error: return str(error)
said = {"rows": make_task({"name": "sort", "length": 3}).problems}
bilinear = make_spec("bilinear", task="modular modulus=11")
theta = trained(bilinear)
said["loss"] = float(torch.linalg.norm(theta - bilinear.initial(0)))
said["asked"] = verify(bilinear, theta).total
Checkpoint(bilinear, theta).save("bilinear")
said["equal"] = Checkpoint.load("bilinear").spec == bilinear
said["why"], said["named"] = choice_of(bilinear).why, family_of({"bilinear": "x"})
said["broken"] = wrong(lambda: make_task("broken"))
said["other"] = wrong(lambda: make_task("other"))
said["near"] = wrong(lambda: make_task("srot"))
said["window"] = wrong(lambda: make_spec("bilinaer"))
print(json.dumps(said))
"""


def install(site):
    declare(site, "my-package", "0.3", DECLARED, "my_tasks\nmy_family\n")
    Path(site, "my_tasks.py").write_text(SORT)
    Path(site, "my_broken.py").write_text("raise RuntimeError('no licence\\nat all')")
    family = Path(site, "my_family")
    family.mkdir()
    for name, text in {"__init__": "", "spec": FAMILY, "forward": FORWARD, "initial": INITIAL}.items():
        (family / f"{name}.py").write_text(text)


def test_tasks_and_families_of_a_package_train_and_their_checkpoints_name_it():
    install("site")
    said = json.loads(python("-c", SCRIPT, "site", PYTHONPATH=ROOT).splitlines()[-1])
    assert said["rows"] == 64 and said["asked"] == 121 and said["equal"] and said["loss"] > 0
    assert said["why"] == "torch: a table has no kernel"
    assert said["named"] is None, "only a family of users' code is named by an option"
    assert said["broken"] == "task broken: my_broken:Task cannot be imported: RuntimeError: no licence"
    assert said["other"].startswith("task other: my_tasks:Other cannot be imported: AttributeError: ")
    assert said["near"] == "unknown task 'srot'; did you mean sort?"
    assert said["window"] == "unknown family 'bilinaer'; did you mean bilinear?"
    assert json.loads(Path("bilinear", "checkpoint.json").read_text())["packages"] == {"my-package": "0.3"}

    # without the package a checkpoint says in one line what it needs
    with pytest.raises(ValueError) as error:
        Checkpoint.load("bilinear")
    text = str(error.value)
    assert "unknown family 'bilinear'" in text and "\n" not in text
    assert text.endswith("; it needs my-package 0.3, which is not installed here")
