"""Tasks beside ten-digit addition: what is asked, by torch and the engine; keys; and refusals."""

import itertools
import json
import re
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from model import PRESETS, add, make_spec, preset, preset_name
from model.presets import is_preset
from model.spec import FAMILIES
from model.tasks import ADDITION, in_columns, make_task
from model.tied import Tied, free
from search.run.estimate import _worth
from search.study.file import parse_study
from search.study.trial import Configuration
from tests import by_tier, needs_compiler, needs_plugins
from tests.banks import assert_is_eager, engine_tokens, finish
from tests.commands import call, done, refused_for_its_task
from tests.homes import unpictured
from tests.unit.test_problems import lesson_of
from trainer import Bank, Outcome, Pair, Recipe, Seed
from trainer.bank.tracker import SeedTracker
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.data.problems import selection
from trainer.engine.native import EngineBackend
from trainer.recipe.seed import check_problems
from trainer.step import step
from trainer.step.schedule import hyper_of
from trainer.stopping.hopeless import Hopeless

SMALL = "subtraction base=3 digits=4"
TASKS = [
    SMALL, "subtraction signed=true", "subtraction base=2 digits=2", "addition base=16 digits=12",
    "addition terms=3", "prefix digits=12", "copy digits=5",
    "addition base=2 digits=20", "addition base=7 digits=5 times=3", "subtraction base=5 digits=6 times=2",
    "addition base=16 digits=7 times=14 terms=3", "addition base=3 digits=3 terms=3",
    "reverse base=16 digits=12", "prefix base=7 digits=17", "copy digits=15",
]  # fmt: skip
RECIPES = [
    ({}, 20_000),
    ({"carry_mix": 1.0, "fade_start": 59_000, "fade_end": 60_000}, 30_000),
    ({"carry_mix": 0.5, "curriculum": ((2, 50),), "mixed_lengths": 1.0}, 7),
]
BATCH = 200


def spec_of(task, family="rope"):
    return make_spec(family, task=task)


# What is asked


