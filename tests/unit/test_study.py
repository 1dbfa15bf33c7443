"""The study file: what is wrong with it is said in one line: source, key path and what would be right."""

import dataclasses

import pytest
from pydantic import BaseModel

from model import PRESETS
from search.errors import UserError
from search.study.file import load_study, parse_study
from search.study.resources import Resources
from search.study.sampler import Sampler
from search.study.schema import Study
from search.study.seeds import SeedRange, Until
from search.study.space import LARGEST_SEED, Distribution
from search.study.stopping import Stop
from tests.bad_studies import BAD, GOOD
from tests.commands import refusal, says
from trainer import Recipe


@pytest.mark.parametrize(("text", "expected"), BAD.items(), ids=[repr(t[-60:]) for t in BAD])
def test_a_bad_study_is_told_line_by_line(text, expected):
    with pytest.raises(UserError) as error:
        parse_study(text, "some.yaml")
    lines = str(error.value).split("\n")
    assert len(lines) == len(expected), lines
    for line, wanted in zip(lines, expected, strict=True):
        assert line.isprintable()
        assert says(line, f"some.yaml: {wanted}"), line


def test_all_keys_of_a_wrong_form_are_said_at_once():
    """And none that comes from what another one is about."""
    text = (
        "name: x\nmodel: 57p\nseeds: {first: 1, count: 0}\nrecipes: 3\nuntil: {groked: 1}\n"
        "recipe: {lr: -1, step: 4}\nspace: {recipe.hold: {int: [5, 2]}}\n"
    )
    with pytest.raises(UserError) as error:
        parse_study(text, "some.yaml")
    paths = [line.split(": ")[1] for line in str(error.value).split("\n")]
    assert sorted(paths) == ["recipes", "seeds.count", "space.recipe.hold", "until.groked"], error.value


# Files


def test_a_study_is_a_path_or_a_name(tmp_path):
    """What else is said of a wrong one is in test_sources.py."""
    file = tmp_path / "own.yaml"
    file.write_text(GOOD)
    assert load_study(str(file)).name == "x"
    assert load_study("57p").name == "57p"
    file.write_bytes(b"name: \xff")
    for name, expected in {
        "a\0b": "unknown study *",
        "x" * 5_000: "*: cannot be read (File name too long)",
        str(file): "*own.yaml: cannot be read ('utf-8' codec can't decode*",
    }.items():
        assert says(refusal(UserError, load_study, name), expected)


@pytest.mark.parametrize("start", ["checkpoint: c, seed: 0", "study: y, seed: 0, best: 2", "study: y, seed: -5"])
def test_a_start_from_a_seed_is_checked_whichever_number_it_is(start):
    with pytest.raises(UserError, match=r"^f: start: (a study goes with one of|a seed is a number, .*got '-5')"):
        parse_study(f"name: x\nmodel: 57p\nseeds: [1]\nstart: {{{start}}}\n", "f")


@pytest.mark.parametrize("text", ["!!bool x", "2024-13-01", "a: ["])
def test_ties_that_are_no_yaml_are_named_with_key_and_file(text, tmp_path):
    (file := tmp_path / "ties.yaml").write_text(text)
    said = refusal(UserError, parse_study, f"name: x\nmodel: {{base: 57p, ties: {file}}}\nseeds: [1]\n", "f")
    assert said.startswith(f"f: model.ties: {file}: line 1, column ")


# What a study means


@pytest.mark.parametrize(
    ("seeds", "until", "expected"),
    [
        ("[5, 3]", "{}", [[5, 3]]),
        ("[5, 3]", "{grokked: 1, max_seeds: 2}", [[5, 3]]),
        ("[5, 3]", "{grokked: 1, max_seeds: 5}", [[5, 3], [6, 7], [8]]),
        ("{first: 0, count: 1}", "{grokked: 1, max_seeds: 3}", [[0], [1], [2]]),
        (f"[{LARGEST_SEED}]", "{}", [[LARGEST_SEED]]),
    ],
)
def test_rounds_of_a_list(seeds, until, expected):
    study = parse_study(f"name: x\nmodel: 57p\nseeds: {seeds}\nuntil: {until}", "")
    assert [[s.init_seed for s in r] for r in study.rounds] == expected


# Documented fields


def wants_a_unit(default):
    return type(default) in (int, float)


@pytest.mark.parametrize("cls", [Recipe, *dict.fromkeys(type(s) for s in PRESETS.values())])
def test_every_field_of_recipe_and_spec_is_documented(cls):
    for field in (f for f in dataclasses.fields(cls) if f.name != "task"):
        assert field.metadata["help"], field.name
        assert field.metadata["unit"] or not wants_a_unit(field.default), field.name


@pytest.mark.parametrize("cls", [Study, Until, Stop, SeedRange, Sampler, Resources, Distribution])
def test_every_key_of_a_study_is_documented(cls):
    for name, field in cls.model_fields.items():
        if cls is Study and isinstance(field.default, BaseModel):
            assert type(field.default).__doc__
            continue
        assert field.description, f"{cls.__name__}.{name}"
        counts = wants_a_unit(field.default) and (cls, name) not in ((Sampler, "seed"), (SeedRange, "first"))
        assert not counts or "unit: " in field.description, f"{cls.__name__}.{name}"


def test_toggled_constraints_are_configurations_of_their_own():
    study = parse_study("name: x\nmodel: 57p\nseeds: [1]\ntoggle: [tie_vo, qk_dim=4, qk_dim, spiral]\n", "")
    assert [spec.params for spec, _ in study.listed] == [57, 67, 60, 87], "spiral: with all that needs it"
    assert study.listed[1][0] == study.base_spec.without("tie_vo") and study.planned == 4
