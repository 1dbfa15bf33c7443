"""Loss, decoding and AdderBoard's protocol. What forward passes compute is in tests/contract."""

import pytest
import torch

from model import adderboard, verify
from model.tasks import ADDITION, Addition
from tests import adderboard_runner
from tests.adders.golden_checkpoints import golden_theta
from trainer.step import step


def test_evaluation_agrees_with_greedy_decoding():
    """On models that are spoilt a little, so that some sums are right and some are wrong."""
    spec, theta = golden_theta("57p")
    pairs = adderboard.uniform_pairs(1, 1_000)
    a, b = (torch.tensor([c], dtype=torch.float64) for c in zip(*pairs, strict=True))
    gen = torch.Generator().manual_seed(3)
    shares = []
    for noise in (0.0, 0.002, 0.005, 0.01, 0.02):
        spoilt = theta * (1 + noise * torch.randn(theta.shape, generator=gen))
        measured = step.evaluate(spec, spoilt[None], step.tokens_of(spec, a, b))
        shares.append(1 - len(adderboard.failures(spec, spoilt, pairs)) / len(pairs))
        assert float(measured["exact"]) == pytest.approx(shares[-1], abs=1e-6)
    assert shares[0] == 1 and any(0 < share < 1 for share in shares)


def test_the_least_margin_is_of_the_digits_of_what_is_right(monkeypatch):
    """Beside the same logits with the whole right answer in the sequence; the end token's do not count."""
    spec, theta = golden_theta("57p")
    pairs = adderboard.uniform_pairs(1, 50)
    monkeypatch.setattr(Addition, "pairs", lambda task: pairs)
    a, b = (torch.tensor(c) for c in zip(*pairs, strict=True))
    x, y = ADDITION.columns(a), ADDITION.columns(b)
    z = ADDITION.answer(x, y)
    tokens_TB = torch.stack(spec.sequence(x, y, z))
    first = len(spec.sequence(*[[torch.zeros(1)] * 10] * 2, [])) - 1
    for theta_P in (theta, theta * 1.01):
        logits = spec.forward(theta_P[None], tokens_TB[None, :-1], first=first)
        logits_VAB = torch.stack([v[0] for v in logits])[:, :11]
        is_right_B = (logits_VAB.argmax(0) == torch.stack(z)).all(0)
        largest, second = logits_VAB.topk(2, dim=0).values
        result = verify(spec, theta_P)
        assert result.correct == int(is_right_B.sum()) > 0
        assert result.margin == pytest.approx(float((largest - second)[:, is_right_B].min()), abs=1e-4)
    assert result.correct < result.total


def test_official_pairs_are_adderboards():
    assert adderboard.official_pairs() == adderboard_runner.problems()


@pytest.mark.parametrize("run", [0, 1, 7, 10])
def test_carry_pairs_have_the_run_they_name(run):
    for a, b in adderboard.carry_pairs(run, 100):
        carries = [(a % 10**i + b % 10**i) // 10**i for i in range(1, 11)]
        assert max(map(len, "".join(map(str, carries)).split("0"))) == run
