"""500 damaged files into every reader of files from elsewhere: no crash, one line of complaint.

Each reader raises one kind of error for its user (UserError, ValueError); any other fails here. A file that is
read in spite of its damage must survive being written and read again.
"""

import io
import json
import struct
import zipfile
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import strategies as st

from search.errors import UserError
from search.study.file import parse_study, shipped_studies
from search.study.schema import Study
from tests.foreign import NEW, SMALL, microadder, report
from tests.garbage import BITES, LEAVES, NESTED, VALUES, complaint, damaged, feed
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE, Checkpoint
from trainer.checkpoints.foreign import load_any

pytestmark = pytest.mark.usefixtures("here")


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
NUMBERS = NEW.initial(3).numpy().tobytes()
HEADER_VALUES = VALUES | st.sampled_from(
    [
        "F64",
        "F16",
        "I64",
        "F8_E8M0",
        "F4",
        "C64",
        "F99",
        [],
        [0],
        [57, 0],
        [0, 2**63],
        [2**62, 4],
        [-1],
        [57, 1],
    ]
)


def as_bytes(value):
    return json.dumps(value).encode()


def tensors(header, data=NUMBERS):
    """A safetensors file with any header."""
    return struct.pack("<Q", len(header)) + header + data


THETA = tensors(as_bytes(HEADER))
CHECKPOINTS = (
    st.builds(lambda damage: (as_bytes(damage(ABOUT)), THETA), damaged())
    | st.builds(lambda damage: (damage(as_bytes(ABOUT)), THETA), BITES)
    | st.builds(lambda damage: (as_bytes(ABOUT), tensors(as_bytes(damage(HEADER)))), damaged(HEADER_VALUES))
    | st.builds(lambda damage: (as_bytes(ABOUT), damage(THETA)), BITES)
    | st.builds(lambda value: (as_bytes(value), THETA), NESTED)
)


def read_checkpoint(path):
    """The complaint about a checkpoint; one that is taken is written and read again."""

    def read():
        checkpoint = load_any(path)
        checkpoint.save(Path("again"))
        again = Checkpoint.load(Path("again"))
        assert torch.equal(again.theta_P, checkpoint.theta_P) and again.spec == checkpoint.spec

    said = complaint(read, ValueError)
    assert said is None or said.startswith(str(path))
    return said


def read_pair(pair):
    folder = Path("ours")
    folder.mkdir(exist_ok=True)
    for name, data in zip((JSON_FILE, THETA_FILE), pair, strict=True):
        (folder / name).write_bytes(data)
    return read_checkpoint(folder)


def test_checkpoints():
    assert read_pair((as_bytes(ABOUT), THETA)) is None
    feed(CHECKPOINTS, 150, read_pair)
    assert {f.name for f in Path().iterdir()} == {"ours", "again"}


def headed(data=NUMBERS, **entry):
    return tensors(as_bytes({"theta": HEADER["theta"] | entry}), data)


LIES = {
    "a header of 8 EiB": ({}, struct.pack("<Q", 2**63) + b"{}"),
    "a terabyte": ({}, headed(shape=[2**38], data_offsets=[0, 2**40])),
    "overflow": ({}, headed(shape=[2**62, 4])),
    "nothing, 2^63 wide": ({}, headed(b"", shape=[0, 2**63], data_offsets=[0, 0])),
    "a deep header": ({}, tensors(b"[" * 100_000)),
    "a size of 400 digits": ({"spec": ABOUT["spec"] | {"heads": 10**400}}, THETA),
    "a width of 2 billion": ({"spec": SMALL.as_dict() | {"width": 2**31 - 1}}, THETA),
    "a long name of control characters": ({"spec": ABOUT["spec"] | {"\x1b[31m" * 100_000: 1}}, THETA),
}


@pytest.mark.parametrize("case", LIES)
def test_facts_that_lie_are_refused(case):
    changes, theta = LIES[case]
    assert read_pair((as_bytes(ABOUT | changes), theta))


# Other programs' files

ARC = torch.tensor(2.0)
OBJECTS = LEAVES | st.sampled_from(
    [ARC, ARC * torch.nan, ARC.double() / 3, ARC.long(), ARC.expand(10**6, 10**6), torch.empty(0), ARC * 1j,
     torch.ones(2, 5).t(), torch.ones(2, 5).to_sparse(), torch.ones(2, 5, device="meta"), torch.ones(1, 57),
     torch.nn.Parameter(ARC), torch.ones([1] * 60), torch.float16, {1, 2}]
)  # fmt: skip


