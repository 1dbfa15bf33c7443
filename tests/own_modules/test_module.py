"""The family `module`: bank and loop, what it counts, its arguments, its file, and what it refuses."""

import inspect
import json
import pickle
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from pandas import DataFrame
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from model import make_spec, preset, preset_name, trust, verify
from model.parts import inside, keep, only
from model.tasks.rows import Modular
from model.tied import Tied, constrained
from model.transfer import transfer
from model.trust import Untrusted, digest_of
from own_modules import load_module, loading
from own_modules.loading import parameters, template
from own_modules.tapes import choice
from search.analysis.frames import as_columns
from search.run.speeds import fastest_share
from search.study.trial import Configuration
from tests import CERTIFICATES
from tests.banks import Lesson, engine_tokens, finish
from tests.commands import refusal
from tests.unit import test_problems
from trainer import Bank, Pair, Recipe, Seed
from trainer.bank.bank import backend_of
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.data.hard_examples import with_errors
from trainer.data.problems import selection
from trainer.engine.build import GivenUp
from trainer.engine.native import EngineBackend, choice_of, has_kernel
from trainer.engine.torch_backend import TorchBackend
from trainer.files import trusted
from trainer.recipe.stages import Keep, road_of
from trainer.recipe.teacher import Teacher, teacher_of
from trainer.step import step
from trainer.step.schedule import hyper_of

FILE = Path(__file__).with_name("nets.py")
TASK = "modular modulus=11"
LONG = "subtraction base=3 digits=3"
UNITS_FIRST = f"{LONG} units_first=true"
QUICK = {"steps": 20, "eval_every": 10, "hold": 0, "warmup": 2, "lr": 0.01, "batch": 32}


@pytest.fixture(autouse=True)
def _trusts_the_file(nothing_trusted, monkeypatch):
    monkeypatch.setattr(trust, "LETS_RUN", [lambda digest: True])


def spec_of(name="Net", task=TASK, **args):
    return load_module(f"{FILE}:{name}", args, task)


NETS = {"Net": TASK, "GPT": LONG}


# What is asked


def test_sums_are_asked_as_people_write_them_or_from_their_units_on():
    a, b = torch.tensor([22]), torch.tensor([4])  # in base three 211 and 011; their difference is 200
    asked = {LONG: [2, 1, 1, 3, 0, 1, 1, 4, 0, 2, 0, 0], UNITS_FIRST: [1, 1, 2, 3, 1, 1, 0, 4, 0, 0, 2, 0]}
    for task, tokens in asked.items():
        spec = spec_of("GPT", task)
        assert [int(token) for token in spec.task.written(a, b)] == tokens
        assert [int(token) for token in spec.prompt_of(a, b)] == tokens[:8]
    with pytest.raises(ValueError, match="units_first is asked of modules; rope has an order of its own"):
        make_spec("rope", task=UNITS_FIRST)


@pytest.mark.parametrize("task", [LONG, UNITS_FIRST, "addition base=3 digits=2 terms=3", "copy base=3 digits=3",
                                  "reverse base=2 digits=5", "prefix base=3 digits=4"])  # fmt: skip
def test_a_written_answer_is_read_as_the_number_that_it_is(task):
    spec = spec_of("GPT", task)
    a, b = torch.tensor(spec.task.pairs()).T
    answer_AB = torch.stack(spec.task.written(a, b))[spec.prompt :]
    assert torch.equal(spec.read_answer(answer_AB), spec.task.value(a, b))
    answer_AB[0] = spec.task.outputs  # a sign, or another token that is no digit
    assert (spec.read_answer(answer_AB) == -1).all()
    assert verify(spec, spec.initial(0)).total == spec.task.problems


# Training


