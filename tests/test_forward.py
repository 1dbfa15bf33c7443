"""What the models compute: logits, loss, gradient, decoding, and AdderBoard's protocol."""

import random
import time
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from model import add, adderboard, rung, verify
from tests.golden import golden_theta
from tests.specs import FIVE_WIDE, SPECS, every_spec, reference, some_theta, some_tokens
from trainer import step

CIRCLES = {name: spec for name, spec in SPECS.items() if spec.applied().get("circular")}


def logits_of(spec, theta_SP, tokens_STB, first=21):
    """Logits [V, S, A, B], every problem written out."""
    logits = spec.forward(theta_SP, tokens_STB, first)
    assert len(logits) == spec.vocabulary
    shape = (len(theta_SP), tokens_STB.shape[1] - first, tokens_STB.shape[2])
    return torch.stack([v.expand(shape) for v in logits])


def plain_logits(spec, theta_P, tokens_TB):
    """The same [V, 1, T, B] from the plain module that is exported."""
    return reference(spec, theta_P)(tokens_TB.T.long()).permute(2, 1, 0)[:, None]


# Forward


@every_spec
def test_forward_is_the_plain_modules(spec):
    theta, tokens = some_theta(spec), some_tokens(spec)[:, :-1]
    expected = plain_logits(spec, theta[0].double(), tokens[0])
    got = logits_of(spec, theta.double(), tokens, first=0)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    assert got.std() > 0.01
    single = logits_of(spec, theta, tokens, first=0)
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=2e-4)


@every_spec
def test_what_a_spec_is_without_its_start_reads_theta_in_the_same_way(spec):
    theta, tokens = some_theta(spec), some_tokens(spec)[:, :-1]
    assert torch.equal(logits_of(spec.trained(), theta, tokens), logits_of(spec, theta, tokens))


@every_spec
def test_gradient_is_the_plain_modules(spec):
    """Of the loss, in every entry of θ; and there is one for all but EOS's position, which is never read."""
    theta, tokens = some_theta(spec).double(), some_tokens(spec, batch=64)
    theta.requires_grad_()
    (got,) = torch.autograd.grad(step.loss(spec, theta, tokens).sum(), theta)
    model = reference(spec, theta[0])
    logits = model(tokens[0, :-1].T.long())[:, spec.prompt - 1 :]
    F.cross_entropy(logits.flatten(0, 1), tokens[0, spec.prompt :].T.reshape(-1).long()).backward()
    gradients = {n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in model.weights.items()}
    torch.testing.assert_close(got[0], spec.layout.join(gradients), rtol=1e-8, atol=1e-12)
    dead = {name for name, part in spec.layout.split(got).items() if not part.all()}
    unread = {"eos"} if spec.family == "split_subspace" else {"positions"} if spec.positions > 33 else set()
    assert dead == (unread & set(spec.layout.names))


@every_spec
def test_gradient_is_the_derivative_of_the_loss(spec):
    theta, tokens = some_theta(spec).double(), some_tokens(spec, batch=2)
    theta.requires_grad_()
    assert torch.autograd.gradcheck(lambda t: step.loss(spec, t, tokens), theta, fast_mode=True)


@every_spec
def test_loss_is_torchs_cross_entropy_over_all_predictions(spec):
    """Of the answer's eleven digits and, where there is one, of the end."""
    theta, tokens = some_theta(spec, 2), some_tokens(spec, 2, 8)
    logits_VSAB = logits_of(spec, theta, tokens[:, :-1])
    assert logits_VSAB.shape[2] == (11 if spec.applied().get("no_eos") else 12)
    for s in range(2):
        target = tokens[s, 22:].long().reshape(-1)
        expected = F.cross_entropy(logits_VSAB[:, s].flatten(1).T, target)
        torch.testing.assert_close(step.loss(spec, theta, tokens)[s], expected)


def test_cross_entropy_survives_huge_logits():
    logits = [torch.full((1, 1, 1), x) for x in (1e4, -1e4, 0.0)]
    losses = [step.cross_entropy(logits, torch.full((1, 1, 1), v)).item() for v in range(3)]
    assert losses == [0.0, 2e4, 1e4]


@every_spec
def test_later_tokens_change_no_earlier_logits(spec):
    theta, tokens = some_theta(spec, 2), some_tokens(spec, 2)[:, :-1]
    logits = logits_of(spec, theta, tokens, first=0)
    for position in (1, 10, 21, 22, tokens.shape[1] - 1):
        other = tokens.clone()
        other[:, position:] = (other[:, position:] + 3) % 10
        changed = logits_of(spec, theta, other, first=0)
        assert torch.equal(changed[:, :, :position], logits[:, :, :position])
        assert (changed[:, :, position] != logits[:, :, position]).any()


@every_spec
def test_a_prefix_and_a_late_start_give_the_same_logits(spec):
    theta, tokens = some_theta(spec, 2), some_tokens(spec, 2)[:, :-1]
    logits = logits_of(spec, theta, tokens, first=0)
    for length in (1, 12, 22, 30):
        last = logits_of(spec, theta, tokens[:, :length], first=length - 1)
        torch.testing.assert_close(last[:, :, 0], logits[:, :, length - 1], rtol=1e-4, atol=1e-4)