def saved(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def repacked(data, damage, entry="data.pkl"):
    """An archive whose pickle is damaged and whose checksums are right."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(buffer, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            target.writestr(info.filename, damage(content) if info.filename.endswith(entry) else content)
    return buffer.getvalue()


CONTENTS = [microadder(), report(SMALL)]
SAVED = [saved(content) for content in CONTENTS]
STEPS = [
    b"]", b"}", b"(", b"l", b"t", b"\x85", b"s", b"a", b"0", b"2", b")", b"N", b"q\x01", b"h\x01", b"K\x07",
    b"\x8a\x01\x7f", b"R", b"b", b"Q", b"\x81", b"X\xff\xff\xff\x7fa", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n", b"cargparse\nNamespace\n", b"cos\nsystem\n", b"\x93",
]  # fmt: skip
OPCODES = st.lists(st.sampled_from(STEPS), max_size=30).map(
    lambda s: lambda _: b"\x80\x02" + b"".join(s) + b"."
)
FILES = (
    st.builds(lambda damage, content: saved(damage(content)), damaged(OBJECTS), st.sampled_from(CONTENTS))
    | st.builds(lambda damage, data: damage(data), BITES, st.sampled_from(SAVED))
    | st.builds(lambda damage, data: repacked(data, damage), BITES | OPCODES, st.sampled_from(SAVED))
    | st.builds(lambda damage, data: repacked(data, damage, "data/0"), BITES, st.sampled_from(SAVED))
)


def read_file(data):
    file = Path("theirs.pt")
    file.write_bytes(data)
    return read_checkpoint(file)


def test_other_programs_files():
    assert [read_file(data) for data in SAVED] == [None, None]
    feed(FILES, 150, read_file)
    assert {f.name for f in Path().iterdir()} == {"theirs.pt", "again"}


def zipped(**content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(f"archive/{ {'pickle': 'data.pkl', 'numbers': 'data/0'}[name] }", data)
    return buffer.getvalue()


ARCHIVES = {
    "8 MiB of numbers": lambda: zipped(pickle=b"\x80\x02}.", numbers=bytes(8 << 20)),
    "8 MiB of pickle": lambda: zipped(pickle=bytes(8 << 20)),
    "memo of itself": lambda: repacked(SAVED[0], lambda _: b"\x80\x02]q\x01h\x01a."),
    "a pickle 100,000 deep": lambda: zipped(pickle=b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "a text of 2 GB": lambda: zipped(pickle=b"\x80\x02X\xff\xff\xff\x7fa."),
    "a terabyte": lambda: repacked(SAVED[0], lambda p: p.replace(b"K\x05tq", b"\x8a\x05\0\0\0\0\1tq")),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_unfold_are_refused(case):
    assert read_file(ARCHIVES[case]())


# Study files

TEXTS = list(shipped_studies().values())
WORDS = st.sampled_from(
    ["!!python/object/apply:os.system [touch made]", "&a [*a]", "*a", "<<: {a: 1}", "!!binary aGk=", "!!set {a}",
     "!!timestamp 2020-01-01", "1" + ":59" * 3_000, "0x" + "f" * 5_000, "!!float x", "? [a]", "2020-99-99",
     "|\n a", "'", "\t", "%YAML 9.9", ".nan"]
)  # fmt: skip
STUDIES = (
    st.builds(
        lambda damage, text, word: json.dumps(damage(yaml.safe_load(text))).replace('"57p"', word),
        damaged(VALUES | st.just("57p")),
        st.sampled_from(TEXTS),
        WORDS | st.just('"57p"'),
    )
    | st.builds(
        lambda damage, text: damage(text.encode()).decode("utf-8", "replace"), BITES, st.sampled_from(TEXTS)
    )
    | st.text(alphabet="{}[]:,-?!&*#|>'\"%@`\\ \n\tab1.e<=~\0\x1b\ud800é", max_size=60)
)


def read_study(text):
    def read():
        study = parse_study(text, "some.yaml")
        again = Study.model_validate_json(study.model_dump_json(by_alias=True))  # as MLflow keeps it
        assert again.listed == study.listed and again.planned == study.planned

    return complaint(read, UserError)


def test_studies():
    assert not any(map(read_study, TEXTS))
    feed(STUDIES, 200, read_study)
    assert not list(Path().iterdir())


ONE = "name: x\nmodel: 57p\nseeds: [1]\n"
LONG = "0x" + "f" * 5_000
BOMBS = {
    **{f"6,000 digits for {field}": ONE + field.format(LONG) for field in (
        "recipe: {{lr: {}}}", "resources: {{cpu: {}}}", "until: {{grokked: {}}}", "{}: 1", "toggle: [qk_dim={}]",
        "space: {{recipe.lr: {{float: [0, {}]}}}}",
    )},
    "10^30 seeds": ONE.replace("[1]", f"{{first: 0, count: {10**30}}}"),
    "10^30 rounds": ONE + f"until: {{grokked: 1, max_seeds: {10**30}}}",
    "4 million crossed seeds": ONE.replace("[1]", f"{{init: {[*range(2_000)]}, data: {[*range(2_000)]}}}"),
    "a grid of 2 billion": ONE + "sampler: {name: grid}\nspace: {recipe.hold: {int: [0, 2000000000]}}",
    "a step of nothing": ONE + "space: {recipe.lr: {float: [0.1, 0.2], step: 1.0e-300}}",
    "10^9 evaluations": ONE + "recipe: {steps: 1000000000, eval_every: 1}",
    "101 toggles": ONE + f"toggle: [{', '.join(['tie_vo'] * 101)}]",
    "3,030 arms": f"name: x\nseeds: [1]\nscales: {{{', '.join(f'{n}p: {{rate: 1}}' for n in range(30))}}}\n"
    f"constraints: [{', '.join(f'qk_dim={n}' for n in range(100))}]",
    "7,000 stages": ONE + "recipe: {curriculum: [" + "[1, 1], " * 7_000 + "]}",
    "10,000 threads": ONE + "resources: {cpu: 10000}",
    "80,000 keys": "{" + ", ".join(f"a{n}: 1" for n in range(80_000)) + "}",
    "a list of merge keys": "{<<: [" + "{a: 1}, " * 6_000 + "]}",
    "a number of 40,000 colons": ONE.replace("[1]", f"[1{':1' * 40_000}]"),
    "a merge of a number": "<<: 3",
    **{f"1 MiB of {sign}": sign * ((1 << 20) // len(sign)) for sign in ("[", "{a: ", "- ", "!!set {")},
}  # fmt: skip


@pytest.mark.parametrize("case", BOMBS)
def test_a_study_that_asks_for_too_much_is_refused(case):
    assert read_study(BOMBS[case])
