"""Finishing: problems of our own, methods that lower their loss, a command that says who did it, and seeds
whose budget is spent nearly right.
"""

import json
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch

import model.adderboard
from adders.curvature import minimise
from adders.curvature.minimise import Task
from adders.curvature.pool import Cost, Pool, draw_problems, tokens_from, wrong_pairs
from adders.finishing import margin
from adders.finishing.finish import METHODS, finish
from adders.proof.prover import worst_pairs
from model import preset
from model.decode import add
from model.tasks import Addition
from model.tied import constrained, project, tie
from search.cli.options import progress_bar
from search.study.ancestors import ancestors_of
from tests import CERTIFICATES, by_tier
from tests.adders.test_prove import certificate
from tests.banks import finish as advanced
from tests.commands import done, fails_with_one
from trainer import Bank, Outcome, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.step import step

PARENT = certificate("earlier/57p")
SPEC = preset("57p")
FEW = ("FRESH", 512), ("MOST_ERRORS", 256), ("SEARCHED", 2_048)
QUICK = "train", "levenberg_marquardt"


def damaged(by=0.01):
    """The 57p certificate's θ, a little off: it adds some problems wrongly."""
    theta_P = PARENT.theta_P
    return theta_P * (1 + by * torch.randn(len(theta_P), generator=torch.Generator().manual_seed(5)))


@pytest.fixture
def small(monkeypatch):
    for name, number in FEW:
        monkeypatch.setattr(minimise, name, number)


# Problems


def test_none_of_its_problems_is_adderboards_or_the_selections():
    official = set(model.adderboard.official_pairs())
    mine = [p for turn in (*range(3), *range(-3, 0)) for p in draw_problems(1, turn, 4_096)]
    assert len(set(mine)) > 0.99 * len(mine) and not official & set(mine)
    assert min(min(p) for p in mine) > 9 and max(max(p) for p in mine) < 10**10
    assert draw_problems(1, 0, 64) == draw_problems(1, 0, 64) != draw_problems(1, 1, 64) != draw_problems(2, 1, 64)


def gauss_newton(theta_P, tokens_1TB):
    """Σ Jᵀ (diag p − p pᵀ) J / N, with the whole Jacobian of the logits [V, N]."""

    def logits(theta_P):
        made = SPEC.forward(theta_P[None], tokens_1TB[:, :-1], first=SPEC.prompt - 1)
        return torch.stack(list(torch.broadcast_tensors(*made))).flatten(1)

    jacobian_VNP = torch.func.jacfwd(logits)(theta_P)
    p_VN = logits(theta_P).softmax(0)
    bent_NVV = torch.diag_embed(p_VN.T) - p_VN.T[:, :, None] * p_VN.T[:, None, :]
    return torch.einsum("vnp,nvw,wnq->pq", jacobian_VNP, bent_NVV, jacobian_VNP) / p_VN.shape[1]


@pytest.mark.parametrize("by_engine", [True, False])
def test_a_pools_slope_and_curvature_are_those_of_training(monkeypatch, by_engine):
    monkeypatch.setattr("adders.curvature.pool.has_kernel", lambda spec: by_engine)
    tokens = tokens_from(SPEC, draw_problems(1, 0, 16))
    theta_P, cost = damaged().double(), Cost()
    pool = Pool(SPEC, tokens, cost)
    loss, slope_P = pool.slope(theta_P.numpy())
    theta_1P = theta_P[None].requires_grad_()
    expected = step.loss(SPEC, theta_1P, tokens)
    (slope_1P,) = torch.autograd.grad(expected.sum(), theta_1P)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-4)
    torch.testing.assert_close(torch.from_numpy(slope_P).double(), slope_1P[0], rtol=1e-2, atol=1e-4)
    curvature_PP = gauss_newton(theta_P, tokens)
    close = {"rtol": 1e-2, "atol": 1e-5 * float(curvature_PP.max())}
    torch.testing.assert_close(torch.from_numpy(pool.curvature(theta_P.numpy())), curvature_PP, **close)
    assert cost.problems == pool.size * (2 + 2 * SPEC.params)


@pytest.mark.parametrize("name", ["57p", "10p-qualified", "456p"])
def test_a_kernel_finds_the_pairs_that_torch_finds(monkeypatch, name):
    its, pairs = certificate(name), draw_problems(1, 0, 1_000)[:-3]
    theta_P = its.theta_P.float() * (1 + 0.01 * torch.sin(torch.arange(its.spec.params)))
    by_kernel = wrong_pairs(its.spec, theta_P, pairs, Cost())
    monkeypatch.setattr("adders.curvature.pool.has_kernel", lambda spec: False)
    assert by_kernel == wrong_pairs(its.spec, theta_P, pairs, Cost())
    assert 0 < len(by_kernel) < len(pairs)


