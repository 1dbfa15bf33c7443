"""check.py alone: what it vouches for is what it found, and whatever it is given, it refuses in one line."""

import json
import os
import shutil
import time
from functools import cache

import pytest

from adders.proof import check
from adders.proof.file import proof_text
from adders.proof.prover import prove
from tests import CERTIFICATES
from tests.commands import refusal
from trainer.checkpoints.checkpoint import Checkpoint

FOLDER = CERTIFICATES / "34p-by-hand"


@cache
def written():
    """The text of a proof for one digit."""
    checkpoint = Checkpoint.load(FOLDER)
    proof = prove(checkpoint.spec, checkpoint.theta_P, digits=1)
    return proof_text(checkpoint.spec, checkpoint.theta_P, proof)


def edited(**values):
    return json.dumps(json.loads(written()) | values)


def refused(proof, folder=FOLDER):
    """The one line of refusal, which comes at once."""
    start = time.monotonic()
    said = refusal(SystemExit, check.main, str(proof), str(folder))
    assert said.startswith("NOT CHECKED: ") and len(said.splitlines()) == 1 and len(said) < 400
    assert time.monotonic() - start < 10
    return said


def refused_text(text, here):
    (here / "p.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return refused(here / "p.json")


def changed(name, key, value):
    """A proof in which one entry of what `name` has is another one."""
    return edited(**{name: json.loads(written())[name] | {key: value}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: edited(claim="right on everything"), "claim is another one"),
        (lambda: edited(params=6), "params is another one"),
        (lambda: edited(params=True), "params is another one"),
        (lambda: edited(digits=10), "claim is another one"),
        (lambda: edited(level="here"), "level is another one"),
        (lambda: edited(checker=None), "checker is another one"),
        (lambda: edited(format=1.0), "format is another one"),
        (lambda: changed("spec", "spiral_amp", 2.0), "spec is not the checkpoint's"),
        (lambda: changed("spec", "verdict", True), "field 'verdict' is unknown"),
        (lambda: changed("bounds", "exp", 8), "bounds is another one"),
        (lambda: changed("margin", "logits", 12.5), "the pair's margin is 10.5"),
        (lambda: changed("margin", "pair", [1, 2]), "the pair's margin is "),
        (lambda: edited(theta_sha256="0" * 64), "another θ"),
        (lambda: edited(note="and on all of 20 digits"), "no proof"),
    ],
)
def test_what_people_quote_cannot_be_edited(here, change, said):
    assert said in refused_text(change(), here)


HOSTILE = {
    "no number": lambda: edited(margin=float("nan")),
    "infinity": lambda: changed("margin", "logits", float("inf")),
    "rows, as format 1 had them": lambda: edited(rows=[[0, 0, 0, 0.0, 1.0]]),
    "deep lists": lambda: "[" * 1_000_000,
    "deep objects": lambda: '{"a":' * 300_000,
    "an int of a million digits": lambda: '{"digits": ' + "9" * 1_000_000 + "}",
    "a name twice": lambda: written().rstrip().rstrip("}") + ', "digits": 10}',
    "no UTF-8": lambda: b'{"claim": "\xff\xfe"}',
    "no object": lambda: "[1, 2]",
    "nothing": lambda: "",
    "too large": lambda: " " * (check.MOST_BYTES + 1),
    "a key is missing": lambda: json.dumps({n: v for n, v in json.loads(written()).items() if n != "margin"}),
    "digits are text": lambda: edited(digits="ten"),
    "the digest is a list": lambda: edited(theta_sha256=["0"]),
    "the margin is text": lambda: edited(margin="0.5"),
    "the pair is text": lambda: changed("margin", "pair", "ab"),
    "the pair is negative": lambda: changed("margin", "pair", [-1, 1]),
    "the digit is a list": lambda: changed("margin", "digit", [1]),
    "the spec is text": lambda: edited(spec="57p"),
    "a dimension is huge": lambda: changed("spec", "tok_dim", 10**12),
    "another family": lambda: edited(spec={"family": "low_rank"}),
}  # fmt: skip


@pytest.mark.parametrize("form", HOSTILE)
def test_a_hostile_proof_is_refused_in_one_line(here, form):
    refused_text(HOSTILE[form](), here)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", ["p.json", "net/theta.safetensors", "net/checkpoint.json"])
def test_what_is_no_regular_file_is_not_opened(here, make, name):
    shutil.copytree(FOLDER, here / "net")
    (here / "p.json").write_text(written())
    (here / name).unlink()
    make(here / name)
    assert refused(here / "p.json", here / "net").endswith(f"{name}: not a regular file")


ABOUT = json.loads((FOLDER / "checkpoint.json").read_text())
BASE = ABOUT["spec"]


def checkpoint_json(**values):
    return json.dumps(ABOUT | values).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("theta.safetensors", b"abc"),
        ("theta.safetensors", b"\xff" * 8 + b"{}"),
        ("theta.safetensors", b"\x02" + bytes(7) + b"{}"),
        ("checkpoint.json", b"{}"),
        ("checkpoint.json", b"[" * 100_000),
        ("checkpoint.json", checkpoint_json(spec=5)),
        ("checkpoint.json", checkpoint_json(spec=BASE | {"new_constraint": True})),
        ("checkpoint.json", checkpoint_json(spec={"family": "tied", "base": BASE, "ties": 5})),
        ("checkpoint.json", checkpoint_json(spec={"family": "tied", "base": BASE, "ties": {"arc": ["x"]}})),
    ],
)
def test_a_hostile_checkpoint_is_refused_in_one_line(here, name, content):
    shutil.copytree(FOLDER, here / "net")
    (here / "p.json").write_text(written())
    (here / "net" / name).write_bytes(content)
    refused(here / "p.json", here / "net")
