"""Damaged files into every reader of files from elsewhere: no crash, one line of complaint.

Each reader raises one kind of error for its user (UserError, ValueError), of one line; any other fails here. A
file that is read in spite of its damage must survive being written and read again.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from tests.bad_foreign import NEW, SMALL, new, old
from tests.garbage import (
    BITES,
    LEAVES,
    NESTED,
    SHARES,
    VALUES,
    check_lines,
    complaint,
    damaged,
    feed,
)
from tests.published import noisy, report
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE, Checkpoint
from trainer.checkpoints.foreign import load_any

pytestmark = pytest.mark.usefixtures("here")


# ---- our checkpoints

CHECKPOINT = Checkpoint(
    NEW,
    NEW.initial(3),
    recipe={"steps": 100, "lr": 0.02, "curriculum": [[3, 10]]},
    seed={"init_seed": 3, "data_seed": 3},
    metrics={"outcome": "grokked", "best_exact": 1.0},
    provenance={"study": "57p", "configuration": "0" * 12},
)
ABOUT = json.loads(json.dumps(CHECKPOINT.as_dict()))
REPORT_ABOUT = ABOUT | {"spec": SMALL.as_dict(), "params": SMALL.params}
HEADER = {"theta": {"dtype": "F32", "shape": [57], "data_offsets": [0, 228]}, "__metadata__": {"a": "b"}}
NUMBERS = NEW.initial(3).numpy().tobytes()
DTYPES = ["F64", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "F8_E8M0", "F4", "F6_E2M3", "C64", "F99"]
SHAPES = [[], [0], [57, 0], [2**63], [0, 2**63], [2**62, 4], [-1], [1] * 70, [57, 1], [228]]
HEADER_VALUES = st.sampled_from([*DTYPES, *SHAPES, [0, 2**64], [0, 0], [228, 0]]) | VALUES


def tensors(header: str, data: bytes = NUMBERS) -> bytes:
    """A safetensors file with any header."""
    raw = header.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw + data


THETA = tensors(json.dumps(HEADER))
PAIRS = (
    st.builds(
        lambda damage, about: (json.dumps(damage(about)).encode("utf-8", "surrogatepass"), THETA),
        damaged(),
        st.sampled_from([ABOUT, REPORT_ABOUT]),
    )
    | BITES.map(lambda damage: (damage(json.dumps(ABOUT).encode()), THETA))
    | damaged(HEADER_VALUES).map(
        lambda damage: (json.dumps(ABOUT).encode(), tensors(json.dumps(damage(HEADER))))
    )
    | BITES.map(lambda damage: (json.dumps(ABOUT).encode(), damage(THETA)))
    | st.tuples(st.binary(max_size=80), st.binary(max_size=80))
    | st.tuples(NESTED.map(lambda v: json.dumps(v).encode("utf-8", "surrogatepass")), st.just(THETA))
)


def read_checkpoint(path: Path, again: Path) -> str | None:
    """The complaint about a checkpoint; one that is taken is written and read again."""

    def read() -> None:
        checkpoint = load_any(path)
        checkpoint.save(again)
        found = Checkpoint.load(again)
        assert torch.equal(found.theta_P, checkpoint.theta_P) and found.spec == checkpoint.spec

    said = complaint(read, ValueError)
    if said is not None:
        check_lines(said)
        assert said.startswith(str(path.parent if path.suffix == ".json" else path)), said
    return said


def read_pair(pair: tuple[bytes, bytes]) -> str | None:
    folder = Path("ours")
    folder.mkdir(exist_ok=True)
    for name, data in zip((JSON_FILE, THETA_FILE), pair, strict=True):
        (folder / name).write_bytes(data)
    return read_checkpoint(folder, Path("again"))


def test_checkpoints() -> None:
    assert read_pair((json.dumps(ABOUT).encode(), THETA)) is None
    feed(PAIRS, SHARES["checkpoints"], read_pair)
    assert {f.name for f in Path().iterdir()} == {"ours", "again"}


def headed(data: bytes = NUMBERS, **entry: Any) -> bytes:
    return tensors(json.dumps({"theta": HEADER["theta"] | entry}), data)


FALSE_THETA = {
    "a header of 8 EiB": struct.pack("<Q", 2**63) + b"{}",
    "a terabyte": headed(shape=[2**38], data_offsets=[0, 2**40]),
    "overflow": headed(shape=[2**62, 4]),
    "nothing, 2^63 wide, and no more": headed(b"", shape=[0, 2**63], data_offsets=[0, 0]),
    "100,000 dimensions": headed(shape=[1] * 100_000),
    "dtype F4": tensors('{"theta":{"dtype":"F4","shape":[456],"data_offsets":[0,228]}}'),
    "a deep header": tensors("[" * 100_000),
}  # fmt: skip
LIES: dict[str, dict[str, Any]] = {
    "a size of 400 digits": {"spec": ABOUT["spec"] | {"heads": 10**400}},
    "a width of 2 billion": {"spec": SMALL.as_dict() | {"width": 2**31 - 1}},
    "a name of lines": {"seed": {"a\nb\x1b[31m": "x"}},
    "an option of a megabyte": {"spec": ABOUT["spec"] | {"a" * (1 << 20): 1}},
}


@pytest.mark.parametrize("case", FALSE_THETA)
def test_numbers_that_are_not_there_are_refused(case: str) -> None:
    assert read_pair((json.dumps(ABOUT).encode(), FALSE_THETA[case])), "taken"


@pytest.mark.parametrize("case", LIES)
def test_facts_that_lie_are_refused(case: str) -> None:
    assert read_pair((json.dumps(ABOUT | LIES[case]).encode(), THETA)), "taken"


# ---- other programs' files

CONTENTS = [new(), old(), report(SMALL, noisy(SMALL))]
ARC = torch.tensor(2.0)
TENSORS = st.sampled_from(
    [ARC, ARC * torch.nan, ARC.double() / 3, ARC.long(), ARC.expand(10**6, 10**6), torch.empty(0), ARC * 1j,
     torch.ones(2, 5).t(), torch.ones(2, 5).to_sparse(), torch.ones(2, 5, device="meta"), torch.ones(1, 57),
     torch.nn.Parameter(ARC), torch.ones(5, requires_grad=True), torch.ones([1] * 60), torch.float16,
     {1, 2}, 1j]
)  # fmt: skip
OBJECTS = TENSORS | LEAVES | NESTED


def saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def repacked(data: bytes, damage: Callable[[bytes], bytes], entry: str = "data.pkl") -> bytes:
    """An archive whose pickle is damaged and whose checksums are right."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old_,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new_,
    ):
        for info in old_.infolist():
            content = old_.read(info)
            new_.writestr(info.filename, damage(content) if info.filename.endswith(entry) else content)
    return buffer.getvalue()


