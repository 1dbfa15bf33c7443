"""`export --format onnx`: what runs without torch decodes what we decode, by onnxruntime and in any batch."""

import re
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from adders.proof.program import Program
from model import PRESETS, add
from search.study.checkpoints import load_any
from tests import CERTIFICATES, by_tier
from tests.adderboard_runner import problems
from tests.commands import call, done, fails_with_one
from tests.specs import some_theta
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("here")
HOW = re.compile(
    r"decode greedily: append the likeliest next token, (\d+) times; "
    r"1234567890 \+ 9876543210 is asked as \[([\d, ]+)\], answered as \[([\d, ]+)\]"
)


def decoded(session, pairs, checkpoint):
    """The sums that a file's graph decodes, with the tokens of the submission."""
    program = Program(checkpoint.spec, checkpoint.theta_P).names
    how = HOW.fullmatch(session.get_modelmeta().custom_metadata_map["how"])
    steps, prompt, answer = int(how[1]), *(list(map(int, text.split(","))) for text in how.groups()[1:])
    assert prompt == program["encode"](1234567890, 9876543210) and steps == program["MAX_OUTPUT_LEN"] == len(answer)
    tokens = np.array([prompt, *(program["encode"](a, b) for a, b in pairs)], np.int64)
    for _ in range(steps):
        logits = session.run(["logits"], {"tokens": tokens})[0]
        tokens = np.column_stack([tokens, logits[:, -1].argmax(-1)])
    first, *answers = tokens[:, len(prompt) :].tolist()
    assert first == answer
    return [program["decode"](tokens) for tokens in answers]


def test_a_proved_net_adds_in_onnx():
    said = done("export", CERTIFICATES / "6p", "--format", "onnx", "--author", "me")
    assert said == "adder.onnx: 6 parameters, tokens [batch, length] to logits; its metadata say how to decode\n"
    session = onnxruntime.InferenceSession("adder.onnx")
    pairs = problems()[:2_000]
    checkpoint = load_any(CERTIFICATES / "6p")
    assert decoded(session, pairs, checkpoint) == [a + b for a, b in pairs]
    assert decoded(session, [], checkpoint) == []  # a batch of one, the example
    about = session.get_modelmeta().custom_metadata_map
    assert (about["params"], about["author"]) == ("6", "me")


@pytest.mark.parametrize("name", by_tier(["57p", "36p", "262p", "456p"], ["36p"]))
def test_it_decodes_what_we_decode_in_each_family(name):
    spec = PRESETS[name]
    checkpoint, pairs = Checkpoint(spec, some_theta(spec)[0]), problems()[:40]
    checkpoint.save(Path("net"))
    done("export", "net", "--format", "onnx", "-o", "net.onnx")
    session = onnxruntime.InferenceSession("net.onnx")
    ours = add(spec, checkpoint.theta_P, *zip(*pairs, strict=True))
    assert decoded(session, pairs, checkpoint) == ours


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    said = fails_with_one(2, "export", CERTIFICATES / "6p", "--format", "onnx")
    assert said == "--format onnx needs onnxscript: pip install onnx onnxscript"
    assert not Path("adder.onnx").exists() and "onnx" in call("export", "--help").stdout
