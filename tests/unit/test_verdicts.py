"""Verdicts on all pairs: those that others have written are read by types and limits, and are claims until decided."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.verdict import COUNTEREXAMPLE, PROVED, UNDECIDED, VALUES, claim_beside, is_right, read_verdict, write_verdict
from search.stats.counting import proof_counts, rank
from search.stats.record import SeedRecord
from search.store import verdicts
from search.store.verdicts import beside, own, sealed, settle
from tests import CERTIFICATES
from tests.verdicts import verdict_on
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("here")
RIGHT = Checkpoint.load(CERTIFICATES / "6p")
WRONG = replace(RIGHT, theta_P=torch.arange(1.0, 7.0))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """A cache of a user who has decided nothing yet."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def undecided(monkeypatch):
    """No time is enough for a proof."""

    def undecided(spec, theta_P, limit_s=0):
        return verdict_on(replace(RIGHT, spec=spec, theta_P=theta_P), UNDECIDED)

    monkeypatch.setattr(verdicts, "provers", lambda: [undecided])
    return undecided


def forged(checkpoint=WRONG, word=PROVED, **values):
    """A folder with a checkpoint and a verdict on it that a stranger has made up."""
    checkpoint.save(Path("theirs"))
    text = json.dumps(verdict_on(checkpoint, word) | values)
    Path("theirs/proof.json").write_text(text)
    return Path("theirs")


GOOD = verdict_on(RIGHT, PROVED)
REFUTED = {**GOOD, "verdict": COUNTEREXAMPLE}
MISSING = [{k: v for k, v in GOOD.items() if k != name} for name in VALUES if name not in ("room", "margin")]
OTHERS = [{**GOOD, name: value} for name in VALUES for value in ([[]], 7j, "<img src=x>", True, 10**400)]
STRANGE = [
    {**GOOD, "margin": None}, {**GOOD, "margin": float("nan")}, {**GOOD, "seconds": float("inf")}, REFUTED,
    {**GOOD, "pair": [1]}, {**GOOD, "pair": [-1, 1]}, {**GOOD, "spec": {}}, {**GOOD, "seconds": -1},
    {**GOOD, "verdict": UNDECIDED, "claimed": "<b>"}, {**GOOD, "seal": "é"}, [], 7, None, "PROVED",
    *({**REFUTED, "wrong": wrong} for wrong in (
        [{"a": "<img src=x onerror=alert(1)>", "b": 1, "answer": 2}], [{}], [1], [{"a": 1, "b": 2}],
        [{"a": 10**10, "b": 2, "answer": 1}], [{"a": 1, "b": 2, "answer": 4}] * 101)),
]  # fmt: skip


def test_what_is_no_verdict_is_none():
    for values in (*MISSING, *OTHERS, *STRANGE):
        assert read_verdict(values) is None, values


def test_a_verdict_is_what_it_says_and_no_more():
    wrong = [{"a": 1, "b": 2, "answer": 4, "c": "<img>"}]
    values = {**GOOD, "verdict": COUNTEREXAMPLE, "wrong": wrong, "room": float("inf"), "note": "<script>"}
    verdict = read_verdict(values)
    assert verdict["wrong"] == [{"a": 1, "b": 2, "answer": 4}] and verdict["room"] is None and "note" not in verdict
    assert all(read_verdict(json.loads(f.read_text())) for f in CERTIFICATES.glob("*/proof.json"))


def make(kind):
    """Something other than a small file of JSON where a verdict should be."""
    path = Path("theirs/proof.json")
    path.unlink(missing_ok=True)
    text = {
        "deep": '{"a":' * 100_000, "large": json.dumps(GOOD) + " " * 10**6, "text": "hello", "bytes": "\ud800",
        "empty": "", "digits": '{"margin": ' + "9" * 100_000 + "}",
    }  # fmt: skip
    things = {
        "sparse": lambda: (path.touch(), os.truncate(path, 1 << 40)), "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir, "device": lambda: path.symlink_to("/dev/zero"),
        "nowhere": lambda: path.symlink_to("nowhere"), "itself": lambda: path.symlink_to(path.name),
    }  # fmt: skip
    if kind in text:
        path.write_bytes(text[kind].encode("utf-8", "surrogatepass"))
    else:
        things[kind]()


KINDS = ["deep", "large", "text", "bytes", "empty", "digits", "sparse", "fifo", "folder", "device", "nowhere", "itself"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", KINDS)
def test_only_a_small_file_is_read(kind):
    folder = forged()
    make(kind)
    assert claim_beside(folder, WRONG.spec, WRONG.theta_P) is None


def test_a_verdict_that_was_decided_here_is_believed_and_no_other():
    RIGHT.save(Path("mine"))
    verdict = sealed(GOOD)
    write_verdict(Path("mine"), RIGHT.spec, RIGHT.theta_P, verdict)
    found = beside(Path("mine"), RIGHT.spec, RIGHT.theta_P)
    assert is_right(found) is True and settle(found, RIGHT.spec, RIGHT.theta_P)["verdict"] == PROVED
    changed = [{**verdict, "margin": 9.0}, {**verdict, "theta_sha256": "0" * 64}, {**verdict, "params": 1}, GOOD]
    changed += [{**verdict, "seal": "0" * 64}, {**verdict, "spec": WRONG.spec.base.as_dict()}]
    assert [own(v)["claimed"] for v in changed] == [PROVED] * len(changed)
    assert own(verdict, "study", "key", 1, 1)["claimed"] == own(sealed(GOOD, "a"), "b")["claimed"] == PROVED
    assert is_right(own(sealed(GOOD, "a"), "a")) is True and "seal" not in own(sealed(GOOD, "a"), "a")


@pytest.mark.parametrize("key", [b"", b"short", b"x" * 33])
def test_a_damaged_key_makes_no_seal(key, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("other")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    verdict = sealed(GOOD)
    assert (folder / verdicts.KEY).stat().st_mode & 0o777 == 0o600 and len(list(folder.iterdir())) == 1
    verdicts._read_key.cache_clear()
    (folder / verdicts.KEY).write_bytes(key)
    assert own(verdict)["claimed"] == PROVED and "seal" not in sealed(GOOD)


def test_a_verdict_on_another_checkpoint_says_nothing_of_this_one(undecided):
    """A ledger's row may have the verdict on one θ, and its artifact another."""
    assert is_right(settle(GOOD, WRONG.spec, WRONG.theta_P)) is None
    assert is_right(settle(GOOD, RIGHT.spec, RIGHT.theta_P)) is True


def test_a_claim_ranks_and_counts_as_no_verdict():
    row = SeedRecord(outcome="grokked", best_exact=1.0, best_token=1.0, held=True, grok_step=5)
    rows = [
        replace(row, proof=proof) for proof in (own(GOOD), None, own(sealed(GOOD)), own(verdict_on(RIGHT, UNDECIDED)))
    ]
    claimed, none, proved, tried = map(rank, rows)
    assert claimed == none == tried > proved
    assert proof_counts(rows) == {"proved": 1, "prove_tried": 2, "proofs_claimed": 1}
