"""`prove` of other tasks than ten-digit addition: subtraction by columns, else every problem decoded or a refusal."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from adders.proof import check
from adders.proof.columns import first_cases
from adders.proof.count import count_wrong
from adders.proof.enumeration import count, decode_all, every
from adders.proof.file import decide_soon
from adders.proof.net import Asked
from adders.proof.prover import prove
from adders.proof.rounding import ANY, Lost
from model import preset
from model.adderboard import failures
from model.tasks import make_task
from model.verdict import COUNTEREXAMPLE, PROVED
from own_modules import load_module
from tests.adders.test_prove import as_file, checked, decided, digits_of, margins_of, program_of, unchecked
from tests.commands import call, done, fails_with_one
from tests.homes import STUDY, Recorder, empty_home, quickly, study_of
from tests.specs import some_theta
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint

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


class Guess(nn.Module):
    """The next token by the last one."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 12)

    def forward(self, tokens):
        return self.table(tokens)
'''
TASK = "subtraction base=3 digits=2"


@pytest.fixture
def exact(here, nothing_trusted):
    """A function that saves a checkpoint of a module, by default of Exact, right or wrong, and returns it."""
    Path("nets.py").write_text(EXACT)

    def save(name="Exact", task=TASK, **args):
        spec = load_module(f"nets.py:{name}", args, task=task)
        checkpoint = Checkpoint(spec, spec.initial(0))
        checkpoint.save(here / "net")
        return checkpoint

    return save


def test_a_net_that_is_right_on_every_problem_is_proved(exact):
    checkpoint = exact()
    result = decode_all(checkpoint.spec, checkpoint.theta_P)
    assert (result.correct, result.total, result.margin) == (45, 45, 3.0)
    first, margin = done("prove", "net").splitlines()
    assert first.endswith("PROVED, right on all 45 problems of the task, which this machine decoded")
    assert margin == "  smallest margin of a right answer 3 logits"


def test_one_wrong_answer_is_a_counterexample(exact):
    exact(wrong=True)
    result = call("prove", "net", code=1)
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
    spec = preset("456p subtraction signed=true")
    Checkpoint(spec, spec.initial(0)).save(here / "long")
    said = fails_with_one(2, "prove", "long")
    assert "signed=true has 100,000,000,000,000,000,000 problems; prove decodes 10,000,000 at most" in said
    spec = preset("456p subtraction base=3 digits=2 signed=true")
    Checkpoint(spec, spec.initial(0)).save(here / "short")
    for words in ("--digits 2", "--level any", "-o p.json"):
        said = fails_with_one(2, "prove", "short", *words.split())
        assert said.startswith(words.split()[0]) and "is decoded, problem by problem" in said
    assert fails_with_one(2, "prove", "short", "--record").startswith("--record is about addition in base 10")


def test_a_study_of_another_task_is_not_decided_as_if_it_added(here):
    with quickly():
        study = Recorder(empty_home(here / "runs"), study_of(model="456p", task=TASK, recipe={"steps": 3000}))
        study.seeds((1,), grokked=(1,))
        study.done()
    said = fails_with_one(2, "prove", "--study", "sweep", "--home", here / "runs")
    assert said.startswith("prove --study is about addition in base 10 with 10 digits alone")


def test_a_module_that_adds_ten_digits_has_no_program_to_prove_or_show(exact):
    exact("Guess", task="addition")
    with quickly():
        study = Recorder(empty_home("runs"), study_of(STUDY.replace("model: 57p", "model: {module: 'nets.py:Guess'}")))
        study.seeds((1,), grokked=(1,), shown=False)
        study.done()
    for words in ("prove --study sweep", "explain net -o page.html", "register net"):
        said = fails_with_one(2, *words.split(), "--home", "runs")
        assert said.removeprefix("net: ").startswith("family 'module' has no submission file; "), said


def test_what_columns_cannot_prove_is_refused():
    spec = preset("456p subtraction signed=true")
    assert decide_soon(spec, spec.initial(0), 1.0) is None
    with pytest.raises(ValueError, match=r"proofs by columns are of a \+ b and of a - b with a >= b, not of"):
        prove(spec, spec.initial(0))
    kind = type(make_task("addition"))
    own = type(kind)("Own", (kind,), {"answer": kind.answer})  # of another package
    with pytest.raises(ValueError, match=r"not of addition$"):
        Asked.of(own())


@pytest.fixture(scope="module")
def subtracting():
    """Two seeds that are trained on differences of one-digit numbers, and subtract all of them."""
    spec = preset("456p subtraction")
    steps = Recipe(
        steps=3_000, batch=512, eval_every=1_000, lr=0.02, warmup=1_350, weight_decay=0.01,
        curriculum=((1, 3_000),), mixed_lengths=1, carry_mix=0, hold=0,
    )  # fmt: skip
    bank = Bank(spec, [Pair(steps, Seed.of(n)) for n in range(42, 44)])
    while bank.advance():
        newest = bank.state["theta"].clone()
    return [Checkpoint(spec, theta_P) for theta_P in newest]


ONE = [(a, b) for a in range(10) for b in range(a + 1)]


def decoded_margins(checkpoint):
    """Of all differences of one-digit numbers, in the exported program in float64 [B, 11]."""
    a, b = np.array(ONE).T
    x, y, _ = digits_of(a, b)
    z = (a - b)[:, None] // 10 ** np.arange(11) % 10
    return margins_of(program_of(checkpoint).model.double(), checkpoint.spec, (x, y, z))


@pytest.mark.full
def test_subtraction_is_decided_as_decoding_all_pairs_has_it(subtracting):
    draws, verdicts = np.random.default_rng(3), Counter()
    for checkpoint in subtracting:
        spec = checkpoint.spec
        for share in (0.0, 0.01, 0.1):
            change_P = torch.tensor(draws.normal(1, share, spec.params), dtype=torch.float32)
            changed = Checkpoint(spec, checkpoint.theta_P * change_P)
            proof = decided(changed, ANY, digits=1)
            verdicts[proof.verdict] += 1
            margins = decoded_margins(changed)
            content = as_file(changed, proof)
            if proof.verdict == PROVED:
                assert not failures(spec, changed.theta_P, ONE)
                assert proof.margin == pytest.approx(margins.min(), rel=1e-3)
                assert share or checked(content, changed)
            else:
                (wrong,) = proof.wrong
                assert (wrong.a, wrong.b, wrong.answer) in failures(spec, changed.theta_P, ONE)
                assert "another digit may win" in unchecked(content, changed)
    assert verdicts[PROVED] > 1 and verdicts[COUNTEREXAMPLE] > 1


LEARNS = {
    "steps": 24_000, "eval_every": 1_000, "hold": 0, "lr": 0.03, "lr_floor": 0.01, "warmup": 520, "beta2": 0.95,
    "weight_decay": 0.01756, "wd_drop": 0.1, "wd_drop_exact": 0.02, "wd_drop_exact_final": 0.2, "wd_drop_token": 0.5,
    "mixed_lengths": 0.3, "curriculum": (),
}  # fmt: skip
OTHERS = {"67p": "addition base=3 digits=4", "122p": "addition base=2 digits=4", "456p": "subtraction base=2 digits=3"}


@pytest.mark.parametrize("name", OTHERS)
def test_in_another_base_a_proof_says_what_decoding_all_pairs_does(name):
    """Of seeds that learn all of it and seeds that do not, in both programs; of sums the wrong ones are counted too."""
    spec = preset(f"{name} {OTHERS[name]}")
    bank = Bank(spec, [Pair(Recipe(**LEARNS), Seed.of(n)) for n in range(4)])
    while bank.advance():
        pass
    verdicts = set()
    for n in range(4):
        checkpoint = Checkpoint(spec, bank.result(n).theta_P)
        proof = decided(checkpoint)
        decoded = decode_all(spec, checkpoint.theta_P, counts=True)
        content = as_file(checkpoint, proof)
        if proof.verdict == COUNTEREXAMPLE:
            (wrong,) = proof.wrong
            assert (wrong.a, wrong.b, wrong.answer) in decoded.failures
            assert unchecked(content, checkpoint).startswith("NOT CHECKED")
            if "addition" in OTHERS[name]:
                with suppress(Lost):
                    found = count_wrong(spec, checkpoint.theta_P)
                    assert found.wrong <= len(decoded.failures) <= found.possible
        elif proof.verdict == PROVED:
            assert not decoded.failures and proof.margin == pytest.approx(decoded.margin, rel=1e-3)
            assert checked(content, checkpoint)
        verdicts.add(proof.verdict)
    assert PROVED in verdicts


@pytest.mark.parametrize("name", ["57p", "137p", "512p"])
def test_the_worst_margin_of_a_difference_is_that_of_all_pairs_decoded(name):
    """Of each family, whatever the net answers."""
    spec = preset(f"{name} subtraction")
    theta_P, _ = some_theta(spec, 2)
    proof, margins = prove(spec, theta_P, ANY, digits=1), decoded_margins(Checkpoint(spec, theta_P))
    at_its_pair = margins[ONE.index(proof.pair), proof.digit]
    assert [margins.min(), at_its_pair] == pytest.approx([proof.margin] * 2, rel=1e-6)


@pytest.mark.parametrize(("base", "columns"), [(10, 10), (3, 4), (2, 2), (16, 3)])
@pytest.mark.parametrize("is_difference", [False, True])
def test_each_pair_is_in_one_case_of_each_digit_in_both_programs(base, columns, is_difference):
    asked = Asked(base, columns, is_difference)
    theirs_asked = check.Asked(base, columns, is_difference)
    for digits in {1, 2, columns}:
        for k in range(columns + 2):  # the last one is where the end is asked for
            tokens = [0] if k == 0 else range(base if k <= columns else 2)
            ours = sum(first_cases(k, t, digits, asked).pairs.sum() for t in tokens)
            cases = [check.first_cases(k, t, digits, theirs_asked).values() for t in tokens]
            theirs = sum(sum(map(check.number_of, of_token)) for of_token in cases)
            numbers = base**digits
            assert ours == theirs == (numbers * (numbers + 1) // 2 if is_difference else numbers**2)


def test_a_proof_of_subtraction_says_so_and_is_of_nothing_else(subtracting, here, capsys):
    checkpoint = next(c for c in subtracting if not failures(c.spec, c.theta_P, ONE))
    checkpoint.save(here / "minus")
    first, margin, *_ = done("prove", "minus", "--digits", 1, "-o", "p.json").splitlines()
    assert "PROVED right on all 55 (a >= b) pairs, at level any" in first and " - " in margin
    check.main("p.json", "minus")
    assert capsys.readouterr().out.startswith("CHECKED: right on all 55 pairs")
    proof = json.loads(Path("p.json").read_text())
    assert proof["claim"].endswith("of 1-digit numbers of which the second is no larger")
    assert "claim is another one" in unchecked(proof | {"claim": proof["claim"].partition(" of which")[0]}, checkpoint)
    spec = {name: value for name, value in proof["spec"].items() if name != "task"}
    assert "spec is not the checkpoint's" in unchecked(proof | {"spec": spec}, checkpoint)
    assert "the margin is of no pair" in unchecked(proof | {"margin": proof["margin"] | {"pair": [1, 2]}}, checkpoint)
    assert fails_with_one(2, "prove", "minus", "--record").startswith("--record is about addition in base 10")
    said = fails_with_one(2, "prove", "minus", "--count")
    assert said == "--count counts wrong sums, and this model's task is subtraction"


def test_of_longer_numbers_they_are_refuted(subtracting):
    proof = decided(subtracting[0], ANY)
    (wrong,) = proof.wrong
    assert proof.verdict == COUNTEREXAMPLE and wrong.answer != wrong.a - wrong.b >= 0