@pytest.mark.parametrize("name", NETS)
def test_a_bank_gives_each_seed_the_loss_and_the_gradient_of_a_loop(name):
    spec = spec_of(name, NETS[name])
    theta_SP = torch.stack([spec.initial(seed) for seed in range(3)])
    a, b = selection(spec.task, 33)
    tokens_1TB = step.tokens_of(spec, a, b)
    tokens_STB = torch.cat([tokens_1TB.roll(shift, 2) for shift in range(3)])[..., :20]
    for tokens in (tokens_1TB, tokens_STB):
        grad, loss = torch.func.grad_and_value(lambda t, tokens=tokens: step.loss(spec, t, tokens).sum())(theta_SP)
        total = 0.0
        for seed in range(3):
            torch.manual_seed(seed)
            module = type(template(spec))(**dict(spec.args))
            own = tokens[min(seed, len(tokens) - 1)].T.long()
            logits = module(own[:, :-1])
            logits = logits[:, None] if logits.dim() == 2 else logits[:, -spec.answers :]
            value = F.cross_entropy(logits.flatten(0, 1), own[:, spec.prompt :].flatten())
            value.backward()
            slope_P = torch.cat([p.grad.flatten() for p in module.parameters()])
            torch.testing.assert_close(grad[seed], slope_P, rtol=1e-3, atol=1e-5)
            total += float(value.detach())
        assert abs(float(loss) - total) < 1e-3


def test_an_optimiser_a_freeze_and_ties_work_as_for_any_family():
    spec = spec_of()
    fields = QUICK | {"optimiser": "lion", "freeze": ((0, "table_weight"),), "batch": 200}
    bank = finish(Bank(spec, [Pair(Recipe(**fields), Seed.of(0))]))
    before, after = (spec.layout.split(t[None]) for t in (spec.initial(0), bank.result(0).theta_P))
    assert torch.equal(before["table_weight"], after["table_weight"])
    assert not torch.equal(before["up_weight"], after["up_weight"])
    base = spec_of(vocabulary=11)  # of as many logits, one less than the task has tokens
    tied = Tied(base=base, ties=constrained(base, ["up_bias[0] = 0", "up_bias[1] = -up_bias[2]"]))
    assert tied.params == base.params - 2 and make_spec(**tied.as_dict()) == tied
    bank = finish(Bank(tied, [Pair(Recipe(**QUICK), Seed.of(0))]))
    assert bank.backend.name == "native" and tied.logits == 11
    assert verify(tied, bank.result(0).theta_P).total == 121


# What it is


def test_parameters_count_once_and_arguments_are_constraints():
    free, tied = spec_of(), spec_of(tied=True)
    module = template(tied)
    assert tied.params == sum(p.numel() for p in module.parameters()) == free.params - 12 * 8
    assert free.constrained("tied") == tied == free.toggled("tied") and tied.without("tied") == free
    assert free.toggled("hidden", 12) == spec_of(hidden=12)
    assert tied.applied() == {"tied": True} and tied.saved_by("tied") == 96
    assert preset_name(tied) == f"{tied.params} parameters (Net with tied) {TASK}"
    assert spec_of(vocabulary=12, width=8) == free and make_spec(**free.as_dict()) == free
    assert pickle.loads(pickle.dumps(tied)) == tied
    with pytest.raises(ValueError, match="unknown constraint 'width'"):
        free.toggled("width")


def test_a_whole_number_is_its_float_and_a_list_its_tuple():
    spec, recipe = spec_of("Scaled", scale=1, sizes=[8, 24]), Recipe()
    assert spec == spec_of("Scaled") and spec.applied() == {}
    assert Configuration(spec, recipe).key == Configuration(spec_of("Scaled"), recipe).key
    shifted = [spec_of("Scaled", shifts=shifts) for shifts in ([1, 2], [1.0, 2.0])]
    assert len({Configuration(spec, recipe).key for spec in shifted}) == 1
    assert spec.params == spec_of("Copying").params == spec_of("Copying", sizes=[8, 24]).params == spec_of().params
    less = spec.toggled("sizes", [4, 12])
    assert less.applied() == {"sizes": (4, 12)} and less.toggled("sizes") == spec
    with pytest.raises(ValueError, match=r"args\.scale must be of the kind of 1\.0, got 1000"):
        spec_of("Scaled", scale=10**400)


@pytest.mark.parametrize("form", [as_columns, lambda frame: frame], ids=["file", "study"])
def test_a_row_has_a_list_as_a_file_and_a_study_have_it(form):
    specs = spec_of("Scaled"), spec_of("Scaled", sizes=[4, 12])
    frame = form(DataFrame([spec.shown() | spec.record_columns() for spec in specs]))
    base, less = (type(specs[0]).from_record(row, 1) for row in frame.to_dict("records"))
    assert less.applied() == {"sizes": (4, 12)} and less.without("sizes") == base


