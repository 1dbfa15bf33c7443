"""Seeds whose budget is spent nearly right are finished by curvature, where their recipe asks for that."""

import dataclasses
from pathlib import Path

import pytest
import torch

from model import preset
from model.tied import constrained, project, tie
from trainer import Bank, Outcome, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.curvature import minimise

SPEC = preset("57p")
PARENT = Checkpoint.load(Path(__file__).parents[2] / "lab" / "certificates" / "57p")
STILL = Recipe(steps=2, eval_every=1, warmup=0, lr=1e-9, weight_decay=0.0, curriculum=(), hold=10)


def damaged(theta_P, by=0.003):
    """θ a little off: it adds some problems wrongly."""
    noise_P = torch.randn(len(theta_P), generator=torch.Generator().manual_seed(5))
    return tuple((theta_P * (1 + by * noise_P)).tolist())


def pair(above, start, seed=1, **more):
    return Pair(dataclasses.replace(STILL, finish_above=above), Seed.of(seed), start, **more)


def trained(*pairs, slots=2):
    bank = Bank(SPEC, pairs, slots=slots)
    while bank.advance():
        pass
    return [bank.result(n) for n in range(len(pairs))]


@pytest.fixture(scope="module", autouse=True)
def one_turn():
    """Or two, of the method that is quickest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minimise, "MANY_TURNS", (minimise.lbfgs,) * 2)
        patch.setattr(minimise, "FEW_TURNS", (minimise.lbfgs,))
        patch.setattr(minimise, "WIDELY", 4_096)
        yield


@pytest.fixture(scope="module")
def nearly():
    """The same θ without being finished, finished, with a threshold that it misses, and far too damaged."""
    start, far = damaged(PARENT.theta_P), damaged(PARENT.theta_P, 1.0)
    return trained(pair(1.0, start), pair(0.5, start), pair(0.99, start), pair(0.5, far))


def test_who_is_nearly_right_at_the_end_is_taken_on(nearly):
    plain, finished, below, far = nearly
    assert plain.outcome == Outcome.FAILED and 0.5 < plain.best_exact < 0.99
    assert finished.outcome == Outcome.GROKKED and finished.best_exact == 1.0
    assert finished.grok_step == finished.best_step == finished.steps == 2 and not finished.held
    assert not torch.equal(finished.theta_P, plain.theta_P)
    assert finished.curve_EM[:, 0].tolist() == plain.curve_EM[:, 0].tolist(), "the curve is of the training"
    for other, like in ((below, plain), (far, far)):
        assert other.outcome == Outcome.FAILED and other.grok_step is None
        assert other.best_exact == like.best_exact and torch.equal(other.theta_P, like.theta_P)


def test_alone_and_killed_before_it_is_finished_it_is_finished_alike(tmp_path, nearly):
    start = damaged(PARENT.theta_P)
    first = Bank(SPEC, [pair(0.5, start)])
    assert first.advance() and first.advance()
    assert [row["outcome"] for row in first.newest()] == [Outcome.RUNNING], "it has not ended"
    first.save(tmp_path / "state")
    second = Bank(SPEC, [pair(0.5, start)])
    assert second.load(tmp_path / "state") and second.advance() and not second.advance()
    assert torch.equal(second.result(0).theta_P, nearly[1].theta_P)


def test_one_is_finished_at_a_time_and_none_twice(tmp_path, monkeypatch):
    """So that a worker is heard of in between, and goes on where it was."""
    seen = []
    monkeypatch.setattr(minimise, "MANY_TURNS", (lambda task, theta_P: seen.append(task.seed) or theta_P,))
    pairs = [pair(0.5, damaged(PARENT.theta_P), seed) for seed in (1, 2, 3)]
    bank = Bank(SPEC, pairs)
    for expected in (0, 0, 1, 2):
        assert bank.advance() and len(seen) == expected
    bank.save(tmp_path / "state")
    again = Bank(SPEC, pairs)
    assert again.load(tmp_path / "state") and again.advance() and not again.advance()
    assert len(seen) == len(set(seen)) == 3
    bank.end([2])
    assert not bank.advance() and bank.result(2).outcome == Outcome.CENSORED
    assert {bank.result(n).outcome for n in (0, 1)} == {Outcome.FAILED}


def test_it_keeps_the_ties():
    base = Checkpoint.load(Path(__file__).parents[2] / "lab" / "certificates" / "46p")
    ties = constrained(base.spec, ["head[0,1] = head[0,2]"])
    tied = tie(base.spec, ties)
    start_P = tied.untie(project(ties, base.theta_P[None]))[0]
    recipe = dataclasses.replace(STILL, ramp=1, finish_above=0.5)
    bank = Bank(base.spec, [Pair(recipe, Seed.of(1), tuple(start_P.tolist()), ties)])
    before = float(bank.programs.evaluate(start_P[None])["exact"])
    while bank.advance():
        pass
    found = bank.result(0)
    assert 0.5 < before < found.best_exact and found.best_step == 2
    assert torch.equal(tied.untie(project(ties, found.theta_P[None]))[0], found.theta_P)


def test_what_is_no_gain_changes_nothing(monkeypatch):
    monkeypatch.setattr(minimise, "MANY_TURNS", (lambda task, theta_P: theta_P * 0,))
    plain, tried = trained(pair(1.0, start := damaged(PARENT.theta_P)), pair(0.5, start))
    assert tried.outcome == Outcome.FAILED and torch.equal(tried.theta_P, plain.theta_P)


def test_it_moves_every_entry_so_none_can_be_frozen():
    with pytest.raises(ValueError, match="finish_above excludes freeze"):
        Recipe(finish_above=0.5, freeze=((10, "arc"),))
    with pytest.raises(ValueError, match="finish_above"):
        Recipe(finish_above=1.5)
