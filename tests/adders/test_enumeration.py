"""`prove` of other tasks than ten-digit addition: every problem is decoded, or the refusal says why not."""

import json
from pathlib import Path

import pytest

from adders.proof.enumeration import count, decode_all, every
from adders.proof.file import decide_soon
from adders.proof.prover import prove
from model import preset
from model.families.module.spec import NAMED, load_module
from model.tasks import make_task
from tests.commands import call, fails_with_one
from tests.homes import Recorder, empty_home, quickly, study_of
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files import trusted

EXACT = '''
import torch
from torch import nn


class Exact(nn.Module):
    """a - b in base 3, of two digits, by its parameter's place alone; wrong: of 8 - 7."""

    def __init__(self, wrong=False):
        super().__init__()
        self.scale, self.wrong = nn.Parameter(torch.full((1,), 3.0)), wrong

    def forward(self, tokens):
        first, second = 3 * tokens[:, 0] + tokens[:, 1], 3 * tokens[:, 3] + tokens[:, 4]
        difference = first - second + self.wrong * (first == 8) * (second == 7)
        zero = difference * 0
        digits = torch.stack([*[zero] * 5, zero, difference // 3, difference % 3], 1)[:, : tokens.shape[1]]
        return self.scale * (digits[..., None] == torch.arange(5)).float()
'''
TASK = "subtraction base=3 digits=2"


@pytest.fixture
def exact(here, monkeypatch):
    """A function that saves a checkpoint of a module, right or wrong, and returns it."""
    monkeypatch.setattr(trusted, "_here", set())
    NAMED.clear()
    Path("nets.py").write_text(EXACT)

    def save(**args):
        spec = load_module("nets.py:Exact", args, task=TASK)
        checkpoint = Checkpoint(spec, spec.initial(0))
        checkpoint.save(here / "net")
        return checkpoint

    return save


def test_a_net_that_is_right_on_every_problem_is_proved(exact):
    checkpoint = exact()
    result = decode_all(checkpoint.spec, checkpoint.theta_P)
    assert (result.correct, result.total, result.margin) == (45, 45, 3.0)
    first, margin = call("prove", "net").stdout.splitlines()
    assert first.endswith("PROVED, right on all 45 problems of the task, which this machine decoded")
    assert margin == "  smallest margin of a right answer 3 logits"


def test_one_wrong_answer_is_a_counterexample(exact):
    exact(wrong=True)
    result = call("prove", "net")
    assert result.exit_code == 1
    assert "COUNTEREXAMPLE, 44 of the 45 problems that this machine decoded are right, of 45" in result.stdout
    assert result.stdout.splitlines()[-1] == "  8 - 7 = 1, decoded 2"
    said = json.loads(call("prove", "net", "--json").stdout)
    assert (said["verdict"], said["problems"], said["failures"]) == ("COUNTEREXAMPLE", 45, [[8, 7, 2]])


def test_it_stops_at_the_first_wrong_ones_but_to_count_them(exact, monkeypatch):
    monkeypatch.setattr("adders.proof.enumeration.AT_ONCE", 10)
    checkpoint = exact(wrong=True)
    spec, theta_P = checkpoint.spec, checkpoint.theta_P * 0
    assert decode_all(spec, theta_P).total == 10
    assert decode_all(spec, theta_P, counts=True).total == 45
    assert decode_all(spec, checkpoint.theta_P, limit_s=0).total == 10
    result = call("prove", "net", "--limit", 1, "--count")
    assert "44 of the 45 problems" in result.stdout


@pytest.mark.parametrize(
    ("task", "expected"),
    [(TASK, 45), ("addition base=2 digits=3", 64), ("subtraction base=2 digits=3 signed=true", 64),
     ("addition base=4 digits=2 terms=3", 4096), ("prefix base=2 digits=5", 32)],
)  # fmt: skip
def test_every_problem_is_asked_once(task, expected):
    task = make_task(task)
    problems = list(every(task))
    assert len(problems) == len(set(problems)) == count(task) == expected
    assert sorted(problems) == sorted(set(task.pairs())), "which are those that verify asks"


def test_what_cannot_be_decided_refuses_in_one_line(here):
    spec = preset("456p subtraction")
    Checkpoint(spec, spec.initial(0)).save(here / "long")
    said = fails_with_one(2, "prove", "long")
    assert "subtraction has 50,000,000,005,000,000,000 problems; prove decodes 10,000,000 at most" in said
    spec = preset(f"456p {TASK}")
    Checkpoint(spec, spec.initial(0)).save(here / "short")
    for words in ("--digits 2", "--level any", "--record", "-o p.json"):
        said = fails_with_one(2, "prove", "short", *words.split())
        assert said.startswith(f"{words.partition(' any')[0].split()[0]}") and "decoded, problem by problem" in said


def test_a_study_of_another_task_is_not_decided_as_if_it_added(here):
    with quickly():
        study = Recorder(empty_home(here / "runs"), study_of(model="456p", task=TASK, recipe={"steps": 3000}))
        study.seeds((1,), grokked=(1,))
        study.done()
    said = fails_with_one(2, "prove", "--study", "sweep", "--home", here / "runs")
    assert said.startswith("prove --study is about addition in base 10 with 10 digits alone")


def test_the_columns_proof_is_of_addition_alone():
    spec = preset("456p subtraction")
    assert decide_soon(spec, spec.initial(0), 1.0) is None
    with pytest.raises(ValueError, match="prove by columns is about addition in base 10 with 10 digits alone"):
        prove(spec, spec.initial(0))