def test_a_file_that_changed_is_another_model(tmp_path):
    text = FILE.read_text()
    copy = tmp_path / "nets.py"
    keys = set()
    for content in (text, text + "\n# another line"):
        copy.write_text(content)
        spec = load_module(f"{copy}:Net", task=TASK)
        assert spec.code == content
        keys.add(Configuration(spec, Recipe()).key)
    assert len(keys) == 2
    assert not any("class Net" in str(value) for value in Configuration(spec, Recipe()).as_params().values())


def test_what_a_file_makes_once_has_numbers_where_a_worker_is_the_first_to_read_it():
    """Parameters are counted without memory, and nothing of that is kept."""
    sent = pickle.dumps(spec_of("Kept"))
    for cache in (loading._loaded, loading.template):
        cache.cache_clear()
    spec = pickle.loads(sent)
    assert template(spec)(torch.tensor([[1, 2, 11]])).isfinite().all()
    spec.check_trained()


def test_a_file_that_runs_once_alone_is_trained_saved_and_sent(tmp_path, monkeypatch):
    """As one that makes a folder, or registers an operation."""
    monkeypatch.setattr(sys, "runs", [], raising=False)
    file = tmp_path / "once.py"
    file.write_text(f"{FILE.read_text()}\nimport sys\nsys.runs.append(1)\nassert len(sys.runs) == 1\n")
    for name, task in NETS.items():
        spec = load_module(f"{file}:{name}", task=task)
        Pair(Recipe(), Seed.of(0)).check(spec)
        Checkpoint(spec, spec.initial(3)).save(tmp_path / name)
        assert Checkpoint.load(tmp_path / name).spec == spec
        runs = len(sys.runs)
        assert spec.replaced({"width": 4}).params < spec.params and len(sys.runs) == runs
    sent = pickle.dumps(spec)
    sys.runs.clear()  # as in a process of its own
    for cache in (loading._loaded, loading._digest_again, loading.template):
        cache.cache_clear()
    assert template(pickle.loads(sent))(torch.tensor([[1, 2, 4]])).isfinite().all()


ALONE = """
import importlib, json, sys, torch
answers = {}
for name, tokens in json.load(sys.stdin).items():
    sys.path.insert(0, name)
    sys.modules.pop("nets", None)
    spec = json.load(open(f"{name}/checkpoint.json"))["spec"]
    net = getattr(importlib.import_module("nets"), name)(**spec["args"])
    net.load_state_dict(torch.load(f"{name}/state_dict.pt", weights_only=True))
    answers[name] = net(torch.tensor(tokens)).tolist()
print(json.dumps(answers))
"""


def test_a_checkpoint_loads_in_torch_alone(tmp_path):
    asked, expected = {}, {}
    for name, task in NETS.items():
        spec = spec_of(name, task)
        theta = spec.initial(3)
        Checkpoint(spec, theta).save(tmp_path / name)
        loaded = Checkpoint.load(tmp_path / name)
        assert loaded.spec == spec and torch.equal(loaded.theta_P, theta)
        tokens = torch.arange(2 * spec.prompt).reshape(2, -1) % spec.task.vocabulary
        own = {name: t[0] for name, t in parameters(spec, theta[None]).items()}
        asked[name], expected[name] = tokens.tolist(), functional_call(template(spec), own, (tokens,))
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE], input=json.dumps(asked),
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = json.loads(done.stdout)
    assert answers.keys() == NETS.keys()
    for name in NETS:
        torch.testing.assert_close(torch.tensor(answers[name]), expected[name])


def test_a_checkpoints_state_is_not_written_to_what_a_file_keeps():
    spec = spec_of("Lent")
    first_P = spec.initial(3)
    assert spec.files(first_P + 1) and torch.equal(spec.initial(3), first_P)


