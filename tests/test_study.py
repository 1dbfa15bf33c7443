"""The study file: what is wrong with it is said in one line: source, key path and what would be right."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from model import RUNGS, Spec
from search import study as study_module
from search.errors import UserError
from search.study import (
    LARGEST_FILE,
    LARGEST_SEED,
    Distribution,
    Resources,
    Sampler,
    SeedRange,
    Study,
    Until,
    load_study,
    parse_study,
    shipped,
)
from trainer import Recipe, Seed

GOOD = "name: x\nmodel: 57p\nseeds: [1]\n"
TOO_MANY = "{first: 2147483640, count: 4}\nuntil: {grokked: 1, max_seeds: 64}"
# YAML -> the whole error, line by line, without its source. Most are GOOD and one line more.
BAD = {
    # Keys that are misspelt, missing or given twice
    "nmae: x\nmodel: 57p\nseeds: [1]": ["name: missing", "nmae: unknown key; did you mean name?"],
    "{}": ["name: missing", "model: missing", "seeds: missing"],
    GOOD + "recipes: {}": ["recipes: unknown key; did you mean recipe or resources?"],
    GOOD + "recipe: {step: 1}": ["recipe.step: unknown key; did you mean steps?"],
    GOOD + "recipe: {learning_rate: 0.1}": ["recipe.learning_rate: unknown key; valid: batch, beta1, *"],
    GOOD + "until: {groked: 1}": ["until.groked: unknown key; did you mean grokked?"],
    GOOD + "resources: {cpus: 1}": ["resources.cpus: unknown key; did you mean cpu or gpu?"],
    GOOD + "sampler: {nam: tpe}": ["sampler.nam: unknown key; did you mean name?"],
    GOOD + "space: {recipe.lr: {flaot: [0.1, 0.2]}}": [
        "space.recipe.lr.flaot: unknown key; did you mean float or log?"
    ],
    GOOD + "name: y": ["line 4, column 1: not valid YAML (key given twice: name)"],
    GOOD + "recipe: {lr: 1, lr: 2}": ["line 4, column 17: not valid YAML (key given twice: lr)"],
    GOOD + "recipe: {3: 1}": ["recipe.3: must be a string, got 3"],
    GOOD + "1: 2": ["1: keys should be strings, got 1"],
    GOOD + "? {a: 1}\n: 3": ["line 4, column 3: not valid YAML (found unhashable key)"],
    GOOD + "'[key]': 1": ["[key]: unknown key; valid: about, *"],
    GOOD + "resources: {'[a]': 1}": ["resources.[a]: unknown key; valid: *"],
    # The model
    "name: x\nmodel: 58p\nseeds: [1]": ["model: unknown rung '58p'; did you mean 57p?"],
    "name: x\nmodel: 57\nseeds: [1]": ["model: must be a string or a mapping, got 57"],
    "name: x\nmodel: {}\nseeds: [1]": ["model: give a rung or a family; keys found: none"],
    "name: x\nmodel: {qk_dim: 4}\nseeds: [1]": ["model: give a rung or a family; keys found: qk_dim"],
    "name: x\nmodel: {rung: [57p]}\nseeds: [1]": ["model.rung: must be a string, got ['57p']"],
    "name: x\nmodel: {family: [a]}\nseeds: [1]": ["model.family: must be a string, got ['a']"],
    "name: x\nmodel: {family: splitsubspace}\nseeds: [1]": [
        "model: unknown family 'splitsubspace'; did you mean split_subspace?"
    ],
    "name: x\nmodel: {rung: 57p, qkdim: 3}\nseeds: [1]": [
        "model: unknown constraint 'qkdim' of split_subspace; did you mean qk_dim?"
    ],
    "name: x\nmodel: {rung: 57p, qk_dim: 1}\nseeds: [1]": ["model.qk_dim: must be from 2 to 16, got 1"],
    "name: x\nmodel: {rung: 57p, qk_dim: true}\nseeds: [1]": ["model.qk_dim: must be an integer, got True"],
    "name: x\nmodel: {rung: 57p, qk_dim: '4'}\nseeds: [1]": ["model.qk_dim: must be an integer, got '4'"],
    "name: x\nmodel: {rung: 57p, tie_vo: 1}\nseeds: [1]": ["model.tie_vo: must be true or false, got 1"],
    "name: x\nmodel: {1: 2}\nseeds: [1]": ["model.1: must be a string, got 1"],
    # The recipe
    GOOD + "recipe: {lr: -1}": ["recipe.lr: must be 0.0 or more, got -1"],
    GOOD + "recipe: {lr: .nan}": ["recipe.lr: must be finite and at most 2147483647, got nan"],
    GOOD + "recipe: {lr: .inf}": ["recipe.lr: must be finite and at most 2147483647, got inf"],
    GOOD + "recipe: {lr: fast}": ["recipe.lr: must be a number, got 'fast'"],
    GOOD + "recipe: {lr: true}": ["recipe.lr: must be a number, got True"],
    GOOD + "recipe: {steps: true}": ["recipe.steps: must be an integer, got True"],
    GOOD + "recipe: {steps: 1.5}": ["recipe.steps: must be an integer, got 1.5"],
    GOOD + "recipe: {steps: '60'}": ["recipe.steps: must be an integer, got '60'"],
    GOOD + "recipe: {steps: null}": ["recipe.steps: must be an integer, got None"],
    GOOD + "recipe: {steps: 0}": ["recipe.steps: must be 1 or more, got 0"],
    GOOD + "recipe: {steps: 10000000000}": [
        "recipe.steps: must be finite and at most 2147483647, got 10000000000"
    ],
    GOOD + "recipe: {batch: 70000}": ["recipe.batch: must be from 1 to 65536, got 70000"],
    GOOD + "recipe: {carry_mix: 1.1}": ["recipe.carry_mix: must be from 0 to 1, got 1.1"],
    GOOD + "recipe: {curriculum: 3}": ["recipe.curriculum: must be a list, got 3"],
    GOOD + "recipe: {curriculum: [[11, 3]]}": [
        "recipe.curriculum: must be pairs [digits 1 to 10, steps 0 to 2147483647], got (11, 3)"
    ],
    GOOD + "recipe: {curriculum: [[3, 10000000000]]}": [
        "recipe.curriculum: must be pairs [digits 1 to 10, steps 0 to 2147483647], got (3, 10000000000)"
    ],
    GOOD + "recipe: {fade_start: 10, fade_end: 5}": [
        "recipe.fade_end: must be fade_start or more, got 5 < 10"
    ],
    GOOD + "recipe: {steps: 100, eval_every: 30}": [
        "recipe: eval_every must divide steps, got 30 and 100"
    ],
    GOOD + "recipe: [1]": ["recipe: must be a mapping, got [1]"],
    # Seeds and when they end
    "name: x\nmodel: 57p\nseeds: []": ["seeds: give at least one seed"],
    "name: x\nmodel: 57p\nseeds: [4, 5, 4]": ["seeds: a seed is listed twice"],
    "name: x\nmodel: 57p\nseeds: 777": ["seeds: must be a mapping or a list, got 777"],
    "name: x\nmodel: 57p\nseeds: [a]": ["seeds.0: must be an integer, got 'a'"],
    "name: x\nmodel: 57p\nseeds: [1, true]": ["seeds.1: must be an integer, got True"],
    "name: x\nmodel: 57p\nseeds: [1.0]": ["seeds.0: must be an integer, got 1.0"],
    "name: x\nmodel: 57p\nseeds: [-1]": ["seeds.0: must be greater than or equal to 0, got -1"],
    "name: x\nmodel: 57p\nseeds: [2147483648]": [
        "seeds.0: must be less than or equal to 2147483647, got 2147483648"
    ],
    "name: x\nmodel: 57p\nseeds: {first: 1}": ["seeds.count: missing"],
    "name: x\nmodel: 57p\nseeds: {frist: 1, count: 3}": [
        "seeds.first: missing",
        "seeds.frist: unknown key; did you mean first?",
    ],
    "name: x\nmodel: 57p\nseeds: {first: 1, count: 0}": [
        "seeds.count: must be greater than or equal to 1, got 0"
    ],
    "name: x\nmodel: 57p\nseeds: {first: 2147483640, count: 9}": ["seeds: seeds go up to 2147483647"],
    f"name: x\nmodel: 57p\nseeds: {TOO_MANY}": [
        "until.max_seeds: the last round would pass the largest seed, 2147483647"
    ],
    GOOD + "until: {grokked: 0}": ["until.grokked: must be greater than or equal to 1, got 0"],
    GOOD + "until: {max_seeds: 4}": ["until: max_seeds needs grokked: how many grokked seeds to go on for"],
    "name: x\nmodel: 57p\nseeds: [1, 2]\nuntil: {grokked: 1, max_seeds: 1}": [
        "until.max_seeds: must be at least the number of seeds (2), got 1"
    ],
    GOOD + "until: 3": ["until: must be a mapping, got 3"],
    # Resources and sampler
    GOOD + "resources: {cpu: 0}": ["resources.cpu: must be greater than or equal to 1, got 0"],
    GOOD + "resources: {cpu: true}": ["resources.cpu: must be an integer, got True"],
    GOOD + "resources: {gpu: -1}": [
        "resources.gpu: must be from 0 to 1, or a whole number, or auto, got -1.0"
    ],
    GOOD + "resources: {gpu: 1.5}": [
        "resources.gpu: must be from 0 to 1, or a whole number, or auto, got 1.5"
    ],
    GOOD + "resources: {gpu: .nan}": ["resources.gpu: must be a finite number, got nan"],
    GOOD + "resources: {gpu: all}": ["resources.gpu: must be a number or 'auto', got 'all'"],
    GOOD + "resources: {gpu: true}": ["resources.gpu: must be a number or 'auto', got True"],
    GOOD + "resources: {seeds_per_trial: 70000}": [
        "resources.seeds_per_trial: must be less than or equal to 65536, got 70000"
    ],
    GOOD + "resources: {compiled: 'yes'}": ["resources.compiled: must be true or false, got 'yes'"],
    GOOD + "sampler: {name: tpee}": ["sampler.name: must be 'tpe' or 'random', got 'tpee'"],
    GOOD + "sampler: {seed: 10000000000}": [
        "sampler.seed: must be less than or equal to 2147483647, got 10000000000"
    ],
    # The search space
    GOOD + "space: {recipe.warmupp: {int: [1, 2]}}": [
        "space.recipe.warmupp: unknown field; did you mean recipe.warmup*"
    ],
    GOOD + "space: {lr: {float: [0.1, 0.2]}}": ["space.lr: unknown field; valid: model.circular, *"],
    GOOD + "space: {model.family: {choice: [a]}}": ["space.model.family: unknown field; did you mean *"],
    GOOD + "space: {recipe.lr: 3}": ["space.recipe.lr: must be a mapping, got 3"],
    GOOD + "space: {recipe.lr: {}}": ["space.recipe.lr: give exactly one of float, int, choice"],
    GOOD + "space: {recipe.lr: {float: [0, 0.1], int: [1, 2]}}": [
        "space.recipe.lr: give exactly one of float, int, choice"
    ],
    GOOD + "space: {recipe.lr: {float: [0.2, 0.1]}}": [
        "space.recipe.lr: the first bound must be below the second, got [0.2, 0.1]"
    ],
    GOOD + "space: {recipe.lr: {float: [0.1]}}": ["space.recipe.lr.float.1: missing"],
    GOOD + "space: {recipe.lr: {float: [0.1, .inf]}}": [
        "space.recipe.lr.float.1: must be a finite number, got inf"
    ],
    GOOD + "space: {recipe.lr: {float: [0, 0.1], log: true}}": ["space.recipe.lr: log needs bounds above 0"],
    GOOD + "space: {model.qk_dim: {int: [2, 8], step: 2, log: true}}": [
        "space.model.qk_dim: log goes with float or int, and not with step"
    ],
    GOOD + "space: {recipe.lr: {float: [0.1, 0.2], step: 2}}": ["space.recipe.lr: step goes with int"],
    GOOD + "space: {recipe.lr: {float: [-1, 0.1]}}": ["space.recipe.lr: must be 0.0 or more, got -1.0"],
    GOOD + "space: {recipe.lr: {choice: [a]}}": ["space.recipe.lr: must be a number, got 'a'"],
    GOOD + "space: {recipe.steps: {float: [1, 2]}}": ["space.recipe.steps: must be an integer, got 1.0"],
    GOOD + "space: {recipe.steps: {int: [0.5, 2]}}": [
        "space.recipe.steps.int.0: must be an integer, got 0.5"
    ],
    GOOD + "space: {model.qk_dim: {int: [2, 20]}}": ["space.model.qk_dim: must be from 2 to 16, got 20"],
    # Names and texts
    "name: ../../x\nmodel: 57p\nseeds: [1]": ["name: must match pattern *, got '../../x'"],
    "name: ..\nmodel: 57p\nseeds: [1]": ["name: must match pattern *, got '..'"],
    "name: a/b\nmodel: 57p\nseeds: [1]": ["name: must match pattern *, got 'a/b'"],
    "name: ''\nmodel: 57p\nseeds: [1]": ["name: must match pattern *, got ''"],
    'name: "x\\n"\nmodel: 57p\nseeds: [1]': ["name: must match pattern *, got 'x\\n'"],
    f"name: {'a' * 65}\nmodel: 57p\nseeds: [1]": ["name: must match pattern *, got 'aaa*"],
    "name: 57\nmodel: 57p\nseeds: [1]": ["name: must be a string, got 57"],
    "name: Default\nmodel: 57p\nseeds: [1]": [
        "name: Default is MLflow's own experiment, choose another name"
    ],
    GOOD + 'about: "a\\nb"': ["about: must be one line of printable text"],
    GOOD + 'about: "\\e[31m"': ["about: must be one line of printable text"],
    GOOD + 'recipe: {"a\\nb": 1}': ["recipe.a\\nb: unknown key; *"],
    GOOD + "tracking_uri: 3": ["tracking_uri: must be a string, got 3"],
    # YAML itself
    "": ["must be a mapping with name, model and seeds"],
    "- a": ["must be a mapping with name, model and seeds"],
    "777": ["must be a mapping with name, model and seeds"],
    "a: [1": ["line 1, column 6: not valid YAML (expected ',' or ']', but got '<stream end>')"],
    "a: b: c": ["line 1, column 5: not valid YAML (mapping values are not allowed here)"],
    "a: 1\n\tb: 1": ["line 2, column 1: not valid YAML (found character '\\t' that cannot start any token)"],
    "a: 1\n--- b": ["line 2, column 1: not valid YAML (but found another document)"],
    "a: \0": ["not valid YAML (special characters are not allowed)"],
    "a: !!int b": ["line 1, column 4: not valid YAML (no int: b)"],
    "a: !!bool b": ["line 1, column 4: not valid YAML (no bool: b)"],
    "a: !!timestamp b": ["line 1, column 4: not valid YAML (no timestamp: b)"],
    "a: 2020-99-99": ["line 1, column 4: not valid YAML (no timestamp: 2020-99-99)"],
    f"a: {'9' * 5000}": ["line 1, column 4: not valid YAML (no int: 999*)"],
    "a: &b [1]\nc: *b": ["line 2, column 4: not valid YAML (aliases are not used in study files)"],
    "a: &b [*b]": ["line 1, column 8: not valid YAML (aliases are not used in study files)"],
    "[" * 5_000: ["not valid YAML (nested too deeply)"],
}  # fmt: skip


def says(line: str, expected: str) -> bool:
    """Whether a line is the expected one, in which a * stands for anything."""
    return bool(re.fullmatch(".*".join(map(re.escape, expected.split("*"))), line))


@pytest.mark.parametrize(("text", "expected"), BAD.items(), ids=[repr(t[-60:]) for t in BAD])
def test_a_bad_study_is_told_line_by_line(text: str, expected: list[str]) -> None:
    with pytest.raises(UserError) as error:
        parse_study(text, "some.yaml")
    lines = str(error.value).split("\n")
    assert len(lines) == len(expected), lines
    for line, wanted in zip(lines, expected, strict=True):
        assert line.isprintable()
        assert says(line, f"some.yaml: {wanted}"), line


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:pathlib.Path.touch",
        "!!python/object/new:pathlib.Path",
        "!!python/name:os.system",
        "!!python/module:os",
        "!study",
    ],
)
def test_a_tag_makes_nothing(tag: str, tmp_path: Any) -> None:
    with pytest.raises(UserError, match=r"line 4, column 8: not valid YAML \(could not determine a constr"):
        parse_study(GOOD + f"about: {tag} [{tmp_path}/made]", "some.yaml")
    assert not list(tmp_path.iterdir())


def test_an_error_line_is_never_a_page_long() -> None:
    with pytest.raises(UserError) as error:
        parse_study(GOOD + f"recipe: {{steps: {'x' * 100_000}}}", "some.yaml")
    assert len(str(error.value)) < 1_100


def test_a_number_with_an_exponent_needs_no_point() -> None:
    assert parse_study(GOOD + "recipe: {lr: 2e-2, epsilon: 1E-9}", "").base_recipe() == Recipe(
        lr=0.02, epsilon=1e-9
    )


# Arbitrary texts and structures

WORDS = st.sampled_from(
    """
    name model seeds recipe space until sampler resources about tracking_uri rung family 57p
    first count grokked max_seeds cpu gpu auto lr steps recipe.lr model.qk_dim float int
    choice log step qk_dim circular curriculum split_subspace x [key] SeedRange str
    """.split()  # noqa: SIM905 - shorter so
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8) | st.dates()
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | LEAVES, inner, max_size=4),
    max_leaves=12,
)
FIELDS = list(Study.model_fields)
STUDIES = st.fixed_dictionaries(
    {"name": st.just("x") | NESTED, "model": st.just("57p") | NESTED, "seeds": st.just([1]) | NESTED},
    optional={name: NESTED for name in FIELDS if name not in ("name", "model", "seeds")},
)
SYNTAX = st.text(alphabet="{}[]:,-?!&*#|>'\"%@`\\ \n\tab1.e<=~\0\x1b\ud800é", max_size=60)


def only_user_errors(text: str) -> None:
    try:
        parse_study(text, "some.yaml")
    except UserError as error:
        lines = str(error).split("\n")
        assert all(line.startswith("some.yaml: ") and line.isprintable() for line in lines), lines


@settings(max_examples=200, deadline=None)
@given(STUDIES | NESTED)
def test_no_structure_brings_a_traceback(structure: Any) -> None:
    only_user_errors(yaml.safe_dump(structure, allow_unicode=True))


@settings(max_examples=200, deadline=None)
@given(SYNTAX | st.text(), st.booleans())
@example("? [a]\n: 1", False)
@example("!!set {a, b}", False)
@example("!!omap [a: 1]", False)
@example("!!pairs [a]", False)
@example("<<: 3", False)
@example("!!binary é", False)
@example("recipe: !!float ''", True)
@example("0o8: 1\n08: 1\n0x: 1\n0b2: 1\n1__2: 190:20:30", True)
@example("recipe: {lr: =}", True)
def test_no_text_brings_a_traceback(text: str, beginning: bool) -> None:
    only_user_errors(GOOD * beginning + text)


# Files


def test_a_study_is_a_path_or_a_name(tmp_path: Any) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(GOOD)
    assert load_study(str(file)).name == "x"
    assert load_study("57p").name == "57p"
    with pytest.raises(UserError, match=r"unknown study '58p'; did you mean 57p"):
        load_study("58p")
    with pytest.raises(UserError, match=r"nowhere\.yaml: no such study file"):
        load_study("nowhere.yaml")
    with pytest.raises(UserError, match="no such study file"):
        load_study(str(tmp_path))


def test_a_file_that_is_no_study_is_named(tmp_path: Any) -> None:
    file = tmp_path / "own.yaml"
    file.write_bytes(b"name: \xff")
    with pytest.raises(UserError, match=r"own\.yaml: cannot be read \('utf-8' codec can't decode"):
        load_study(str(file))
    file.write_bytes(b"#" * (LARGEST_FILE + 1))
    with pytest.raises(UserError, match=r"own\.yaml: larger than any study file \(1048577 bytes\)"):
        load_study(str(file))
    with pytest.raises(UserError, match=r"cannot be read \(File name too long\)"):
        load_study("x" * 5_000)
    with pytest.raises(UserError, match="unknown study"):
        load_study("a\0b")


# What a study means


def test_rounds_follow_up_to_the_limit() -> None:
    rounds = list(load_study("57p").rounds())
    assert [len(r) for r in rounds] == [16, 16, 16, 16]
    assert [s for r in rounds for s in r] == [Seed.of(777 + i) for i in range(64)]


@pytest.mark.parametrize(
    ("seeds", "until", "expected"),
    [
        ("[5, 3]", "{}", [[5, 3]]),
        ("[5, 3]", "{grokked: 1}", [[5, 3]]),
        ("[5, 3]", "{grokked: 1, max_seeds: 2}", [[5, 3]]),
        ("[5, 3]", "{grokked: 1, max_seeds: 5}", [[5, 3], [6, 7], [8]]),
        ("{first: 0, count: 1}", "{grokked: 1, max_seeds: 3}", [[0], [1], [2]]),
        (f"[{LARGEST_SEED}]", "{}", [[LARGEST_SEED]]),
    ],
)
def test_rounds_of_a_list(seeds: str, until: str, expected: list[list[int]]) -> None:
    study = parse_study(f"name: x\nmodel: 57p\nseeds: {seeds}\nuntil: {until}", "")
    assert [[s.init_seed for s in r] for r in study.rounds()] == expected


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_study_is_what_its_name_says(name: str) -> None:
    study = load_study(name)
    assert study.name == name and study.about
    if name in RUNGS:
        assert study.spec() == RUNGS[name]
        assert f"{study.spec().params}p" == name
    assert list(study.rounds())


def test_the_shipped_57p_recipe_is_the_papers() -> None:
    assert load_study("57p").base_recipe() == Recipe()


def test_a_rung_can_be_varied() -> None:
    study = parse_study("name: x\nmodel: {rung: 57p, tie_fc2_head: false}\nseeds: [1]", "")
    assert study.spec() == RUNGS["67p"]
    assert study.configuration({"model.qk_dim": 5, "recipe.lr": 0.1})[1] == Recipe(lr=0.1)


# Documented fields


def wants_a_unit(default: Any) -> bool:
    return type(default) in (int, float)


@pytest.mark.parametrize("cls", [Recipe, *{type(s) for s in RUNGS.values()}])
def test_every_field_of_recipe_and_spec_is_documented(cls: type[Recipe] | type[Spec]) -> None:
    for field in dataclasses.fields(cls):
        assert field.metadata["says"], field.name
        assert field.metadata["unit"] or not wants_a_unit(field.default), field.name


@pytest.mark.parametrize("cls", [Study, Until, SeedRange, Sampler, Resources, Distribution])
def test_every_key_of_a_study_is_documented(cls: type[BaseModel]) -> None:
    sections = {name for name, f in Study.model_fields.items() if isinstance(f.default, BaseModel)}
    for name, field in cls.model_fields.items():
        if cls is Study and name in sections:  # its class says it
            assert type(field.default).__doc__
            continue
        assert field.description, f"{cls.__name__}.{name}"
        counts = wants_a_unit(field.default) and (cls, name) != (Sampler, "seed")  # a seed counts nothing
        assert not counts or "unit: " in field.description, f"{cls.__name__}.{name}"


def test_the_sections_that_unknown_keys_are_compared_with_are_all_there() -> None:
    nested = {"until": Until, "sampler": Sampler, "resources": Resources, "space": Distribution}
    for section, cls in nested.items():
        known = study_module._siblings([section, "nothing"])
        assert known == [f.alias or name for name, f in cls.model_fields.items()]
