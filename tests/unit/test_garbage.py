"""Damaged files into every reader of files from elsewhere: no crash, one line of complaint.

Each reader raises one kind of error for its user (UserError, ValueError); any other fails here. A file that is
read in spite of its damage must survive being written and read again.
"""

import copy
import json
import struct
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model import PRESETS
from search.errors import UserError
from search.study.checkpoints import load_any
from search.study.file import parse_study, shipped_studies
from search.study.schema import Study
from tests import ROOT, readable
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE, Checkpoint

pytestmark = pytest.mark.usefixtures("here")
NEW = PRESETS["57p"]

LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=6)
    | st.sampled_from([2**31, -(2**63), 10**400, 1e308, "\ud800", "a\nb", "\x1b[31m", "../../x", "x" * 10_000])
)  # fmt: skip
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=3), LEAVES, max_size=3)


def places(value):
    """Every container and key in nested dictionaries and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from places(inner)


def damaged(whole, values=VALUES):
    """Copies of a structure in which a value is another one, or missing."""

    def damage(where, value, remove):
        content = copy.deepcopy(whole)
        container, key = [*places(content)][where % len([*places(content)])]
        if remove:
            del container[key]
        else:
            container[key] = value
        return content

    return st.builds(damage, st.integers(0, 10_000), values, st.booleans())


def bitten(data):
    """Copies of a file with one byte changed, or its end cut off."""

    def bite(where, bit, cut):
        place = where % len(data)
        return data[:place] + (b"" if cut else bytes([data[place] ^ 1 << bit]) + data[place + 1 :])

    return st.builds(bite, st.integers(0, 1 << 20), st.integers(0, 7), st.booleans())


def feed(strategy, count, read):
    """Give `count` inputs to a reader: the same ones each time."""

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def feed_one(value):
        read(value)

    feed_one()


def complaint(read, kind):
    """The complaint of a reader, of short printable lines, or None if it took its input."""
    try:
        read()
    except kind as error:
        text = str(error)
        assert text and text.count("\n") < 40, text[:2_000]
        assert all(line.isprintable() and len(line) < 2_000 for line in text.split("\n")), ascii(text)
        return text
    return None


def read_checkpoint(path):
    """The complaint about a checkpoint; one that is taken is written and read again."""

    def read():
        checkpoint = load_any(path)
        checkpoint.save(Path("again"))
        again = Checkpoint.load(Path("again"))
        assert torch.equal(again.theta_P, checkpoint.theta_P) and again.spec == checkpoint.spec

    text = complaint(read, ValueError)
    assert text is None or text.startswith(str(path))
    return text


# Our checkpoints

CHECKPOINT = Checkpoint(
    NEW,
    NEW.initial(3),
    recipe={"steps": 100, "lr": 0.02, "curriculum": [[3, 10]]},
    seed={"init_seed": 3, "data_seed": 3},
    metrics={"outcome": "grokked", "best_exact": 1.0},
    provenance={"study": "57p", "configuration": "0" * 12},
)
ABOUT = json.loads(json.dumps(CHECKPOINT.as_dict()))
HEADER = {"theta": {"dtype": "F32", "shape": [57], "data_offsets": [0, 228]}, "__metadata__": {"a": "b"}}


def tensors(header):
    """A safetensors file with any header."""
    header = json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + NEW.initial(3).numpy().tobytes()


def read_pair(pair):
    folder = Path("ours")
    folder.mkdir(exist_ok=True)
    for name, data in zip((JSON_FILE, THETA_FILE), pair, strict=True):
        (folder / name).write_bytes(data)
    return read_checkpoint(folder)


def test_checkpoints():
    about, theta = json.dumps(ABOUT).encode(), tensors(HEADER)
    assert read_pair((about, theta)) is None
    headers = damaged(HEADER, VALUES | st.sampled_from(["F64", "I64", "F99", [57, 0], [0, 2**63], [-1]]))
    abouts = bitten(about) | damaged(ABOUT).map(lambda value: json.dumps(value).encode())
    feed(st.tuples(abouts, st.just(theta)), 40, read_pair)
    feed(st.tuples(st.just(about), bitten(theta) | headers.map(tensors)), 40, read_pair)
    assert {f.name for f in Path().iterdir()} == {"ours", "again"}


# Study files


def read_study(text):
    def read():
        study = parse_study(text, "some.yaml", ROOT / "studies")
        again = Study.model_validate_json(study.model_dump_json(by_alias=True))  # as MLflow keeps it
        assert again.listed == study.listed and again.planned == study.planned

    return complaint(read, UserError)


def test_studies():
    texts = list(readable(shipped_studies()).values())
    assert not any(map(read_study, texts))
    contents = st.sampled_from(texts).flatmap(lambda text: damaged(yaml.safe_load(text)).map(json.dumps))
    files = st.sampled_from(texts).flatmap(
        lambda text: bitten(text.encode()).map(lambda data: data.decode("utf-8", "replace"))
    )
    feed(contents | files | st.text("{}[]:,-?!&*#|>'\"%@`\\ \n\tab1.e<=~\0\x1b\ud800é"), 120, read_study)
    assert not list(Path().iterdir())


ONE = "name: x\nmodel: 57p\nseeds: [1]\n"
BOMBS = {
    "6,000 digits": ONE + f"recipe: {{lr: {'0x' + 'f' * 5_000}}}",
    "10^30 seeds": ONE.replace("[1]", f"{{first: 0, count: {10**30}}}"),
    "4 million crossed seeds": ONE.replace("[1]", f"{{init: {[*range(2_000)]}, data: {[*range(2_000)]}}}"),
    "a grid of 2 billion": ONE + "sampler: {name: grid}\nspace: {recipe.hold: {int: [0, 2000000000]}}",
    "10^9 evaluations": ONE + "recipe: {steps: 1000000000, eval_every: 1}",
    "7,000 stages": ONE + "recipe: {curriculum: [" + "[1, 1], " * 7_000 + "]}",
    "10,000 threads": ONE + "resources: {cpu: 10000}",
    "80,000 keys": "{" + ", ".join(f"a{n}: 1" for n in range(80_000)) + "}",
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_study_that_asks_for_too_much_is_refused(case):
    assert read_study(BOMBS[case])