@pytest.mark.parametrize("name", ["Padded", "Frequent", "Unread", "Plain", "Reseeded"])
def test_a_checkpoint_is_read_whose_net_is_no_longer_trained(name, tmp_path):
    """Its slopes or draws are refused, and its answers are right."""
    spec = spec_of(name)
    Checkpoint(spec, spec.initial(3)).save(tmp_path / name)
    loaded = Checkpoint.load(tmp_path / name)
    assert verify(loaded.spec, loaded.theta_P).total == 121
    with pytest.raises(ValueError, match=r"slope|drawn outside|all seeds"):
        Pair(Recipe(), Seed.of(0)).check(loaded.spec)


# From module to module


def test_parts_that_are_kept_compute_what_is_left_when_the_others_are_cut():
    spec = spec_of(hidden=5)
    theta_P = spec.initial(7)
    cut_P = torch.where(torch.tensor(only(spec, "units", [3, 1])) == 0, 0, theta_P)
    smaller, index = keep(spec, "units", [3, 1])
    assert smaller == spec_of(hidden=2) and smaller.answers_as(theta_P[index][None], spec, cut_P[None])
    assert not smaller.answers_as(theta_P[index][None], spec, theta_P[None])


def test_parts_without_which_a_module_computes_something_else_are_not_dropped():
    Keep("units", 2).check(spec_of(hidden=5))
    with pytest.raises(ValueError, match="with fewer units the net must compute what it does with the others at zero"):
        Keep("units", 2).check(spec_of("Averaging", hidden=5))
    with pytest.raises(ValueError, match=r"nets\.py:Crowd: it fails on tokens"):
        Keep("units", 2).check(spec_of("Crowd", hidden=5))


def test_a_tied_module_is_inside_the_free_one_and_is_freed_exactly():
    free, tied = spec_of(), spec_of(tied=True)
    ties, order = inside(free, tied)
    theta_P = tied.initial(3)
    numbers_1R = theta_P[order][None]
    assert Tied(base=free, ties=ties).answers_as(numbers_1R, tied, theta_P[None]) and len(order) == tied.params
    moved = transfer(tied, theta_P, free)
    assert moved.how == ("folded: tied taken off",)
    assert free.answers_as(moved.theta_Q[None], tied, theta_P[None])
    louder = spec_of("Louder"), spec_of("Louder", tied=True)
    with pytest.raises(ValueError, match="its θ is not the larger model's with ties"):
        inside(*louder)
    assert not louder[1].folds()
    assert not spec_of("Silent", twice=True).folds()


# What is refused