def digits_of(number, task):
    """Digits of an integer, units first."""
    return [number // task.base**n % task.base for n in range(task.digits)]


def plain(task, a, b):
    """A problem's answer by integers alone."""
    if task.name == "prefix":
        return sum(sum(digits_of(a, task)[: n + 1]) % task.base * task.base**n for n in range(task.digits))
    if task.numbers == 1:
        return task.number(digits_of(a, task)[:: -1 if task.name == "reverse" else 1])
    low = task.base ** -(-task.digits // 2)
    (first, on_a), (second, on_b) = divmod(a, task.limit)[::-1], divmod(b, task.limit)[::-1]
    total = task.times * first + task.sign * second + on_a + low * on_b
    return total % task.base ** (task.digits + 1)


@pytest.mark.parametrize("task", TASKS)
def test_an_answer_is_the_tasks_own_and_every_problem_is_verified_once(task):
    task = make_task(task)
    pairs = task.pairs()
    first, second = task.limits
    assert len(pairs) == task.problems and all(0 <= a < first and 0 <= b < second for a, b in pairs)
    is_ordered = task.name == "subtraction" and not task.signed
    if first * second <= 10_000:
        every = itertools.product(range(first), range(second))
        assert set(pairs) == {(a, b) for a, b in every if a >= b or not is_ordered}
    for a, b in pairs[:300]:
        assert task.value(a, b) == plain(task, a, b)
        assert a >= b or not is_ordered


@pytest.mark.parametrize("task", TASKS)
def test_drawn_pairs_can_be_asked_and_borrow_where_their_sum_carries(task):
    task = make_task(task)
    a, b = selection(task)
    first, second = (t.long() for t in task.asked(a, b))
    *_, z = task.drawn_columns(a, b)
    assert torch.equal(task.number([c.long() for c in z]), task.value(first, second))
    if task.name == "subtraction" and task.signed:
        assert torch.equal((first < second), a + b >= task.limit)
    drawn = set(zip(first[0].tolist(), second[0].tolist(), strict=True))
    assert len(drawn) > min(4_000, task.problems // 3)


# The engine


@needs_compiler
@pytest.mark.parametrize("task", by_tier(TASKS, TASKS[:5]))
def test_the_engine_makes_the_same_tokens(task):
    spec = spec_of(task)
    for fields, at in RECIPES:
        recipe = Recipe(batch=BATCH, **fields)
        state = {"data_seed": torch.tensor([9]), "step": torch.tensor([at]), "mix_scale": torch.ones(1)}
        hyper, programs = hyper_of([recipe], spec.layout), EngineBackend(spec, recipe)
        a, b = step.draw(state, hyper, BATCH, 1, task=spec.task)
        first, second = spec.task.limits
        assert a.max() < first and (b.max() < second or second == 1)
        expected = step.tokens_of(spec, a, b)[0, 0]
        assert torch.equal(engine_tokens(programs, lesson_of(programs, state, hyper)), expected)


ASKED = [
    pytest.param(spec_of(task, family), id=f"{family} {task}", marks=[] if family == "rope" else pytest.mark.full)
    for family, cls in FAMILIES.items()
    for task in (SMALL, "addition base=4 digits=3 terms=3", "prefix digits=6")
    if make_task(task).numbers in cls.operands
]


@needs_compiler
@pytest.mark.parametrize("spec", ASKED)
def test_banks_of_the_engine_and_of_torch_agree(spec):
    """But for rounding. Half of the problems are the seed's own errors."""
    recipe = Recipe(steps=6, batch=40, eval_every=3, hold=0, warmup=2, lr=0.001, targeted=0.5)
    pairs = [Pair(recipe, Seed.of(n)) for n in range(2)]
    assert_is_eager(spec, pairs)


OWN = [("addition", "answer"), ("addition", "sign"), ("subtraction", "asked"), ("copy", "turned"), ("copy", "written")]


@pytest.mark.parametrize(("task", "name"), OWN)
def test_columns_that_are_answered_or_asked_in_a_way_of_their_own_are_not_the_engines(task, name):
    ours = type(make_task(task))
    own = type(ours)("Own", (ours,), {name: getattr(ours, name)})
    assert spec_of(task).kernel() and spec_of(own()).kernel() is None


def test_a_sequence_of_another_name_is_the_engines():
    ours = type(make_task("copy"))
    again = type(ours)("Again", (ours,), {})
    again.name = "again"  # set late, it is in no list
    assert again().macros == ours().macros == {"NUMBERS": 1, "ANSWER": 1}


def test_every_column_of_the_answer_counts():
    """Twelve columns, of which the last is wrong: the problem is."""
    spec = spec_of("addition digits=11")
    theta, tokens = spec.initial(0)[None], step.tokens_of(spec, *selection(spec.task, 50))
    likeliest = torch.stack(step.answer_logits(spec, theta, tokens)).argmax(0)
    tokens[:, spec.prompt :] = likeliest.int()
    tokens[:, -1] = (tokens[:, -1] + 1) % 10
    measured = step.evaluate(spec, theta, tokens)
    assert spec.task.answers == 12 and float(measured["exact"]) == 0
    # the last token is no input, so only it is wrong; earlier ones are read, and may change what follows
    assert float(measured["token"]) < 1


# Keys and names


def test_addition_is_in_no_key_and_no_record_and_other_tasks_are():
    spec, other = PRESETS["57p"], preset(f"57p {SMALL}")
    assert "task" not in spec.as_dict() and other.as_dict() == {**spec.as_dict(), "task": SMALL}
    assert make_spec(**spec.as_dict(), task="addition") == spec and make_spec(**other.as_dict()) == other
    assert make_spec(**spec.as_dict(), task={"name": "subtraction", "base": 3, "digits": 4}) == other
    keys = {Configuration(spec_of(task), Recipe()).key for task in (*TASKS, ADDITION)}
    assert len(keys) == len(TASKS) + 1
    assert preset_name(other) == f"57p {SMALL}" and preset(preset_name(other)) == other and is_preset(other)
    tied = Tied(base=other, ties=(*free(other.params)[:-1], 1))
    assert tied.task == other.task and make_spec(**tied.as_dict()) == tied
    assert other.params == 57 and make_spec("low_rank", task=SMALL).params < make_spec("low_rank").params


def test_a_model_that_says_its_task_is_asked_that_though_it_be_addition():
    begin = "name: x\nmodel: 57p\ntask: subtraction\nseeds: [1]\n"
    searched = parse_study(begin + "space: {model.task: {choice: [addition, subtraction]}}", "x")
    proposed = [searched.configuration({"model.task": task})[0].task.title for task in ("addition", "subtraction")]
    assert proposed == ["addition", "subtraction"]
    tied = "{model: {base: {preset: 57p, task: addition}, ties: ['fc1[1,4] = -fc1[0,0]']}}"
    entries = (
        f"{{model: {{preset: 57p, task: addition}}}}, {{model: 57p}}, {{model: {{task: addition base=3}}}}, {tied}"
    )
    listed = parse_study(f"{begin}configurations: [{entries}]", "x").listed
    assert [spec.task.title for spec, _ in listed] == ["addition", "subtraction", "addition base=3", "addition"]
    rows = "constraints: [tie_vo]\nscales: {a: {model: {preset: 57p, task: addition}, rate: 1}, 57p: {rate: 1}}"
    arms = parse_study(begin.replace("model: 57p\n", "") + rows, "x").listed
    assert [spec.task.title for spec, _ in arms] == ["addition"] * 2 + ["subtraction"] * 2


def test_wrong_tasks_are_one_line_each():
    for task, words in (
        ("subtract", "unknown task 'subtract'; did you mean subtraction?"),
        ("addition bas=3", "unknown option 'bas' of addition; did you mean base?"),
        ("addition base=17", "base must be from 2 to 16, got 17"),
        ("addition digits=16", "digits must leave numbers below 2^50, got 16 in base 10"),
        ("addition base=3 times=3", "times must be below the base, or answers need more columns, got 3"),
        ("addition base=3 times=2 terms=3", "times must be below the base, less one with three numbers, or answers"),
        ("addition terms=3 digits=11", "digits must leave three numbers below 2^50, got 11 in base 10"),
        ("addition terms=4", "terms must be from 2 to 3, got 4"),
        ({"base": 3}, "task must be a name, or a mapping with a name"),
        ({"name": "table", "entries": [[0]]}, "entries must be a string, got [[0]]"),
        (7, "task must be a name, or a mapping with a name"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            make_task(task)
    with pytest.raises(ValueError, match="base=16 needs 20 tokens in low_rank, of 16 at most"):
        make_spec("low_rank", task="addition base=16 digits=4")
    with pytest.raises(ValueError, match=r"split_subspace cannot be asked copy; these can: low_rank, rope"):
        preset("57p copy")
    for recipe, words in ((Recipe(mixed_lengths=0.3), ""), (Recipe(carry_mix=0.3), "carry_mix is about carries")):
        with pytest.raises(ValueError, match=words) if words else nullcontext():
            check_problems(make_task("copy"), recipe)


# Rules and refusals


def test_a_rule_that_was_not_measured_for_a_task_is_off_and_the_plan_says_so():
    always = Hopeless(((-1e9, 2.0, 2.0),))
    recipe = Recipe(steps=2, batch=16, eval_every=1, hold=0)
    ended = []
    for spec in (spec_of(ADDITION), spec_of(SMALL)):
        bank = finish(Bank(spec, [Pair(recipe, Seed.of(0), rules=(always,), spared=False)], compiled=False))
        ended.append(bank.result(0).outcome)
    assert ended == [Outcome.GIVEN_UP, Outcome.FAILED]
    study = parse_study(f"{{name: x, model: 57p, task: {SMALL}, seeds: {{first: 1, count: 8}}}}", "x.yaml")
    assert study.kind.rules([])[0] == ("Hopeless rule", "off: not measured for this task")
    listed = [Configuration(*pair) for pair in study.listed]
    assert _worth(study, listed) == ["if 4 of 8 seeds grok: 18% to 82%"], "no rule widens it"


def test_a_seed_has_grokked_from_grok_at_on():
    spec, recipe = spec_of(SMALL), Recipe(steps=2, eval_every=1, hold=0, curriculum=())
    pairs = [Pair(replace(recipe, grok_at=at), Seed.of(0)) for at in (1.0, 0.99, 0.98)]
    tracker, every, first = SeedTracker(pairs, spec), torch.arange(3), torch.ones(3, dtype=torch.int64)
    measures_LM, theta_LP = torch.tensor([[0.99, 1, 0, 0]] * 3), torch.zeros(3, spec.params)
    tracker.record_evaluation(every, first, measures_LM, theta_LP, first > 0, torch.zeros(3, 0))
    assert [tracker.result(n).grok_step for n in range(3)] == [None, 1, 1]


@needs_plugins
def test_add_and_every_command_that_knows_no_task_refuse_another_by_one_line(here):
    spec = spec_of(SMALL)
    with pytest.raises(ValueError, match=f"add is about addition in base 10 .* task is {SMALL}"):
        add(spec, spec.initial(0), [1], [2])
    Checkpoint(spec, spec.initial(0)).save(here / "minus")
    about_adders = {"explain", "export", "finish", "diagnose"}
    assert {"fold", "register", *about_adders} <= refused_for_its_task("minus")
    said = json.loads(call("verify", "minus", "--json").stdout)
    assert said["total"] == 3_321 and said["failures"]
    shown = call("verify", "minus").stdout
    assert "1 - 0 = 1, decoded" in shown or "0 - 0 = 0, decoded" in shown


# What a family cannot learn


def swapped_logits(spec):
    """Logits of random problems at a random θ, and of the same with digits of some columns traded."""
    draw, task = torch.Generator().manual_seed(0), in_columns(spec.task)
    theta = (spec.initial(1) + torch.randn(spec.params, generator=draw))[None].double()
    x, y, swap, answer = (torch.randint(0, 2, (task.digits, 50), generator=draw) for _ in range(4))
    logits = []
    for first, second in ((x, y), (torch.where(swap > 0, y, x), torch.where(swap > 0, x, y))):
        tokens = torch.stack(spec.sequence([*first], [*second], [*answer]))[None].int()
        logits.append(torch.stack(list(spec.forward(theta, tokens, spec.prompt - 1))))
    return logits


@pytest.mark.parametrize("name", ["242p", "57p", "763p", "62p"])
def test_a_family_says_if_it_cannot_tell_to_which_number_a_digit_belongs(name):
    spec = preset(f"{name} {SMALL}")
    before, after = swapped_logits(spec)
    assert torch.allclose(before, after, rtol=0, atol=1e-9) is not spec.sees_whose
    assert bool(spec.why_not) is not spec.sees_whose
    assert not preset(name).why_not and bool(preset(f"{name} addition times=2").why_not) is not spec.sees_whose


def test_the_plan_says_what_cannot_be_learnt(here):
    lines = [line for line in STUDY.splitlines() if not line.startswith(("model", "toggle"))]
    (here / "minus.yaml").write_text("\n".join([*lines, "model: 57p"]))
    said = done("run", "minus.yaml", "--dry-run")
    assert (
        "  cannot learn    subtraction base=3 digits=2: split_subspace sees which digits a column has, and not" in said
    )


# A study


STUDY = """\
name: minus
task: {name: subtraction, base: 3, digits: 2}
model: {family: low_rank, width: 12, ffn: 32}
toggle: [rms_norm]
recipe: {steps: 3000, batch: 64, eval_every: 250, hold: 0, warmup: 100, lr: 0.01, curriculum: [], carry_mix: 0.0}
seeds: [1, 2]
"""


@needs_compiler
def test_a_study_of_subtraction_is_trained_verified_and_says_what_it_is(here, no_ray):
    """Right by its own 45 problems, where a + b would have it wrong by nearly all."""
    (here / "minus.yaml").write_text(STUDY)
    with unpictured():
        said = done("run", "minus.yaml")
    assert "adder-search export" not in said
    done("records", "minus", "-o", "minus.json")
    rows = {row["model.rms_norm"]: row for row in json.loads((here / "minus.json").read_text())}
    assert {row["model.task"] for row in rows.values()} == {"subtraction base=3 digits=2"}
    best = rows[False]
    assert (best["grokked"], best["verified"], best["verify_tried"]) == (2, 2, 2)
    assert "1,608 parameters (low_rank) subtraction base=3 digits=2" in done("best", "minus")
    seen = done("status", "minus", "--seeds")
    assert "45 of 45 right" in seen and "10010" not in seen
    for count in ("1608", "1,608"):  # a name of today, and of earlier records
        model = f"{count} parameters (low_rank) subtraction base=3 digits=2"
        done("pull", "minus", "--best", "--model", model, "-o", f"minus-{count}")
    done("pull", "minus", "--best", "-o", "minus")
    assert "45/45 VERIFIED" in done("verify", "minus")
    assert "θ is bitwise the same" in done("rerun", "minus")
