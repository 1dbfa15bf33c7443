"""What a descent proposes: the quadratic model in all entries, structures, ties that are loosened."""

import pytest
import torch

from model import preset
from model.structures import STRUCTURES, rotations
from model.tied import constrained, free, retied, tie
from search.compress.proposals import KINDS, Proposer
from trainer.curvature.hessian import expand_loss, shares
from trainer.curvature.quadratic import Quadratic, quadratic

BASE = preset("46p")
TIES = constrained(
    BASE, ["form[0,0] = form[1,1]", "arc[0] = arc[2]", "fc1[0,3] = 0", "head[0,1] = -norm[0,1]"]
)


def made_up(seed=0):
    draw = torch.Generator().manual_seed(seed)
    root = torch.randn(BASE.params, BASE.params, generator=draw, dtype=torch.float64)
    hessian = root @ root.T / BASE.params + torch.eye(BASE.params)
    theta, slope = (torch.randn(BASE.params, generator=draw, dtype=torch.float64) for _ in range(2))
    return Quadratic(BASE, theta, 0.5, slope, hessian)


def lowest(model, ties):
    """The least of the quadratic on a set, by descent along its own gradient: Newton's step from anywhere."""
    spread = torch.zeros(BASE.params, max(ties), dtype=torch.float64)
    for p, k in enumerate(ties):
        if k:
            spread[p, abs(k) - 1] = 1.0 if k > 0 else -1.0
    z = torch.linalg.lstsq(
        spread.T @ model.hessian_PP @ spread,
        (spread.T @ (model.hessian_PP @ model.theta_P - model.gradient_P))[:, None],
    ).solution[:, 0]
    d = spread @ z - model.theta_P
    return float(model.gradient_P @ d + d @ model.hessian_PP @ d / 2), z


def test_what_a_set_costs_is_the_least_of_the_quadratic_on_it():
    model = made_up()
    sets = [free(46), TIES, retied(TIES, 5, 1), constrained(BASE, ["norm[0,0] = 0"], TIES)]
    for ties, cost in zip(sets, model.costs(sets).tolist(), strict=True):
        assert cost == pytest.approx(lowest(model, ties)[0], rel=1e-9)
    assert model.costs(sets)[0] < model.costs(sets)[1] < model.costs(sets)[3]  # fewer ways, no lower


def test_the_model_inside_a_set_is_the_same_model_there():
    model = made_up(1)
    at, (cost, z) = model.inside(TIES), lowest(model, TIES)
    assert at.loss == pytest.approx(model.loss + cost)
    assert torch.allclose(at.x_R, z * shares(TIES).sqrt())
    one = torch.zeros(max(TIES), dtype=torch.float64)
    one[3] = 1.0
    away = model.costs([constrained(BASE, ["arc[1] = 0"], TIES)])[0] - cost
    own = at.inverse()
    k = TIES[1] - 1
    assert float(at.x_R[k] ** 2 / (2 * own[k, k])) == pytest.approx(float(away), rel=1e-4)


def test_the_quadratic_is_that_of_the_loss():
    theta = BASE.initial(1)
    model, at = quadratic(BASE, theta, 32), expand_loss(BASE, theta, 32)
    assert torch.equal(model.gradient_P, at.gradient_R) and float(model.costs([free(46)])[0]) < 0
    v = at.vectors_RR[:, -1]
    assert float(v @ model.hessian_PP @ v) == pytest.approx(float(at.values_R[-1]), rel=1e-4)
    assert (torch.linalg.eigvalsh(model.hessian_PP) > 0).all()


def test_structures_are_constraints_that_hold_together():
    known = BASE.structures()
    assert set(known) == set(STRUCTURES)
    assert known["rotation"] == rotations("form", 3) and len(known["rotation"]) == 6
    ties = constrained(BASE, ("form[0,0] = form[1,1]", "form[0,1] = -form[1,0]"))
    assert ties == constrained(BASE, known["rotation"][0]) and max(ties) == 44
    row = constrained(BASE, next(w for w in known["rows"] if w[0].startswith("fc1")))
    assert max(row) == 41 and tie(BASE, row).by_tensor()["fc1"][:5] == tie(BASE, row).by_tensor()["fc1"][5:]
    for kind, listed in known.items():
        assert listed, kind
        for words in listed:
            constrained(BASE, words)
    assert all(len(w) == 2 and w[0].endswith("= 0") for w in known["empty"] if w[0].startswith("head"))


def test_a_tie_is_loosened_and_its_entry_tied_elsewhere():
    model = made_up(2)
    proposer = Proposer(tie(BASE, TIES), model.inside(TIES), model, KINDS, "values")
    assert proposer.spec.params == 42
    others = proposer._retied()
    assert others and all(max(t) == 42 for t in others) and TIES not in others
    made = proposer.sets(16, 2, {})
    assert len(set(made)) == 16 and all(max(t) <= 42 for t in made)
    before = float(model.costs([TIES])[0])
    for beside in (t for t in made if max(t) == 42):
        assert beside in others and float(model.costs([beside])[0]) < before
    looser = [t for t in made if any(abs(t[p]) != abs(t[q]) for p, q in shared(TIES))]
    assert looser and len(looser) < 16


def shared(ties):
    return [(p, q) for p in range(46) for q in range(p) if ties[p] and abs(ties[p]) == abs(ties[q])]


def test_inside_tensors_nothing_is_tied_across():
    ties = constrained(BASE, ["form[0,0] = form[1,1]", "arc[0] = arc[2]", "fc1[0,3] = 0"])
    model = made_up(3)
    for made in Proposer(tie(BASE, ties), model.inside(ties), model, KINDS, "tensor").sets(40, 4, {}):
        homes = {}
        for name, mine in tie(BASE, made).by_tensor().items():
            for k in {abs(k) for k in mine} - {0}:
                assert homes.setdefault(k, name) == name