@every_spec
def test_a_bank_is_a_loop_over_banks_of_one(spec):
    theta, tokens = some_theta(spec, 3), some_tokens(spec, 3)[:, :-1]
    own, shared = logits_of(spec, theta, tokens), logits_of(spec, theta, tokens[:1])
    for s in range(3):
        one = theta[s : s + 1]
        torch.testing.assert_close(own[:, s : s + 1], logits_of(spec, one, tokens[s : s + 1]))
        torch.testing.assert_close(shared[:, s : s + 1], logits_of(spec, one, tokens[:1]))


@pytest.mark.parametrize("circle", CIRCLES.values(), ids=CIRCLES)
def test_a_circle_is_an_ellipse_with_equal_axes(circle):
    """The shortcut, attention that no token changes, against the path with attention for each problem."""
    ellipse = replace(circle, circular=False)
    theta, tokens = some_theta(circle, 3), some_tokens(circle, 3, 16)[:, :-1]
    wider = torch.cat([theta[:, :1], theta], 1)
    torch.testing.assert_close(
        logits_of(circle, theta, tokens), logits_of(ellipse, wider, tokens), rtol=1e-5, atol=1e-5
    )


# Decoding and AdderBoard


@pytest.mark.parametrize("name", ["57p", "75p"])
def test_published_checkpoints_add_all_official_pairs_in_two_seconds(name):
    spec, theta = golden_theta(name)
    start = time.process_time()
    found = verify(spec, theta)
    assert time.process_time() - start < 2
    assert (found.correct, found.total, found.params) == (10_010, 10_010, int(name[:-1]))
    assert found.verified and found.qualified and not found.failures


@pytest.mark.parametrize("name", ["57p", "75p"])
def test_evaluation_agrees_with_greedy_decoding(name):
    """On models that are spoilt a little, so that some sums are right and some are wrong."""
    spec, theta = golden_theta(name)
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


def test_evaluation_counts_digits_and_ignores_the_end_token():
    """A stand-in that repeats its targets but for one digit of problem 0 and the end token of all."""

    class Parrot:
        prompt = 22

        def forward(self, theta_SP, tokens_STB, first):
            answer = torch.cat([tokens_STB[:, first + 1 :], torch.full_like(tokens_STB[:, :1], 7)], 1)
            answer[0, 4, 0] = (answer[0, 4, 0] + 1) % 10
            return [10.0 * (answer == v) for v in range(10)]

    measured = step.evaluate(Parrot(), torch.zeros(1, 1), some_tokens(FIVE_WIDE, batch=8))
    assert measured["exact"].tolist() == [7 / 8]
    assert measured["token"].tolist() == pytest.approx([87 / 88])


@pytest.mark.parametrize("bad", [-1, 10**10, 1.5, 3.0, True, "3", None])
@pytest.mark.parametrize("side", [0, 1])
def test_add_refuses_bad_operands(bad, side):
    operands = [[5], [5]]
    operands[side] = [bad]
    with pytest.raises(ValueError, match="integers from 0 to 9999999999"):
        add(rung("57p"), rung("57p").initial(0), *operands)


def test_add_refuses_lists_of_different_lengths():
    with pytest.raises(ValueError):
        add(rung("57p"), rung("57p").initial(0), [1, 2], [3])


def test_decoding_feeds_back_its_own_tokens():
    """A machine that adds one to the last token shows that greedy decoding asks again each time."""
    from model.decode import greedy

    def successor(tokens_TB):
        return F.one_hot((tokens_TB[-1] + 1) % 10, 10).T.float()

    assert greedy(successor, torch.tensor([[3, 8]]), 4).tolist() == [[4, 9], [5, 0], [6, 1], [7, 2]]


def test_official_pairs_are_adderboards():
    pairs = adderboard.official_pairs()
    rng = random.Random(2025)
    assert len(pairs) == 10_010 and pairs[:2] == [(0, 0), (0, 1)] and pairs[9] == (1, 9999999999)
    for pair in pairs[10:]:
        a = rng.randint(0, 9_999_999_999)
        b = rng.randint(0, 9_999_999_999)
        assert pair == (a, b)


def test_an_untrained_model_is_not_verified():
    found = verify(rung("57p"), rung("57p").initial(0))
    assert not found.verified and not found.qualified
    assert found.correct + len(found.failures) == found.total == 10_010
    assert all(a + b != decoded for a, b, decoded in found.failures)
    assert found.as_dict()["verified"] is False


@pytest.mark.parametrize("run", range(11))
def test_carry_strata_have_the_run_they_say(run):
    for a, b in adderboard.carry_pairs(run, 200):
        carry = length = longest = 0
        for i in range(10):
            carry = (a // 10**i % 10 + b // 10**i % 10 + carry) // 10
            length = length + 1 if carry else 0
            longest = max(longest, length)
        assert longest == run and max(a, b) <= 9_999_999_999
