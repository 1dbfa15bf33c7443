"""One reader for JSON and YAML: what is a number, what is refused, and where."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.errors import UserError
from search.study.file import load_study, parse_study
from search.study.reading import read_data
from tests.commands import refusal, says
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("here")
BEGIN = "name: x\nmodel: 57p\nseeds: [1]\n"


# Numbers


@pytest.mark.parametrize(
    ("text", "value"),
    {
        "-.5": -0.5, "+.5": 0.5, ".5": 0.5, ".5e2": 50, "-.5E-2": -0.005, "1e-5": 1e-5, "1e-05": 1e-5,
        "1.e-3": 0.001, "+1.5": 1.5, "1E4": 10_000, "1e+4": 10_000, "2.5e3": 2_500, "-0": 0, "12": 12,
        "0x1f": 31, "1_000": 1_000, ".": ".", "e5": "e5", "1e": "1e", "-.e5": "-.e5", "on": True,
        "off": False, "yes": True, "no": False, "~": None, "1.2.3": "1.2.3", "57p": "57p",
    }.items(),
)  # fmt: skip
def test_numbers_are_those_of_yaml_1_2(text, value):
    (found,) = read_data(f"a: {text}").values()
    assert found == value and type(found) is type(value)
    assert read_data(f"[{text}]") == [value]


TEXT = st.text('aé🎲\t"\\ :-#\u2028\x07', max_size=4)
WRITTEN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**900), 2**900) | TEXT | st.floats(allow_nan=False, width=32)
    .filter(lambda x: abs(x) < 1e38),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(WRITTEN, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_whatever_json_writes_is_read(value, indent, ascii_):
    assert read_data(json.dumps(value, indent=indent, ensure_ascii=ascii_)) == value


STUDY = {"name": "x", "about": "two 🎲", "model": "57p", "seeds": {"first": 1, "count": 2}, "recipe": {"lr": 1e-05}}


@pytest.mark.parametrize("indent", [None, "\t"])
def test_a_study_in_json(indent):
    for file in (Path("own.json"), Path("own.yaml")):
        file.write_text("\ufeff" + json.dumps(STUDY, indent=indent), "utf-8")
        study = load_study(str(file))
        assert study.base_recipe.lr == 1e-05 and study.about == "two 🎲"
    assert parse_study(BEGIN + 'about: "\\ud83c\\udfb2"', "f").about == "🎲"


def test_a_checkpoint_and_ties_in_json():
    study = parse_study("name: x\nmodel: {preset: 57p, spiral_slope: 1e-05}\nseeds: [1]", "f")
    about = Checkpoint(study.base_spec, None).as_dict()  # type: ignore[arg-type]
    Path("checkpoint.json").write_text(json.dumps(about, indent="\t"))
    assert "1e-05" in Path("checkpoint.json").read_text()
    again = parse_study("name: x\nmodel: {checkpoint: checkpoint.json}\nseeds: [1]", "f")
    assert again.base_spec == study.base_spec
    Path("ties.json").write_text('[\n\t"fc1[1,4] = -fc1[0,0]"\n]')
    assert parse_study("name: x\nmodel: {base: 57p, ties: ties.json}\nseeds: [1]", "f").base_spec.params == 56


# What is refused, and where

NBSP, WIDE, ZERO = "\u00a0", "\u3000", "\u200b"


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "a:\n\tb: 1": "line 2, column 1: not valid YAML (found character *; line 2, column 1 has TAB (U+0009))",
        "{\n\t'a': 1,\n\t2: }": "line 2, column 1: not valid YAML (*; line 2, column 1 has TAB (U+0009))",
        f"a:\n{NBSP}{NBSP}b: 1\n  c: 2": "*line 2, column 1 has NO-BREAK SPACE (U+00A0))",
        f"a: 1\nb{ZERO}: [1\nc: 2": "*line 2, column 2 has ZERO WIDTH SPACE (U+200B))",
        "a: 1\nb: \x07": "line 2, column 4: not valid YAML (*; line 2, column 4 has a control character (U+0007))",
        "a: [1, 2\nb: 3": "line 2, column *: not valid YAML (*)",
        '{"a": 1, "a": 2}': "line 1, column 10: not valid YAML (key given twice: a)",
        '{"a": "\\ud83c"}': "line 1, column 7: not valid YAML (no str: *)",
        '{"a": ' + "9" * 400 + "}": "line 1, column 7: not valid YAML (no int: *)",
    }.items(),
)
def test_what_is_no_data_is_told_with_its_place_and_character(text, expected):
    assert says(refusal(ValueError, read_data, text), expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    {
        f"recipe:\n  {NBSP}lr: 0.1": "f: recipe.*lr: unknown key; did you mean lr*; it has NO-BREAK SPACE (U+00A0)",
        f"{ZERO}about: y": "f: *about: unknown key; did you mean about*; it has ZERO WIDTH SPACE (U+200B)",
        "recipe: {lr: −0.5}": "f: recipe.lr: must be *, got *; it has MINUS SIGN (U+2212)",
        f"resources: {{slots: 1{WIDE}6}}": "f: resources.slots: *; it has IDEOGRAPHIC SPACE (U+3000)",
        "confirm: {seeds: “8”}": "f: confirm.seeds: *; it has LEFT DOUBLE QUOTATION MARK (U+201C)",
        "recipe: {lr: x}": "f: recipe.lr: must be *, got 'x'",
    }.items(),
)
def test_a_character_that_cannot_be_seen_is_named(line, expected):
    assert says(refusal(UserError, parse_study, BEGIN + line, "f"), expected)
