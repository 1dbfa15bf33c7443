"""The loss around a θ: its Hessian, the cost of linear constraints there, and the directions that matter.

Saliency is Optimal Brain Surgeon's (Hassibi and Stork, "Second order derivatives for network pruning", 1993)
for any linear constraint aᵀx = 0: the least rise of the loss's quadratic model on it is (aᵀx)² / (2 aᵀH⁻¹a),
and of several, A x = 0, ½ (A x)ᵀ (A H⁻¹ Aᵀ)⁻¹ (A x). x are the numbers of a spec, each times the root of the
number of entries that read it: so a distance between x is one between θ of the base. All in float64.

Axes: R numbers, C constraints, S seed, B problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.spec import Spec
from model.tied import Ties, equated, project, tie, ties_of, untied, zeroed
from trainer.data.problems import selection
from trainer.step import step
from trainer.step.objective import answer_logits

CHUNK = 8  # directions at once: memory
INDEPENDENT = 1e-9  # least share of aᵀH⁻¹a that stays beside other constraints, unless it follows from them
DAMPING = 1e-7  # of the largest eigenvalue, added to each: a direction without curvature is not free


@dataclass(frozen=True)
class LossExpansion:
    """A spec at a θ: its ties, x [R], the loss there, and the Hessian's eigenvalues and eigenvectors."""

    spec: Spec
    ties: Ties
    x_R: Tensor
    loss: float
    gradient_R: Tensor
    values_R: Tensor
    vectors_RR: Tensor

    def inverse(self) -> Tensor:
        """Return H⁻¹ [R, R], damped; negative curvature counts as none."""
        largest = self.values_R.abs().max().clamp(min=1e-30)
        damped_R = self.values_R.clamp(min=0) + DAMPING * largest
        return (self.vectors_RR / damped_R) @ self.vectors_RR.T


@dataclass(frozen=True)
class Constraint:
    """One number zero, or two equal or opposite: the ties with it, and a [R] with aᵀx = 0."""

    kind: str
    ties: Ties
    a_R: Tensor
    cost: float
    """The predicted rise of the loss."""


def sample_of(spec: Spec, count: int) -> Tensor:
    """Return the first selection problems as tokens [1, T + 1, B]."""
    a_1B, b_1B = selection()
    return step.tokens_of(spec, a_1B[:, :count], b_1B[:, :count])


def expand_loss(spec: Spec, theta_P: Tensor, count: int) -> LossExpansion:
    """Expand the loss at θ [P] of a spec, on `count` selection problems.

    Raises ValueError where its second derivatives are not finite.
    """
    _, ties = ties_of(spec)
    tokens = sample_of(spec, count)
    weight_R = shares(ties).sqrt()

    def loss(x_R: Tensor) -> Tensor:
        return step.loss(spec, (x_R / weight_R)[None], tokens)[0]

    x_R = theta_P.double() * weight_R
    slope = torch.func.grad(loss)
    hessian_RR = torch.func.jacrev(slope, chunk_size=CHUNK)(x_R)
    _check_finite(hessian_RR)
    symmetric_RR = (hessian_RR + hessian_RR.T) / 2  # rounding made it differ from its transpose
    values_R, vectors_RR = torch.linalg.eigh(symmetric_RR)
    return LossExpansion(spec, ties, x_R, float(loss(x_R)), slope(x_R), values_R, vectors_RR)


def _check_finite(derivatives: Tensor) -> None:
    if not derivatives.isfinite().all():
        raise ValueError("derivatives at this θ are not finite: there is nothing to decompose")


def shares(ties: Ties) -> Tensor:
    """Count the entries that read each number [R], float64."""
    read = torch.tensor([abs(k) for k in ties])
    return torch.bincount(read, minlength=1)[1:].double()


def constraints(at: LossExpansion, kinds: Sequence[str], scope: str, limit: int = 500) -> list[Constraint]:
    """Return the `limit` cheapest constraints of these kinds (zero, equal, opposite), cheapest first.

    scope: `global` ties any two numbers, `tensor` only two whose entries are all in the same tensor.
    """
    inverse_RR = at.inverse()
    unit_R = 1 / shares(at.ties).sqrt()  # x times this are the numbers
    read_R = at.x_R * unit_R
    spread_RR = inverse_RR * torch.outer(unit_R, unit_R)
    variance_R = spread_RR.diagonal()
    allowed_RR = torch.ones_like(spread_RR) if scope == "global" else _in_one_tensor(at)
    is_one_RR = torch.eye(len(variance_R), dtype=torch.bool)
    is_pair_RR = (allowed_RR > 0) & torch.ones_like(spread_RR).tril(-1).bool()  # each pair once
    candidates = []
    for kind, sign in (("zero", 0), ("equal", 1), ("opposite", -1)):
        if kind not in kinds:
            continue
        if kind == "zero":
            costs_R = read_R**2 / (2 * variance_R.clamp(min=1e-300))
            cost_RR = torch.where(is_one_RR, torch.diag_embed(costs_R), torch.inf)
        else:
            apart_RR = (read_R[:, None] - sign * read_R[None]) ** 2
            pull_RR = variance_R[:, None] + variance_R[None] - 2 * sign * spread_RR
            costs_RR = apart_RR / (2 * pull_RR.clamp(min=1e-300))
            cost_RR = torch.where(is_pair_RR, costs_RR, torch.inf)
        values, places = cost_RR.flatten().sort()
        for cost, place in zip(values[:limit].tolist(), places[:limit].tolist(), strict=True):
            if cost < torch.inf:
                candidates.append((cost, kind, sign, *divmod(place, len(variance_R))))
    built = (_constraint(at, unit_R, *choice) for choice in sorted(candidates)[:limit])
    return [c for c in built if c is not None]


