"""Folds: fewer numbers, the same model."""

import pytest
import torch

from model import RUNGS, add, rung
from model.adderboard import uniform_pairs
from model.fold import fold
from tests.specs import SPECS, every_spec, some_theta, some_tokens

REWRITABLE = {name: spec for name, spec in SPECS.items() if spec.folds()}
FOLDABLE = {n: s for n, s in REWRITABLE.items() if any(f.to.params < s.params for f in s.folds())}
every_foldable = pytest.mark.parametrize("spec", FOLDABLE.values(), ids=FOLDABLE)


def answer_logits(spec, theta_P, tokens_STB):
    """Logits [V, 11, B] of the answer's digits; all that a spec without an end token says."""
    logits = spec.forward(theta_P[None], tokens_STB[:, : spec.prompt + 10], first=spec.prompt - 1)
    return torch.stack([v[0].expand(11, tokens_STB.shape[2]) for v in logits])


@every_foldable
def test_a_folded_theta_gives_the_same_logits(spec):
    theta_P, tokens_STB = some_theta(spec)[0].double(), some_tokens(spec, batch=8)
    folded = fold(spec, theta_P)
    assert len(folded.theta_P) == folded.spec.params < spec.params and folded.theta_P.dtype == theta_P.dtype
    assert folded.steps and len(set(folded.steps)) == len(folded.steps)
    expected = answer_logits(spec, theta_P, tokens_STB)
    got = answer_logits(folded.spec, folded.theta_P, tokens_STB)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


@pytest.mark.parametrize("spec", REWRITABLE.values(), ids=REWRITABLE)
def test_each_fold_alone_gives_the_same_logits(spec):
    """Also those that save nothing, or come only after others."""
    theta_P, tokens_STB = some_theta(spec)[0].double(), some_tokens(spec, batch=8)
    tensors = {name: t[0] for name, t in spec.layout.split(theta_P[None]).items()}
    expected = answer_logits(spec, theta_P, tokens_STB)
    for step in spec.folds():
        rewritten = step.rewrite(dict(tensors))
        got = answer_logits(step.to, step.to.layout.join(rewritten), tokens_STB)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


@every_spec
def test_folding_again_changes_nothing(spec):
    once = fold(spec, some_theta(spec)[0])
    assert not any(step.to.params < once.spec.params for step in once.spec.folds())
    again = fold(once.spec, once.theta_P)
    assert again.spec == once.spec and not again.steps
    assert torch.equal(again.theta_P, once.theta_P)


FOLDED = """
    242p 203, 226p 187, 214p 175, 203p 167, 187p 167, 170p 160, 141p 118, 133p 107, 100p 76, 90p 66,
    80p 66, 78p 64, 75p 61, 74p 60, 67p 56, 57p 46, 54p 46, 47p 46, 46p 46
"""


@pytest.mark.parametrize(("name", "count"), [pair.split() for pair in FOLDED.split(",")])
def test_what_remains(name, count):
    folded = fold(rung(name), some_theta(rung(name))[0])
    assert folded.spec.params == len(folded.theta_P) == int(count)


@pytest.mark.parametrize("name", ["57p", "54p", "47p"])
def test_57p_becomes_46p(name):
    assert fold(rung(name), rung(name).initial(0) + 1).spec == rung("46p")


@pytest.mark.parametrize("first", [0.0, 1e-42, 1e-38])
def test_what_cannot_be_divided_by_stays(first):
    """The output's row begins with 0, as at the start, or with next to nothing: a quotient would overflow."""
    spec = rung("57p")
    tensors = {name: t[0].clone() for name, t in spec.layout.split(some_theta(spec)).items()}
    tensors["out_B"][0, 0] = first
    folded = fold(spec, spec.layout.join(tensors))
    assert folded.spec == rung("47p") and folded.theta_P.isfinite().all()


def test_an_untrained_output_stays_silent():
    assert fold(rung("57p"), rung("57p").initial(0)).spec == rung("47p")


@pytest.mark.parametrize("name", RUNGS)
def test_in_single_precision_the_answers_are_the_same(name):
    spec, pairs = rung(name), uniform_pairs(1, 200)
    theta_P = some_theta(spec)[0]
    folded = fold(spec, theta_P)
    a, b = zip(*pairs, strict=True)
    assert folded.theta_P.dtype == torch.float32
    assert add(folded.spec, folded.theta_P, a, b) == add(spec, theta_P, a, b)
