"""Studies of modules and of tasks of rows: what they record, what knows them, what refuses them."""

import json
import re
import shutil
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest

import search
from search.errors import UserError
from search.study.file import load_study, parse_study
from tests import ROOT
from tests.commands import call, done, python, refusal
from tests.homes import unpictured
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files import trusted
from trainer.recipe.passed import passed

pytestmark = pytest.mark.usefixtures("here")
STUDY = {
    "name": "mine",
    "task": {"name": "parity", "bits": 6, "of": 2},
    "model": {"module": "nets.py:Net"},
    "recipe": {"steps": 300, "batch": 64, "lr": 0.01, "warmup": 0, "eval_every": 50, "hold": 0},
    "seeds": [1, 2, 3],
}


@pytest.fixture(autouse=True)
def _files(here, nothing_trusted):
    shutil.copy(Path(__file__).with_name("nets.py"), "nets.py")
    Path("z3.csv").write_text("0, 1, 2\n1, 2, 0\n2, 0, 1\n")
    with unpictured():
        yield


def test_a_study_of_a_module_is_recorded_verified_and_trained_again_without_its_file():
    ended = search.run(STUDY | {"toggle": ["tied", "hidden=12"]}, home="home")
    rows = ended.configurations
    assert list(rows["model.args.tied"]) == [False, True, False] and list(rows["model.args.hidden"]) == [24, 24, 12]
    assert list(rows["verified"]) == list(rows["grokked"]) and rows["grokked"].sum() > 4
    assert "class Net" not in rows.to_string()
    Path("nets.py").unlink()
    counts = dict(zip(["base", "tied", "hidden"], rows["grokked"], strict=True))
    base = f"{rows['params'][0]} parameters (Net)"
    table = done("table", "mine", "--home", "home")
    for name, saves in (("hidden=12", 2), ("tied", 1)):
        key, less = name.partition("=")[0], rows["params"][0] - rows["params"][saves]
        assert re.search(rf"\| {name} +\| trains.*: {counts[key]}/3 vs {counts['base']}/3 ", table)
        assert re.search(rf"\| {name} +\| {re.escape(base)} +\| yes .*\| {less} +\| mine", table)
    for words in ("best mine", "status mine", "pull mine --best -o b", "report mine -o r.html"):
        done(*words.split(), "--home", "home")
    assert {f.name for f in Path("b").iterdir()} >= {"nets.py", "state_dict.pt", "checkpoint.json"}
    text = done("verify", "b", "--home", "home")
    assert "64/64 VERIFIED" in text and "these are all problems of the task: proved by enumeration" in text
    assert "θ is bitwise the same" in done("rerun", "b")
    Path("nets.py").write_text(Path("b/nets.py").read_text() + "\n# another\n")
    Path("mine.yaml").write_text(json.dumps(STUDY))
    plan = call("run", "mine.yaml", "--dry-run", "--home", "home")
    assert "the 9 recorded seeds of that name are all of other configurations" in plan.stderr
    assert plan.exit_code == 0 and "runs nets.py:Net (SHA-256 " in plan.stdout


def test_a_table_and_a_grid_over_task_and_arguments_are_read():
    table = {"name": "table", "entries": {"file": "z3.csv"}, "train": 0.6}
    space = {"model.args.hidden": {"choice": [4, 8]}, "task.split_seed": {"int": [0, 3]}}
    changes = {"task": table, "space": space, "sampler": {"name": "grid"}}
    study = parse_study(json.dumps(STUDY | changes), "x")
    assert study.planned == 8 and study.base_spec.task.entries == "0,1,2;1,2,0;2,0,1"
    listed = parse_study(json.dumps(STUDY | {"configurations": [{"model": {"args.hidden": 4}}, {}]}), "x")
    assert [dict(spec.args)["hidden"] for spec, _ in listed.listed] == [4, 24]