def _constraint(
    at: LossExpansion, unit_R: Tensor, cost: float, kind: str, sign: int, k: int, j: int
) -> Constraint | None:
    """Constrain number k to zero, or to sign times number j. Return None where the spec refuses that."""
    numbers = [abs(number) for number in at.ties]
    first = numbers.index(k + 1)
    a_R = torch.zeros_like(unit_R)
    a_R[k] = unit_R[k]
    if kind == "zero":
        ties = possible(at.spec, zeroed(at.ties, first))
    else:
        a_R[j] = -sign * unit_R[j]
        ties = possible(at.spec, equated(at.ties, first, numbers.index(j + 1), sign))
    return None if ties is None else Constraint(kind, ties, a_R, cost)


def _in_one_tensor(at: LossExpansion) -> Tensor:
    """Return 1 for each two numbers [R, R] whose entries are all in the same tensor, else 0."""
    base, ties = ties_of(at.spec)
    owner = list[int]()  # of each entry: the number of its tensor
    for n, size in enumerate(base.layout.budget().values()):
        owner += [n] * size
    homes = torch.zeros(len(at.x_R), max(owner) + 1, dtype=torch.bool)
    for p, k in enumerate(ties):
        if k:
            homes[abs(k) - 1, owner[p]] = True
    both = homes[:, None] | homes[None]
    return (both.sum(-1) == 1).double()


def possible(spec: Spec, ties: Ties) -> Ties | None:
    """Return the ties, or None where they leave a tensor empty that must not be."""
    try:
        tie(spec, ties)
    except ValueError:
        return None
    return ties


def cheapest_together(at: LossExpansion, pool: Sequence[Constraint], size: int) -> list[Constraint] | None:
    """Choose `size` constraints greedily, by their cost beside those before.

    Return None where the pool has fewer independent ones. Offsets and pulls are updated as a Gaussian's mean
    and covariance are under conditions.
    """
    if len(pool) < size:
        return None
    a_CR = torch.stack([c.a_R for c in pool])
    off_C = a_CR @ at.x_R
    meet_CC = a_CR @ at.inverse() @ a_CR.T
    chosen = list[int]()
    least_C = INDEPENDENT * meet_CC.diagonal()
    for _ in range(size):
        pull_C = meet_CC.diagonal()
        alone_C = off_C**2 / (2 * pull_C.clamp(min=1e-300))
        cost_C = torch.where(pull_C > least_C, alone_C, torch.inf)
        cost_C[chosen] = torch.inf
        n = int(cost_C.argmin())
        if not torch.isfinite(cost_C[n]):
            return None
        chosen.append(n)
        # Condition on the chosen constraint: what follows from it has neither offset nor pull left.
        share_C = meet_CC[:, n] / meet_CC[n, n]
        off_C = off_C - share_C * off_C[n]
        meet_CC = meet_CC - torch.outer(share_C, meet_CC[n])
    return [pool[n] for n in chosen]


def measured_loss(spec: Spec, theta_P: Tensor, ties: Ties, count: int) -> float:
    """Return the loss on `count` selection problems with θ [P] projected onto `ties`, without training."""
    base, base_theta_P = untied(spec, theta_P.double())
    new = tie(base, ties)
    theta_1P = base_theta_P[None]
    if new != base:
        theta_1P = project(ties, theta_1P)
    (loss,) = step.loss(new, theta_1P, sample_of(new, count))
    return float(loss)


def live_directions(spec: Spec, theta_P: Tensor, count: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose the Jacobian of the logits towards θ on `count` problems.

    Return its singular values [P], largest first, their directions in θ [P, P] in columns, and the norm of
    each number's row [P]. Logits are taken less their mean over the vocabulary, which changes no answer.
    """
    tokens = sample_of(spec, count)

    def logits(theta_P: Tensor) -> Tensor:
        out = answer_logits(spec, theta_P[None], tokens)
        # Less the mean over the vocabulary, which softmax does not see.
        out_VN = torch.stack([v.expand(1, spec.answers, count).flatten() for v in out])
        return (out_VN - out_VN.mean(0)).flatten()

    theta_P = theta_P.double()
    out_N, back = torch.func.vjp(logits, theta_P)
    # J v, by differentiating Jᵀ u, which is linear in u.
    _, forth = torch.func.vjp(lambda pull_N: back(pull_N)[0], torch.zeros_like(out_N))

    def along(v_P: Tensor) -> Tensor:
        tangent: Tensor = forth(v_P)[0]
        return tangent

    directions_PP = torch.eye(len(theta_P), dtype=torch.float64)
    jacobian_PN = torch.func.vmap(along, chunk_size=CHUNK)(directions_PP)
    _check_finite(jacobian_PN)
    left_PP, values_P, _ = torch.linalg.svd(jacobian_PN, full_matrices=False)
    return values_P, left_PP, jacobian_PN.norm(dim=1)
