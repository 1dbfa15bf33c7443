"""The examples of docs/extending.md, written into a copy of the project, work there."""

import json
import math
import re
import shutil

import pytest

from benchmarks.startup import record
from search.store.home import Home
from tests import PLUGINS, ROOT
from tests.commands import declare, python

BLOCK = re.compile(r"```(?:python|toml)\n# (\S+?)(, below OPTIMISERS)?\n(.*?)```", re.DOTALL)
DECLARED = {
    "adder-shares": "pyproject.toml",
    "adder-sort": "sorting/pyproject.toml",
    "my-families": "families/pyproject.toml",
}
SCRIPT = """
import json
from model import make_spec, preset
from search.study.file import parse_study
from trainer import MEASURES, Bank, Pair, Recipe, Seed

def loss(spec, optimiser, lr, steps, compiled):
    recipe = Recipe(steps=steps, eval_every=steps, batch=64, optimiser=optimiser, lr=lr, warmup=0)
    bank = Bank(spec, [Pair(recipe, Seed.of(1))], compiled=compiled)
    while bank.advance():
        pass
    assert bank.result(0).probes_ER.shape[1] == len(spec.probes())
    return float(bank.result(0).curve_EM[0, MEASURES.index("loss")])

spec, line = make_spec("window", hidden=8), make_spec("window", hidden=8, line=True)
study = "name: x\\nmodel: {family: window}\\nseeds: {first: 0, count: 2}\\ntoggle: [line]\\n"
print(json.dumps({
    "saved": spec.params - line.params, "constraints": list(spec.constraints()), "probes": list(spec.probes()),
    "losses": [loss(spec, "adamw", 0.02, 400, False), loss(spec, "signs", 0.01, 400, False)],
    "by engine": loss(preset("57p"), "signs", 0.003, 10, True), "study": parse_study(study, "x.yaml").name,
}))
"""

SORTING = """
import json
from model import verify
from own_modules import load_module
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint

spec = load_module("adder_nets.py:Tiny", task={"name": "sort", "train": 0.8})
recipe = Recipe(steps=400, eval_every=100, batch=32, lr=0.01, warmup=0, hold=0, weight_decay=0.1)
bank = Bank(spec, [Pair(recipe, Seed.of(n)) for n in range(4)])
while bank.advance():
    pass
best = max((bank.result(n) for n in range(4)), key=lambda result: result.best_exact)
saved = Checkpoint(spec, best.theta_P)
print(json.dumps({
    "verified": verify(spec, best.theta_P).verified, "packages": saved.as_dict()["packages"],
    "saves": spec.params - spec.constrained("tied").params,
}))
"""


pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the packages with the page's files, and its command's package beside them."""
    folder = tmp_path_factory.mktemp("extended")
    for package in ("model", "trainer", "search", *PLUGINS, "studies"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "adder_search.py", folder)
    blocks = BLOCK.findall((ROOT / "docs/extending.md").read_text("utf-8"))
    assert len(blocks) >= 9
    for name, is_part, text in blocks:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        above, mark, below = (path.read_text("utf-8") if is_part else "").partition("WRAPPERS: ")
        path.write_text(above + text + mark + below, "utf-8")
    for package, declares in DECLARED.items():
        text = (folder / declares).read_text("utf-8")
        group, name, where = re.search(r'^\[project.entry-points."(.*)"\]\n(\w+) = "(.*)"', text, re.M).groups()
        declare(folder, package, 1, f"[{group}]\n{name} = {where}\n", re.split("[.:]", where)[0])
    return folder


def test_a_family_with_a_constraint_a_probe_and_an_optimiser_trains(copy):
    answer = json.loads(python("-c", SCRIPT, cwd=copy))
    assert answer["saved"] == 11 and answer["constraints"] == ["line"] and answer["study"] == "x"
    assert answer["probes"] == ["straight"] and 0 < answer["by engine"] < 20
    assert max(answer["losses"]) < math.log(10), "better than chance"
    assert "window: an MLP over two columns and the token before" in python("-m", "adder_search", "models", cwd=copy)
    listed = python("-m", "adder_search", "keys", cwd=copy)
    assert "adamw, adam, lion, sgd, signs" in listed


def test_a_task_and_a_module_of_ones_own_grok_and_their_checkpoint_names_the_package(copy):
    answer = json.loads(python("-c", SORTING, cwd=copy))
    assert answer["verified"] and answer["packages"] == {"adder-sort": "1"} and answer["saves"] == 80


def test_a_command_of_another_package_reads_the_records(copy):
    record(Home(copy / "adder-runs"), 20)
    assert re.search(r"\d+ of \d+", python("-m", "adder_search", "shares", "startup", cwd=copy))
