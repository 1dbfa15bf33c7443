"""Doors of a stranger's package: a kind of study, readers of checkpoints, provers (commands: test_cli.py)."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from model import PRESETS
from search import plugins
from search.errors import UserError
from search.store import verdicts
from search.study.checkpoints import load_any
from search.study.file import recorded_study
from tests.bad_studies import GOOD
from tests.commands import declare, fails_with_one, python
from tests.homes import RIGHT, Recorder, empty_home, quickly, study_of
from trainer import Bank, Pair, Recipe, Seed
from trainer.finishing import NOBODY

pytestmark = pytest.mark.usefixtures("here")
WALK = """
from pydantic import Field
from search.study.kind import Kind
from search.study.space import Strict

class Walk(Strict):
    "A walk from the model of the file."
    steps: int = Field(3, ge=1, description="how many; unit: configurations")

class WalkKeys(Strict):
    walk: Walk | None = Field(None, description="a walk through the field of recipes")

class Walker(Kind):
    asked_by, keys, proposes, round_size = ("walk",), WalkKeys, True, 1

    def plan_round(self, recorded):
        return [f"  walk            {self.study.walk.steps} steps"]
"""
SCRIPT = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[1])
from search.cli import main
said = []
for words in sys.argv[2:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            main(words.split())
        except SystemExit as end:
            said.append([end.code, out.getvalue()])
print(json.dumps(said))
"""


def test_a_strangers_kind_of_study_is_a_key_of_study_files():
    """Kinds that are put in their places in this process: test_kinds.py."""
    declare("site", "adder-walk", 1, "[adder_search.proposers]\nwalk = adder_walk:Walker\n")
    Path("site/adder_walk.py").write_text(WALK)
    for name, steps in {"w": 7, "none": 0}.items():
        Path(f"{name}.yaml").write_text(f"name: w\nmodel: 57p\nseeds: {{count: 4}}\nwalk: {{steps: {steps}}}\n")
    words = ["keys walk", "run w.yaml --dry-run", "run none.yaml --dry-run"]
    keys, plan, wrong = json.loads(python("-c", SCRIPT, "site", *words).splitlines()[-1])
    assert keys[0] == 0 and "walk.steps  how many; unit: configurations [3]" in keys[1]
    assert plan[0] == 0 and "  walk            7 steps\n" in plan[1] and " a round at " in plan[1]
    assert wrong[0] == 2 and wrong[1].startswith("error: none.yaml: walk.steps: ")


def readers_of(monkeypatch, **functions):
    """Readers of strangers' packages, in the order given."""
    monkeypatch.setattr(plugins, "added", lambda group: {n: EntryPoint(n, f"m:{n}", group) for n in functions})
    monkeypatch.setattr(EntryPoint, "load", lambda point: functions[point.name])


def test_a_file_is_what_the_first_reader_makes_of_it_that_knows_it(monkeypatch):
    def refuse(path):
        raise ValueError(f"{path}: no numbers")

    readers_of(monkeypatch, a=refuse, b=lambda path: f"read {path}", c=lambda path: 1 / 0)
    assert load_any(Path("x.npz")) == "read x.npz"
    readers_of(monkeypatch, a=refuse, b=refuse)
    with pytest.raises(ValueError, match=r"^x.npz: no numbers\nx.npz: no numbers$"):
        load_any(Path("x.npz"))
    readers_of(monkeypatch)
    with pytest.raises(ValueError, match=r"^x.npz: is no checkpoint of ours, and nothing installed reads others$"):
        load_any(Path("x.npz"))


def test_a_net_is_decided_by_the_first_prover_that_knows_it(monkeypatch):
    limits = []

    def decide(spec, theta_P, limit_s):
        limits.append(limit_s)
        return {"verdict": spec} if spec == "known" else None

    readers_of(monkeypatch, a=lambda *given: None, b=decide)
    assert [verdicts.settle(None, spec, SimpleNamespace()) for spec in ("known", "other")] == [
        {"verdict": "known"},
        None,
    ]
    assert limits == [verdicts.SOON_S] * 2


def test_a_seed_that_is_nearly_right_is_finished_by_a_package_or_refused_before_it_trains(monkeypatch):
    """A study that asks for it is refused where nobody here does it."""
    recipe = Recipe(steps=2, eval_every=1, batch=4, hold=0, finish_above=0.0)
    given = []

    def finish(spec, ties, theta_P, seed):
        given.append(theta_P)
        return theta_P

    monkeypatch.setattr("trainer.finishing.points", lambda group: {"a": SimpleNamespace(load=lambda: finish)})
    bank = Bank(PRESETS["57p"], [Pair(recipe, Seed.of(1))])
    while bank.advance():
        pass
    assert len(given) == 1 and torch.equal(given[0], bank.result(0).theta_P)
    monkeypatch.setattr("trainer.finishing.points", lambda group: {})
    Path("some.yaml").write_text(GOOD + "recipe: {finish_above: 0.5}\n")
    said = fails_with_one(2, "run", "some.yaml")
    assert said == f"some.yaml: {NOBODY}" and not Path("adder-runs").exists()

    def fails():
        raise RuntimeError("no such device\nand more")

    monkeypatch.setattr("trainer.finishing.points", lambda group: {"a": SimpleNamespace(load=fails, value="b:c")})
    said = fails_with_one(2, "run", "some.yaml")
    assert said == "some.yaml: finish_above: a: b:c cannot be imported: RuntimeError: no such device"


def test_what_mlflow_has_as_models_is_written_by_packages(monkeypatch):
    """Of each seed that grokked, once it is decoded, and of a study at its end."""
    seeds, studies = [], []
    writer = SimpleNamespace(
        write_seed=lambda tracker, run, seed, decoded: seeds.append((seed.result.pair.seed.init_seed, decoded.correct)),
        write_study=lambda records, tracker, rows, configurations: studies.append((len(rows), len(configurations))),
    )
    readers_of(monkeypatch, a=writer)
    monkeypatch.setattr("search.study.kind.loaded", lambda group: {})
    with quickly():
        recorder = Recorder(empty_home("runs"), study_of())
        recorder.seeds((1, 2, 3), grokked=(2, 3))
        recorder.write_pages()
        recorder.done()
    assert sorted(seeds) == [(2, RIGHT), (3, RIGHT)] and studies == [(3, 1)]


@pytest.mark.parametrize("unused", [{"walk": None, "strolls": []}, {"stop": {"quiet": False}}, {}])
def test_a_study_that_used_nothing_of_a_package_is_read_without_it(unused):
    """Its record has the keys of all kinds and rules that there were."""
    study = study_of()
    recorded = study.model_dump(mode="json", by_alias=True)
    recorded |= unused | {"stop": recorded["stop"] | unused.get("stop", {})}
    assert recorded_study(json.dumps(recorded), "a record") == study
    with pytest.raises(UserError, match=r"^a record: walk: unknown key"):
        recorded_study(json.dumps(recorded | {"walk": {"steps": 3}}), "a record")