# Methods


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", by_tier([*QUICK, "targeted", "lbfgs", "cma_es"], QUICK))
def test_each_method_gets_more_right(name):
    """Judged on problems that it did not see."""
    theta_P, others, cost = damaged(), draw_problems(99, 0, 2_048), Cost()
    task = Task(SPEC, 1, 0, cost)
    made_P = METHODS[name](task, theta_P)
    before, after = (len(wrong_pairs(SPEC, t.float(), others, Cost())) for t in (theta_P, made_P))
    assert after < before / 2 and cost.problems > 10_000
    assert made_P.shape == theta_P.shape and made_P.float().isfinite().all()


def test_the_worst_of_all_pairs_is_made_right_whatever_the_clock_says(monkeypatch):
    monkeypatch.setattr(margin, "ENOUGH", 1e-5)
    monkeypatch.setattr("time.process_time", count(0, 10**4).__next__)
    its = certificate("17p-one-run")
    new_P = margin.margin(Task(its.spec, 1, 0, Cost()), its.theta_P)
    worst, _, a, b = worst_pairs(its.spec, its.theta_P)[0]
    assert worst < 0 < worst_pairs(its.spec, new_P.float())[0][0]
    for theta_P, is_right in ((its.theta_P, False), (new_P.float(), True)):
        assert (add(its.spec, theta_P, [a], [b])[0] == a + b) is is_right


# The turns


def counting(log, name, result):
    def method(task, theta_P):
        task.cost.problems += 10
        log.append((name, task.turn, theta_P.tolist()[0]))
        return theta_P + result

    return method


def test_turns_go_on_while_they_help_from_the_best_so_far(monkeypatch):
    log = []
    ways = {"worse": counting(log, "worse", -1.0), "better": counting(log, "better", 1.0)}
    for name, way in ways.items():
        monkeypatch.setitem(METHODS, name, way)
    theta_P = torch.zeros(SPEC.params)
    its = finish(SPEC, theta_P, lambda t: 4 - int(t[0]), ["worse", "better"], turns=3)
    assert log == [("worse", 0, 0.0), ("better", 1, 0.0), ("better", 2, 1.0), ("better", 3, 2.0)]
    assert (its.before, its.wrong, its.by, float(its.theta_P[0])) == (4, 1, "better", 3.0)
    assert [t.wrong for t in its.turns] == [5, 3, 2, 1] and {t.problems for t in its.turns} == {10}
    monkeypatch.setitem(METHODS, "best", counting(log, "best", 2.0))
    its = finish(SPEC, theta_P, lambda t: 4 - int(t[0]), ["better", "worse", "best"], turns=1)
    assert (its.wrong, its.by) == (1, "better, best")
    log.clear()
    its = finish(SPEC, theta_P, lambda t: 2 - int(t[0]), ["better", "worse"], turns=9)
    assert len(log) == 2 and its.wrong == 0, "nothing is left to do"
    its = finish(SPEC, theta_P, lambda t: 2 - int(t[0]), ["worse"])
    assert its.by is None and torch.equal(its.theta_P, theta_P)


# The command


@pytest.fixture
def parent(tmp_path):
    replace(PARENT, theta_P=damaged()).save(tmp_path / "parent")
    return tmp_path / "parent"


def test_a_checkpoint_is_finished_and_says_so(parent, here, tmp_path, monkeypatch):
    seen = []
    official = Addition.pairs
    monkeypatch.setattr(Addition, "pairs", lambda task: seen.append(1) or official(task))
    said = json.loads(done("finish", parent, "-o", tmp_path / "done", "--method", "train", "--json"))
    made = Checkpoint.load(tmp_path / "done")
    assert len(seen) == 1, "AdderBoard's additions are read once, by verify"
    assert said["verification"]["correct"] == 10_010
    assert said["by"] == "train" and said["wrong_before"] > 0 == said["wrong"]
    assert said["problems"] == sum(t["problems"] for t in said["turns"]) > 0
    papers = made.provenance
    assert papers["finished_by"] == "train" and papers["turns"] == said["turns"]
    assert papers["finished_from"]["theta_sha256"] == ancestors_of(Checkpoint.load(parent))[-1]["theta_sha256"]
    assert ancestors_of(made)[-1]["how"] == ["finished by train"] and len(ancestors_of(made)) == 2
    assert "cannot be trained again" in fails_with_one(2, "rerun", tmp_path / "done")