SAVED = [saved(content) for content in CONTENTS]
STEPS = [
    b"]", b"}", b"(", b"l", b"t", b"\x85", b"\x86", b"s", b"u", b"a", b"e", b"d", b"0", b"1", b"2", b")",
    b"N", b"\x88", b"q\x01", b"h\x01", b"K\x07", b"M\xff\xff", b"J\xff\xff\xff\xff", b"\x8a\x01\x7f", b"R",
    b"b", b"Q", b"\x81", b"X\x01\x00\x00\x00a", b"X\xff\xff\xff\x7fa", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n", b"cargparse\nNamespace\n",
    b"ctorch\ndevice\n", b"cpathlib\nPosixPath\n", b"cos\nsystem\n", b"\x8c\x01a", b"\x93",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
]  # fmt: skip
OPCODES = st.lists(st.sampled_from(STEPS), max_size=30).map(
    lambda steps: lambda _: b"\x80\x02" + b"".join(steps) + b"."
)
FILES = (
    st.builds(lambda damage, content: saved(damage(content)), damaged(OBJECTS), st.sampled_from(CONTENTS))
    | st.builds(lambda damage, data: damage(data), BITES, st.sampled_from(SAVED))
    | st.builds(lambda damage, data: repacked(data, damage), BITES | OPCODES, st.sampled_from(SAVED))
    | st.builds(lambda damage, data: repacked(data, damage, "data/0"), BITES, st.sampled_from(SAVED))
    | st.binary(max_size=80).map(lambda data: b"PK\x03\x04" + data)
    | st.binary(max_size=80)
)


def read_file(data: bytes) -> str | None:
    file = Path("theirs.pt")
    file.write_bytes(data)
    return read_checkpoint(file, Path("again"))


def test_other_programs_files() -> None:
    for data in SAVED:
        assert read_file(data) is None
    feed(FILES, SHARES["other programs' files"], read_file)
    assert {f.name for f in Path().iterdir()} == {"theirs.pt", "again"}


def zipped(**content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in content.items():
            archive.writestr(f"archive/{name.replace('_', '/').replace('PKL', 'data.pkl')}", data)
    return buffer.getvalue()


PICKLE = b"\x80\x02}."
ARCHIVES = {
    "8 MiB of numbers": lambda: zipped(PKL=PICKLE, data_0=bytes(8 << 20)),
    "8 MiB of pickle": lambda: zipped(PKL=bytes(8 << 20)),
    "memo of itself": lambda: repacked(SAVED[0], lambda _: b"\x80\x02]q\x01h\x01a."),
    "a pickle 100,000 deep": lambda: zipped(PKL=b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "a text of 2 GB": lambda: zipped(PKL=b"\x80\x02X\xff\xff\xff\x7fa."),
    "a storage of a terabyte": lambda: repacked(
        SAVED[0], lambda p: p.replace(b"K\x05tq", b"\x8a\x05\0\0\0\0\1tq")
    ),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_unfold_are_refused(case: str) -> None:
    assert read_file(ARCHIVES[case]()), "taken"