WRONG = {
    "Twice": "it must return logits [21, 3, V] or [21, V] for tokens [21, 3], not [21, 12, 1, 1]",
    "Pair": "it must return a tensor of logits, and returns tuple",
    "Few": "it has 6 logits, and modular modulus=11 has 11 answers",
    "Dropping": "drop is dropout, whose draws no record could repeat: set p=0",
    "Noisy": "two calls on the same tokens differ: it draws at random, or keeps what it has seen",
    "Counting": "a call changes buffer calls: seeds would share it",
    "Clamping": "a call changes parameter temperature: only training may",
    "Late": "a call changes buffer seen: seeds would share it",
    "Padded": "table has padding_idx, whose slopes differ where seeds train together: None is off",
    "Frequent": "table has scale_grad_by_freq, whose slopes differ where seeds train together: False is off",
    "Unread": "two seeds at once do not give the slope that each gives alone",
    "Normed": "norm keeps running statistics, which are no parameters: use LayerNorm",
    "Mixing": "an answer depends on the other problems of the batch",
    "Writing": "it changes the tokens that it is given",
    "Frozen": "parameter up.weight is not trained: make it a buffer",
    "Double": "parameter table.weight must be float32, and is torch.float64",
    "Aliased": "parameters table.weight and head.weight share memory: share the parameter itself",
    "Overlapping": "parameters table.weight and head.weight share memory: share the parameter itself",
    "Python": "parameter scale is not drawn by torch's generator: no seed repeats it",
    "Features": "buffer features is drawn at random, and all seeds share it: make it a parameter",
    "Lucky": "buffer luck is drawn at random, and all seeds share it: make it a parameter",
    "Read": "it answers by numbers drawn outside parameters and buffers, which no record has",
    "Plain": "it answers by numbers drawn outside parameters and buffers, which no record has",
    "Reseeded": "all seeds draw the same once its code has seeded the generator: it must not",
    "HalfSeeded": "all seeds draw the same once its code has seeded the generator: it must not",
    "Branching": "it cannot be trained many seeds at once: RuntimeError: vmap: It looks like you're attempting to use",
    "Bidirectional": "it reads the answer that it is asked for: a position must see earlier tokens alone",
    "Required": "args.size is missing: Required has no default for it",
    "Empty": "it has 0 parameters, and 1 to 4,000,000 can be trained",
    "Broken": "constraints must be arguments of the class with their off values",
    "Uncounted": 'parts must be like {"units": ("hidden", {"up.weight": 0, "up.bias": 0, "down.weight": 1})}, of what',
    "Elsewhere": "parts: with hidden=23 up_bias must be [24], and is [23]",
    "OneMore": "parts: with hidden=3 up_weight must be [3, 16], and is [4, 16]",
    "Raising": "cannot be built: RuntimeError: no such device",
    "function": "there is no nn.Module of that name",
    "Missing": "there is no nn.Module of that name",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_module_that_cannot_be_a_family_is_refused_by_name_in_one_line(name):
    task = LONG if name == "Bidirectional" else TASK
    text = refusal(ValueError, lambda: Pair(Recipe(), Seed.of(0)).check(spec_of(name, task)))
    assert WRONG[name] in text and name in text


@pytest.mark.parametrize("name", ["Zeros", "Ramped", "SideBySide"])
def test_parameters_may_begin_undrawn_and_lie_side_by_side_in_memory(name):
    Pair(Recipe(), Seed.of(0)).check(spec_of(name))


def test_a_net_that_writes_to_its_tokens_leaves_problems_as_they_are():
    spec = spec_of("Writing")
    before = loading.problems_of(spec.task).clone()
    assert spec.logits == 12 and torch.equal(loading.problems_of(spec.task), before)


def test_a_strangers_task_that_fails_is_one_line():
    class Failing(Modular):
        def written(self, a, b):
            raise RuntimeError("no table\nand more")

    refused = refusal(ValueError, spec_of(task=Failing(modulus=11)).check_asked)
    assert refused.endswith(":Net: it cannot be asked its task: RuntimeError: no table")


@pytest.mark.parametrize("modulus", [9, 10, 11])
def test_a_net_needs_rows_for_the_tokens_alone_that_it_reads(modulus):
    """It is tried on problems of its task: = is in one place."""
    task, pair = f"modular modulus={modulus}", Pair(Recipe(), Seed.of(0))
    spec = spec_of(task=task, vocabulary=modulus)
    pair.check(spec)
    theta_1P = spec.initial(0)[None]
    assert spec.logits == modulus and spec.answers_as(theta_1P, spec, theta_1P)
    refused = refusal(ValueError, pair.check, spec_of("GPT", task, vocabulary=modulus))
    assert f"it fails on tokens 0 to {modulus} [" in refused


VALUES = {
    "object": ({"args": {"tied": {}}}, "args.tied must be of the kind of False, got {}"),
    "field": ({"hidden": 3}, "unknown field 'hidden' of a module; valid: args, module, task"),
    "args": ({"args": 3}, "args must be a mapping of the class's arguments, got 3"),
    "no text": ({"module": "gone.py:Net"}, "gone.py:Net comes without its text: load_module reads a file of your own"),
    "no package": ({"module": "gone.away:Net"}, "gone.away:Net: no module 'gone.away' is installed here"),
    "syntax": ({"code": "class Net("}, "cannot be imported: SyntaxError: '(' was never closed"),
    "changed": ({"digest": "0123456789abcdef"}, "has changed: recorded with SHA-256 0123456789ab, here it is"),
}


@pytest.mark.parametrize("name", VALUES)
def test_wrong_values_of_a_module_are_one_line(name):
    values, expected = VALUES[name]
    text = {} if "module" in values else {"code": FILE.read_text()}
    given = {"module": f"{FILE}:Net", "task": TASK} | text | values
    assert expected in refusal(ValueError, make_spec, "module", **given)


def test_text_that_nobody_here_let_run_is_not_run(monkeypatch, tmp_path):
    monkeypatch.setattr(trust, "LETS_RUN", [trusted.is_trusted])
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\n" + FILE.read_text()
    make = partial(make_spec, "module", module="nets.py:Net", code=code, task=TASK)
    refused = r"nets.py:Net is code \(SHA-256 .*\) that has not run here: `verify` or `run` with --trust runs it"
    with pytest.raises(Untrusted, match=refused):
        make()
    assert not ran.exists()
    monkeypatch.setattr(trusted, "LETS_RUN", trust.LETS_RUN)
    trusted.trust_all()
    make()
    assert ran.exists()
    monkeypatch.setattr(trust, "LETS_RUN", [trusted.is_trusted])
    monkeypatch.setattr(trusted, "_here", set())  # as in a later command
    make()


@pytest.mark.parametrize("where", ["os:system", "tests.own_modules.nets:function", "subprocess:Popen"])
def test_of_an_installed_package_only_modules_are_called(where):
    with pytest.raises(ValueError, match=r"there is no nn\.Module of that name"):
        make_spec("module", module=where, args={"command": "touch ran", "args": "touch ran"}, task=TASK)
    installed = make_spec("module", module="tests.own_modules.nets:Net", task=TASK)
    assert installed.params == spec_of().params and not installed.code and len(installed.digest) == 64


def test_of_an_installed_class_its_own_file_is_digested_and_earlier_records_keep_theirs(monkeypatch):
    """They have the digest of the module that is named, which may only pass the class on."""
    own, named = (digest_of(inspect.getsource(module)) for module in (nn.modules.linear, nn))
    make = partial(make_spec, "module", module="torch.nn:Linear", args={"in_features": 2, "out_features": 2}, task=TASK)
    earlier, own_key = make(digest=named), Configuration(make(), Recipe()).key
    assert make().digest == own != named == earlier.digest and make(digest=own) == make() != earlier
    keys = {Configuration(spec, Recipe()).key for spec in (earlier, make_spec(**earlier.as_dict()))}
    assert len(keys) == 1 and own_key not in keys
    assert "has changed: recorded with SHA-256 0123" in refusal(ValueError, make, digest="0123")
    for compiled in ("builtins", "torch._C"):
        monkeypatch.setattr(nn.Linear, "__module__", compiled)
        assert make().digest == named


def test_what_an_installed_class_keeps_from_build_to_build_is_refused():
    spec = make_spec("module", module="tests.own_modules.nets:Kept", task=TASK)
    assert "it keeps tensors from one build to the next: seeds would share them" in refusal(ValueError, spec.shapes)


# By the engine


def lesson_of(batch_seed, step_number, **fields):
    return Lesson.some(data_seed=batch_seed, step=step_number, **fields)


@pytest.mark.parametrize("batch", [5, 32, 60, 500])
@pytest.mark.parametrize("targeted", [0.0, 0.6])
def test_the_engine_asks_the_rows_that_torch_asks(batch, targeted):
    """Of 60 rows that are trained on: some of them, all of them, and errors among them."""
    spec = spec_of()
    programs = EngineBackend(spec, Recipe(**QUICK | {"batch": batch}))
    errors_2M = torch.tensor([[3.0, 77.0, 120.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    seen = set()
    for seed, number in ((0, 0), (7, 3), (2**31, 90_000)):
        at = torch.tensor([seed]), torch.tensor([number])
        drawn = spec.task.sample(*at, batch)
        wrong = torch.tensor([targeted]), errors_2M[None], torch.tensor([3])
        drawn = with_errors(drawn, at, *wrong) if targeted else drawn
        lesson = lesson_of(
            seed, number, targeted=targeted, errors=3, error_a=errors_2M[0].data_ptr(), error_b=errors_2M[1].data_ptr()
        )
        expected = step.tokens_of(spec, *drawn)[0]
        assert torch.equal(engine_tokens(programs, lesson), expected)
        seen |= set(drawn[0][0].tolist())
    assert {77.0, 120.0} <= seen or not targeted


def test_the_engine_asks_sums_from_their_units_on():
    spec, recipe = spec_of("GPT", UNITS_FIRST), Recipe(**QUICK)
    state = {"data_seed": torch.tensor([9]), "step": torch.tensor([5]), "mix_scale": torch.ones(1)}
    hyper, programs = hyper_of([recipe], spec.layout), EngineBackend(spec, recipe)
    expected = step.tokens_of(spec, *step.draw(state, hyper, QUICK["batch"], 1, task=spec.task))[0, 0]
    assert torch.equal(engine_tokens(programs, test_problems.lesson_of(programs, state, hyper)), expected)


@pytest.mark.parametrize(
    ("name", "args"),
    [("Net", {}), ("GPT", {}), ("Masked", {}), ("Net", {"vocabulary": 11})],
    ids=["Net", "GPT", "masked", "no row for ="],
)
def test_the_engine_trains_a_module_as_torch_does(name, args):
    spec = spec_of(name, NETS.get(name, TASK), **args)
    # AdamW would make much of roundings where a gradient is all but zero.
    pair = Pair(Recipe(**QUICK | {"optimiser": "sgd", "lr": 0.1}), Seed.of(3))
    by_engine, by_torch = (Bank(spec, [pair], compiled=compiled) for compiled in (True, False))
    assert [bank.backend.name for bank in (by_engine, by_torch)] == ["native", "programs"]
    first, second = (finish(bank).result(0) for bank in (by_engine, by_torch))
    torch.testing.assert_close(first.theta_P, second.theta_P, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(first.curve_EM, second.curve_EM, rtol=1e-3, atol=1e-3)
    assert not torch.equal(first.theta_P, spec.initial(3))


def test_attention_is_tried_without_a_word_of_torchs_and_goes_by_tape():
    tried = (
        "from own_modules import load_module; from trainer.engine.native import choice_of; "
        f"print(choice_of(load_module({str(FILE) + ':Attends'!r}, {{}}, {TASK!r})).why)"
    )
    done = subprocess.run([sys.executable, "-c", tried], capture_output=True, text=True, check=True)
    assert done.stdout == "the C++ engine\n" and not done.stderr


def test_a_module_is_for_cpus_where_a_gpu_has_the_engine(monkeypatch):
    """Its kernel is made of it, of which a GPU's engine has none."""
    monkeypatch.setattr("trainer.bank.bank.of_device", None)
    assert isinstance(backend_of(spec_of(), Recipe(**QUICK), "cuda", compiled=True), EngineBackend)
    shares = [fastest_share([(spec, 10_000)], 1, [{"CPU": 1, "GPU": 1}], False) for spec in (spec_of(), preset("57p"))]
    assert shares == [0, 1]


def test_a_task_that_the_engine_does_not_draw_is_trained_by_torch(monkeypatch):
    spec = spec_of()
    assert choice_of(spec).kernel
    monkeypatch.setattr(type(spec.task), "macros", None)
    assert choice_of(spec).kernel is None
    assert Bank(spec, [Pair(Recipe(**QUICK), Seed.of(1))]).backend.name == "programs"


# As a teacher


def taught_by(spec):
    return Teacher(spec, tuple(spec.initial(0).tolist()))


@pytest.mark.parametrize("make", [partial(spec_of, hidden=5), lambda: make_spec("rope", task=LONG)])
def test_a_word_of_any_task_and_module_is_its_teacher(make):
    teacher = taught_by(make())
    assert teacher_of(teacher.word) == teacher


def test_a_teacher_whose_code_has_not_run_here_is_not_run(monkeypatch):
    word = taught_by(spec_of(hidden=6)).word
    monkeypatch.setattr(trust, "LETS_RUN", [lambda digest: False])
    with pytest.raises(Untrusted, match="with --trust runs it"):
        Recipe(teacher=word, distill_alpha=0.5)


def learning_from(spec):
    return Recipe(**QUICK, teacher=taught_by(spec).word, distill_alpha=0.5)


def test_by_torch_learns_who_has_a_teacher_without_a_kernel(monkeypatch, tmp_path, caplog):
    """Which is said, and not that a wheel lacks a kernel too."""
    recipe = learning_from(spec_of("Sorted"))
    assert isinstance(backend_of(spec_of(), recipe, "cpu", compiled=True), TorchBackend)
    monkeypatch.setattr("trainer.bank.bank.SHIPPED", tmp_path)
    monkeypatch.setattr("trainer.bank.bank.missing_to_train", lambda *_: "a C++ compiler")
    assert isinstance(backend_of(preset("57p"), recipe, "cpu", compiled=True), TorchBackend)
    assert caplog.text.count("its teacher goes by torch: sort is not supported by the engine") == 2


def test_by_torch_trains_whose_compiler_does_not_end_or_its_teachers(monkeypatch, caplog):
    monkeypatch.setattr(choice, "_choose", choice._choose.__wrapped__)  # what is chosen here is not kept
    monkeypatch.setattr("trainer.engine.kernel.library", Mock(side_effect=GivenUp("g++ has not ended in 600 s")))
    assert isinstance(backend_of(spec_of(), Recipe(**QUICK), "cpu", compiled=True), TorchBackend)
    assert "g++ has not ended in 600 s: Net goes by torch" in caplog.text and not has_kernel(spec_of())
    assert isinstance(backend_of(preset("57p"), learning_from(spec_of()), "cpu", compiled=True), TorchBackend)
    assert "its teacher goes by torch: g++ has not ended in 600 s: training without the engine" in caplog.text


def test_a_teacher_has_the_logits_of_who_learns():
    with pytest.raises(ValueError, match="teacher must have"):
        Pair(learning_from(spec_of(vocabulary=13)), Seed.of(0)).check(spec_of())


def end_and_recipe(folder):
    """A road's end, and its recipe, in which two models and three teachers are each of a file of its own."""
    nets = []
    for n in range(5):
        file = folder / f"{n}.py"
        file.write_text(f"{FILE.read_text()}# {n}\n")
        nets.append(load_module(f"{file}:Net", {"hidden": 3}, TASK))
    wide, base, *teachers = nets
    end = Tied(base=base, ties=constrained(base, ["up_bias[0] = 0"]))
    of_all, first, longer = ({"teacher": taught_by(net).word, "distill_alpha": 0.5} for net in teachers)
    stages = [
        {"name": "wide", "model": wide.as_dict(), "recipe": first, "longer": longer},
        {"name": "tied", "into": end.as_dict(), "recipe": {"ramp": 10}},
    ]
    return end, Recipe(**QUICK, **of_all, stages=stages)


def test_a_worker_runs_all_code_of_a_recipe_that_a_driver_sends(tmp_path, monkeypatch):
    end, recipe = end_and_recipe(tmp_path)
    sent = pickle.dumps(Pair(recipe, Seed.of(0)))
    monkeypatch.setattr(trust, "NAMED", set())
    monkeypatch.setattr(trust, "LETS_RUN", [lambda digest: digest in trust.NAMED])
    road_of.cache_clear()
    teacher_of.cache_clear()
    with pytest.raises(Untrusted):
        Recipe(**recipe.as_dict())
    pickle.loads(sent).check(end)


def test_no_code_of_a_recipe_is_told(tmp_path):
    params = Configuration(*end_and_recipe(tmp_path)).as_params()
    assert "class Net" not in str(params)


# What a stranger's checkpoint says


def foreign(folder, packages=None, **spec):
    shutil.copytree(CERTIFICATES / "57p", folder)
    about = json.loads((folder / "checkpoint.json").read_text())
    about |= {"spec": {"family": "module", **spec}, "packages": packages or {}}
    (folder / "checkpoint.json").write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"module": "a\x1b[31m\nrow.py:Net", "code": "x"}, "module must be FILE.py:Class"),
        ({"module": "a" * 10_000 + ".py:Net", "code": "x"}, "module must be FILE.py:Class"),
        ({"module": "torch.nn:" + "N" * 10_000}, "module must be FILE.py:Class"),
        (
            {"module": "torch.nn:Linear", "args": {"in_features": 10**6, "out_features": 10**6}},
            "1,000,001,000,000",
        ),
    ],
)
def test_a_strangers_checkpoint_is_refused_in_one_short_line(tmp_path, spec, expected):
    packages = {f"evil\x1b[31m\nrow{n}": "9" * 10_000 for n in range(1_000)}
    line = refusal(ValueError, Checkpoint.load, foreign(tmp_path / "c", packages, **spec))
    assert expected in line and len(line) < 600 and line.isprintable()