def test_a_table_is_beside_its_study_and_may_be_that_of_a_models_own_task():
    folder = Path("deep")
    folder.mkdir()
    for name in ("nets.py", "z3.csv"):
        Path(name).rename(folder / name)
    own = {"task": {"name": "table", "entries": {"file": "z3.csv"}, "train": 0.6}}
    for changes in (own, {"model": STUDY["model"] | own}, {"configurations": [{"model": own}]}):
        ((spec, _),) = parse_study(json.dumps(STUDY | changes), "x", folder).listed
        assert spec.task.entries == "0,1,2;1,2,0;2,0,1"


def test_arguments_of_a_configuration_are_laid_over_those_of_the_model_that_it_changes():
    base = parse_study(json.dumps(STUDY | net(width=6)), "x").base_spec
    Checkpoint(base, base.initial(0)).save("best")
    args, of_eight = {"args": {"hidden": 4}}, STUDY["model"] | {"args.width": 6, "args.hidden": 8}
    Path("eight.yaml").write_text(json.dumps(STUDY | {"model": of_eight}))
    for changes in (
        net(width=6) | {"configurations": [{"model": args}]},
        {"model": of_eight, "configurations": [{"model": args}]},
        net(width=6, hidden=8) | {"configurations": [{"model": {"args.hidden": 4}}]},
        {"model": {"checkpoint": "best"} | args},
        {"model": args, "extends": "eight.yaml"},
    ):
        ((spec, _),) = parse_study(json.dumps(STUDY | changes), "x").listed
        assert dict(spec.args) == dict(base.args) | {"hidden": 4}


def test_a_search_over_the_task_is_shown_by_its_fields():
    space = {"task.split_seed": {"choice": [0, 1]}}
    ended = search.run(STUDY | {"space": space, "sampler": {"name": "grid"}, "seeds": [1, 2]}, home="home")
    assert sorted(ended.configurations["task.split_seed"]) == [0, 1]
    done("report", "mine", "-o", "page.html", "--home", "home")
    assert "split_seed" in Path("page.html").read_text()


def net(name="Net", **args):
    return {"model": {"module": f"nets.py:{name}", "args": args}}


def searched(path):
    return {"space": {path: {"choice": [1]}}, "sampler": {"name": "grid"}}


def scales(**models):
    columns = {name: {"model": model, "rate": 0.9} for name, model in models.items()}
    return {"constraints": ["tied", "hidden=12"], "scales": columns, "model": None, "seeds": {"first": 1, "count": 2}}


def staged(*stages, **model):
    wide = {"name": "wide", "model": net(hidden=6)["model"], "recipe": {"steps": 300}, "longer": {}}
    narrow = {"recipe": {"steps": 200, "ramp": 100}, "enough": 0}
    rows = [wide, *({"name": f"stage {n}", **narrow, **stage} for n, stage in enumerate(stages))]
    return {"model": net(**model)["model"], "recipe": STUDY["recipe"] | {"steps": 5_000, "stages": rows}}


TO_THREE, TO_TIED = {"keep": {"units": 3}}, {"into": net(hidden=3, tied=True)["model"]}


RAMP = {"ramp": 100, "ramp_start": 10}
WIDE_FIRST = staged(TO_THREE, hidden=3)
WIDE_FIRST["recipe"]["stages"][0]["recipe"] |= dict.fromkeys(RAMP, 0)
TIED_AT_THE_END = {
    "model": {"base": STUDY["model"], "ties": ["up_bias[0] = 0"]},
    "recipe": STUDY["recipe"],
}


@pytest.mark.parametrize("values", [TIED_AT_THE_END, WIDE_FIRST], ids=["ties", "stages"])
def test_a_study_with_a_ramp_is_planned(values):
    """A plan tries its program for a moment."""
    Path("mine.yaml").write_text(json.dumps(STUDY | values | {"recipe": values["recipe"] | RAMP}))
    assert "was tried here for a moment" in done("run", "mine.yaml", "--dry-run")