def test_what_is_right_already_is_copied(here):
    said = done("finish", CERTIFICATES / "57p", "-o", "copy")
    assert (
        said == "copy: 10,010/10,010 VERIFIED\n  of 59,400 problems of our own none is wrong: already right; copied\n"
    )
    made, its = (Checkpoint.load(folder) for folder in (Path("copy"), CERTIFICATES / "57p"))
    assert torch.equal(made.theta_P, its.theta_P) and made.provenance == its.provenance


def test_what_takes_long_is_said_again_and_again_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr("search.cli.options.SAID_EVERY_S", 0.02)
    for quiet in (True, False):
        with progress_bar("finishing", quiet=quiet) as say:
            say("first")
            time.sleep(0.1)
        assert ("first, 0 s\n" in capsys.readouterr().err) is not quiet


# Seeds that are finished where their recipe asks for it

STILL = Recipe(steps=2, eval_every=1, warmup=0, lr=1e-9, weight_decay=0.0, curriculum=(), hold=10)


def start_of(by=0.003):
    return tuple(damaged(by).tolist())


def pair(above, start, seed=1, **more):
    return Pair(replace(STILL, finish_above=above), Seed.of(seed), start, **more)


def trained(*pairs):
    bank = advanced(Bank(SPEC, pairs, slots=2))
    return [bank.result(n) for n in range(len(pairs))]


@pytest.fixture(scope="module")
def one_turn():
    """Or two, of few iterations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minimise, "MANY_TURNS", (minimise.lbfgs,) * 2)
        patch.setattr(minimise, "FEW_TURNS", (minimise.lbfgs,))
        patch.setattr(minimise, "ITERATIONS", 150)
        for name, number in (*FEW, ("WIDELY", 4_096), ("JUDGED", 2_048)):
            patch.setattr(minimise, name, number)
        yield


@pytest.fixture(scope="module")
def nearly(one_turn):
    """The same θ without being finished, finished, with a threshold that it misses, and far too damaged."""
    start, far = start_of(), start_of(1.0)
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


def test_alone_and_killed_before_it_is_finished_it_is_finished_alike(nearly):
    start = start_of()
    first = Bank(SPEC, [pair(0.5, start)])
    assert first.advance() and first.advance()
    assert [row["outcome"] for row in first.newest()] == [Outcome.RUNNING], "it has not ended"
    second = Bank(SPEC, [pair(0.5, start)])
    assert second.restore(0, first.save(0)) and second.advance() and not second.advance()
    assert torch.equal(second.result(0).theta_P, nearly[1].theta_P)


def test_some_are_finished_at_a_time_and_none_twice(monkeypatch):
    """So that a worker is heard of in between, and goes on where it was."""
    seen = []
    monkeypatch.setattr(minimise, "MANY_TURNS", (lambda task, theta_P: seen.append(task.seed) or theta_P,))
    pairs = [pair(0.5, start_of(), seed) for seed in (1, 2, 3)]
    bank = Bank(SPEC, pairs)
    for expected in (0, 0, 1, 2):
        assert bank.advance() and len(seen) == expected
    again = Bank(SPEC, pairs)
    assert again.restore_all(dict(enumerate(bank.save_all(range(3))))) and again.advance() and not again.advance()
    assert len(seen) == len(set(seen)) == 3
    bank.end([2])
    assert not bank.advance() and bank.result(2).outcome == Outcome.CENSORED
    assert {bank.result(n).outcome for n in (0, 1)} == {Outcome.FAILED}


@pytest.mark.usefixtures("one_turn")
def test_it_keeps_the_ties():
    base = certificate("46p")
    ties = constrained(base.spec, ["head[0,1] = head[0,2]"])
    tied = tie(base.spec, ties)
    start_P = tied.untie(project(ties, base.theta_P[None]))[0]
    recipe = replace(STILL, ramp=1, finish_above=0.5)
    bank = Bank(base.spec, [Pair(recipe, Seed.of(1), tuple(start_P.tolist()), ties)])
    before = float(bank.backend.evaluate(start_P[None])["exact"])
    found = advanced(bank).result(0)
    assert 0.5 < before < found.best_exact and found.best_step == 2
    assert torch.equal(tied.untie(project(ties, found.theta_P[None]))[0], found.theta_P)
