"""What a descent proposes: saliency, the quadratic model in all entries, structures, ties that are loosened."""

import pytest
import torch

from compress.hessian import (
    LossExpansion,
    cheapest_together,
    constraints,
    expand_loss,
    measured_loss,
    sample_of,
    shares,
)
from compress.quadratic import Quadratic, quadratic
from compress.section import KINDS
from compress.ties import describe_change, retied
from model import preset
from model.tied import Tied, constrained, free, tie, ties_of
from tests import CERTIFICATES
from tests.unit.test_tied import WORDS
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.step import step

BASE = preset("46p")
TIES = constrained(BASE, ["form[0,0] = form[1,1]", "arc[0] = arc[2]", "fc1[0,3] = 0", "head[0,1] = -norm[0,1]"])


def draw(seed=0):
    """A positive Hessian, a θ and a slope, drawn."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(BASE.params, BASE.params, generator=generator, dtype=torch.float64)
    theta, slope = (torch.randn(BASE.params, generator=generator, dtype=torch.float64) for _ in range(2))
    return root @ root.T / BASE.params + torch.eye(BASE.params), theta, slope


def expansion(spec=BASE, seed=0):
    hessian, theta, _ = draw(seed)
    values, vectors = torch.linalg.eigh(hessian[: spec.params, : spec.params])
    x = theta[: spec.params]
    return LossExpansion(spec, ties_of(spec)[1], x, 0.5, torch.zeros_like(x), values, vectors)


def model_of(seed=0):
    hessian, theta, slope = draw(seed)
    return Quadratic(BASE, theta, 0.5, slope, hessian)


def least_rise(at, a_CR):
    """The least ½ dᵀHd with A (x + d) = 0, by Lagrange's equations."""
    hessian, count = at.vectors_RR * at.values_R @ at.vectors_RR.T, len(a_CR)
    zero = torch.zeros(count, count, dtype=torch.float64)
    system = torch.cat([torch.cat([hessian, a_CR.T], dim=1), torch.cat([a_CR, zero], dim=1)])
    right = torch.cat([torch.zeros_like(at.x_R), -a_CR @ at.x_R])
    d = torch.linalg.solve(system, right)[: len(at.x_R)]
    return float(d @ hessian @ d) / 2


@pytest.mark.parametrize("spec", [BASE, tie(BASE, TIES)], ids=["free", "tied"])
def test_saliency_is_the_least_rise_of_the_quadratic_model(spec):
    at = expansion(spec)
    candidates = constraints(at, KINDS, "global", 5_000)
    assert len(candidates) == spec.params + spec.params * (spec.params - 1)
    assert [c.cost for c in candidates] == sorted(c.cost for c in candidates)
    for constraint in candidates[::400]:
        assert constraint.cost == pytest.approx(least_rise(at, constraint.a_R[None]), rel=1e-5)


def test_several_are_chosen_by_what_they_cost_together():
    """One after another, against the cost of each whole set by its definition."""
    at = expansion()
    pool, chosen = constraints(at, KINDS, "global")[:40], []
    for _ in range(6):
        cost = {}
        for n, c in enumerate(pool):
            a_CR = torch.stack([k.a_R for k in (*chosen, c)])
            if torch.linalg.matrix_rank(a_CR) == len(a_CR):
                cost[n] = least_rise(at, a_CR)
        chosen.append(pool[min(cost, key=cost.get)])
    assert cheapest_together(at, pool, 6) == chosen
    assert cheapest_together(at, pool[:1] * 3, 2) is None and cheapest_together(at, pool[:3], 4) is None


def test_curvature_is_that_of_the_loss():
    loaded = Checkpoint.load(CERTIFICATES / "46p")
    spec, tokens = loaded.spec, sample_of(loaded.spec, 64)
    at = expand_loss(spec, loaded.theta_P, 64)
    v = at.vectors_RR[:, -1]
    up, down = (float(step.loss(spec, (at.x_R + s * 1e-5 * v)[None], tokens)[0]) for s in (1, -1))
    assert (up + down - 2 * at.loss) / 1e-10 == pytest.approx(float(at.values_R[-1]), rel=1e-3)
    assert at.loss == pytest.approx(measured_loss(spec, loaded.theta_P, free(46), 64), rel=1e-9)
    theta_P = BASE.initial(1)
    model, at = quadratic(BASE, theta_P, 32), expand_loss(BASE, theta_P, 32)
    v = at.vectors_RR[:, -1]
    assert torch.equal(model.gradient_P, at.gradient_R) and float(model.costs([free(46)])[0]) < 0
    assert float(v @ model.hessian_PP @ v) == pytest.approx(float(at.values_R[-1]), rel=1e-4)
    assert (torch.linalg.eigvalsh(model.hessian_PP) > 0).all()


def lowest(model, ties):
    """The least of the quadratic on a set, by descent along its own gradient: Newton's step from anywhere."""
    spread = torch.zeros(BASE.params, max(ties), dtype=torch.float64)
    for p, k in enumerate(ties):
        if k:
            spread[p, abs(k) - 1] = 1.0 if k > 0 else -1.0
    right = spread.T @ (model.hessian_PP @ model.theta_P - model.gradient_P)
    z = torch.linalg.lstsq(spread.T @ model.hessian_PP @ spread, right[:, None]).solution[:, 0]
    d = spread @ z - model.theta_P
    return float(model.gradient_P @ d + d @ model.hessian_PP @ d / 2), z


def test_what_a_set_costs_is_the_least_of_the_quadratic_on_it():
    model = model_of()
    sets = [free(46), TIES, retied(TIES, 5, 1), constrained(BASE, ["norm[0,0] = 0"], TIES)]
    for ties, cost in zip(sets, model.costs(sets).tolist(), strict=True):
        assert cost == pytest.approx(lowest(model, ties)[0], rel=1e-9)
    assert model.costs(sets)[0] < model.costs(sets)[1] < model.costs(sets)[3]  # fewer ways, no lower
    at, (cost, z) = model.inside(TIES), lowest(model, TIES)
    assert at.loss == pytest.approx(model.loss + cost)
    assert torch.allclose(at.x_R, z * shares(TIES).sqrt())
    away = model.costs([constrained(BASE, ["arc[1] = 0"], TIES)])[0] - cost
    k = TIES[1] - 1
    assert float(at.x_R[k] ** 2 / (2 * at.inverse()[k, k])) == pytest.approx(float(away), rel=1e-4)


def crosses_tensors(ties):
    tensors = {}
    for name, numbers in tie(BASE, ties).by_tensor().items():
        for k in {abs(k) for k in numbers} - {0}:
            tensors.setdefault(k, set()).add(name)
    return any(len(names) > 1 for names in tensors.values())


def test_what_leads_from_one_set_to_another_leads_there():
    base = preset("46p")
    before = constrained(base, [*WORDS, "head[0,0] = head[1,1]"])
    tighter = constrained(base, ["head[0,1] = 0"], before)
    assert describe_change(base, before, tighter) == ([], ["head[0,1] = 0"])
    p = base.layout.entries().index("form[1,0]")
    after = constrained(base, ["arc[0] = norm[0,4]"], retied(before, p, before[-1]))
    loosened, tied = describe_change(base, before, after)
    assert loosened == ["form[1,0] = -form[0,1]"] and len(tied) == 2
    kept = [t for t in Tied(base=base, ties=before).spelt() if t not in loosened]
    assert constrained(base, kept + tied) == after
    opposite = retied(before, p, -before[p])
    assert describe_change(base, before, opposite) == (["form[1,0] = -form[0,1]"], ["form[1,0] = form[0,1]"])