FORMS = "FILE.py:Class or package.module:Class"
OF_COLUMNS = "is about columns of digits, which parity bits=6 of=2 has not"
WRONG = {
    "no file": ({"model": {"module": "gone.py:Net"}}, "model.module: gone.py: no such file"),
    "no class": (net("Nett"), "model: nets.py:Nett: there is no nn.Module of that name"),
    "no name": ({"model": {"module": "nets.py"}}, f"model.module: must be {FORMS}, got 'nets.py'"),
    "argument": (net(hiden=3), "model: Net has no argument 'hiden'; did you mean hidden?"),
    "value": (net(hidden="x"), "model.args.hidden: must be of the kind of 24, got 'x'"),
    "vocabulary": (
        net("GPT", vocabulary=2),
        "recipe: nets.py:GPT: it fails on tokens 0 to 2 [8, 7]: IndexError: index out",
    ),
    "scale": (
        scales(small=net(hidden=3)["model"], big={"module": "gone.py:Net"}),
        "scales.big.model.module: gone.py",
    ),
    "rows": ({**scales(small=net()["model"]), "constraints": ["width"]}, "constraints.0: unknown constraint 'width'"),
    "no parts": (staged({"keep": {"heads": 2}}), "recipe: stages[1]: Net with these constraints has units"),
    "class": (staged({"into": net("GPT")["model"]}), "recipe: stages[1]: a Net does not become a GPT"),
    "stages": (staged(TO_THREE, hidden=4), "recipe: stages must lead to the model, and end at another one"),
    "stage": (staged({"into": {"module": "no.py:Net"}}), "recipe.stages[1].into.module: no.py: no such file"),
    "no stage": (
        staged({"into": {"hidden": 3}}),
        "recipe: stages[1].into: give a preset, a family or a module; keys found: hidden",
    ),
    "text": ({"model": {"module": "nets.py:Net", "code": "import os"}}, "model: nets.py:Net is code (SHA-256 "),
    "toggle": ({"toggle": ["width"]}, "toggle.0: unknown constraint 'width' of module; valid: hidden, tied"),
    "space": (
        searched("model.args.hiden"),
        "space.model.args.hiden: unknown field; did you mean model.args.hidden?",
    ),
    "file": (
        {"space": {"model.module": {"choice": ["nets.py:GPT", "more.py:Net"]}}, "sampler": {"name": "grid"}},
        "space.model.module: only code of nets.py is read, got 'more.py:Net'; list configurations instead",
    ),
    "family": ({"model": "57p"}, "task: split_subspace cannot be asked parity bits=6 of=2; these can: module"),
    "task": ({"task": "partiy"}, "task: unknown task 'partiy'; did you mean parity?"),
    "option": ({"task": {"name": "parity", "bit": 3}}, "task: unknown option 'bit' of parity; did you mean bits?"),
    "split": ({"task": {"name": "parity", "train": 1}}, "task: train must leave rows to train on and to hold out"),
    "table": ({"task": {"name": "table", "entries": {"file": "no.csv"}}}, "task.entries.file: no.csv: no such file"),
    "own table": (
        {"model": STUDY["model"] | {"task": {"name": "table", "entries": {"file": "no.csv"}}}},
        "model.task.entries.file: no.csv: no such file",
    ),
    "entries": ({"task": "table"}, "task.entries: must be the table of the operation: entries: {file: FILE}"),
    "carry": ({"recipe": {"carry_mix": 0.5}}, f"recipe: carry_mix {OF_COLUMNS}"),
    "curriculum": ({"recipe": {"curriculum": [[3, 10]]}}, f"recipe: curriculum {OF_COLUMNS}"),
    "finish": ({"recipe": {"finish_above": 0.5}}, "recipe: finish_above is about addition in base 10 with 10 digits"),
    "recycle": ({"recipe": {"recycle_every": 1000}}, "recipe: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_use_is_one_line_that_names_it(name):
    values, expected = WRONG[name]
    assert f"x: {expected}" in refusal(UserError, parse_study, json.dumps(STUDY | values), "x")


def test_a_file_that_others_can_write_runs_with_trust_alone(monkeypatch):
    Path("nets.py").chmod(0o666)
    Path("mine.yaml").write_text(json.dumps(STUDY))
    refused = call("run", "mine.yaml", "--dry-run")
    assert refused.exit_code == 2 and "nets.py is not yours alone, and would be run: --trust runs it" in refused.output
    before = list(trusted.LETS_RUN)
    try:
        done("run", "mine.yaml", "--dry-run", "--trust")
    finally:
        trusted.LETS_RUN[:] = before
    monkeypatch.setattr(trusted, "_here", set())
    done("run", "mine.yaml", "--dry-run")  # it is remembered


def test_the_tutorials_net_study_and_loading_in_torch_alone_work():
    text = (ROOT / "docs/tasks.md").read_text("utf-8")
    net, _, alone = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (study,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    Path("net.py").write_text(net)
    spec = parse_study(study, "mod97.yaml").base_spec
    assert f"{spec.params:,} parameters" in text and f"SHA-256 {spec.digest[:12]}" in text
    Checkpoint(spec, spec.initial(0)).save("best")
    assert python("-c", alone, cwd="best").startswith("tensor([")


def test_modules_are_scales_under_the_names_that_the_study_gives():
    small, big = ({"module": "nets.py:Net", "args": args} for args in ({"width": 6}, {"tied": True}))
    ended = search.run(STUDY | scales(small=small, big=big), home="home")
    rows = ended.configurations
    assert len(rows) == 6 and set(rows["scale"].dropna()) == {"small", "big"}
    table = json.loads(done("table", "mine", "--format", "json", "--home", "home"))
    assert {(cell["constraint"], cell["scale"]) for cell in table} == set(
        product(["tied", "hidden=12"], ["small", "big"])
    )
    params = dict(zip(rows["scale"], rows["params"], strict=True))
    assert {cell["scale"]: cell["params"] for cell in table} == {name: params[name] for name in ("small", "big")}
    assert all(cell["pairs"] == 2 and cell["params_saved"] > 0 for cell in table)


def test_a_module_is_narrowed_in_stages_and_trained_again_without_its_file():
    study = STUDY | staged(TO_THREE, TO_TIED, hidden=3, tied=True) | {"seeds": [1, 2]}
    ended = search.run(study, home="home")
    rows = ended.seeds
    assert [stage.stage for stage in passed(rows["stages"][0])] == ["wide", "stage 0", "stage 1"]
    assert "class Net" not in ended.configurations.to_string()
    Path("nets.py").unlink()
    done("pull", "mine", "--best", "-o", "b", "--home", "home")
    assert "θ is bitwise the same" in done("rerun", "b")
    done("report", "mine", "-o", "r.html", "--home", "home")


def test_a_smaller_module_is_not_inside_a_larger_one():
    with pytest.raises(UserError, match=r"stage 0: up_weight must have shape \(6, 16\), found \(3, 16\)"):
        search.run(STUDY | staged({"into": net(hidden=3)["model"]}, hidden=3), home="home")


def test_a_study_of_a_module_without_stages_has_none():
    assert not parse_study(json.dumps(STUDY), "s.yaml").kind.has_stages


def test_a_module_of_another_packages_study_is_beside_it(here, monkeypatch):
    folder = here / "their_studies"
    folder.mkdir()
    (folder / "__init__.py").touch()
    Path("nets.py").rename(folder / "theirs.py")
    (folder / "own.yaml").write_text(json.dumps(STUDY | {"model": {"module": "theirs.py:Net"}}))
    monkeypatch.syspath_prepend(here)
    monkeypatch.setattr("search.study.file.loaded", lambda group: {"own": import_module("their_studies")})
    for study in (load_study("own"), parse_study(json.dumps({"name": "more", "extends": "own"}), "x")):
        assert study.base_spec.code == (folder / "theirs.py").read_text()


def test_listing_studies_takes_those_of_other_packages_as_they_are(monkeypatch):
    texts = {"bare": "model: {module: none.py:Net}", "odd": '{"about": "a\\u001b[31m\\nb"}'}
    monkeypatch.setattr("search.study.file.shipped_studies", lambda: texts)
    listed = done("studies")
    assert "bare" in listed and "odd" in listed and "\x1b[" not in listed and len(listed.splitlines()) == 2
