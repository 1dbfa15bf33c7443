"""A θ moved to another spec of its family: as it is, folded, spread, projected, or as near as it comes.

Whatever two specs of a family have in common is their wide tensors (`Spec.expand`), which all that follows
reads: a looser spec can have those of a θ exactly, of a tighter one the nearest are taken.

Axes: P parameters of the spec that is left, Q of the one that is moved to, N entries of wide tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.tied import Tied, project

if TYPE_CHECKING:
    from torch import Tensor

    from model.ops import Tensors
    from model.spec import Fold, Spec

ROUNDS = 100  # of least squares
CLOSE, SMALL = 1e-24, 1e-6
"""It has arrived where this share of the squares' sum is left, or a round takes no more off what is left."""


@dataclass(frozen=True)
class Transferred:
    """θ [Q] of the spec that was asked for, and what was done, in words."""

    theta_Q: Tensor
    how: tuple[str, ...]


def transfer(spec: Spec, theta_P: Tensor, into: Spec) -> Transferred:
    """θ of a spec as one of another. Raises ValueError where the two are of different families."""
    if spec.trained() == into.trained():
        return Transferred(theta_P, ())
    if isinstance(spec, Tied):
        return transfer(spec.base, spec.untie(theta_P[None])[0], into)
    if isinstance(into, Tied):
        base = transfer(spec, theta_P, into.base)
        return Transferred(project(into.ties, base.theta_Q[None])[0], (*base.how, "projected on the ties"))
    if spec.family != into.family:
        raise ValueError(f"a θ of family {spec.family} cannot become one of {into.family}")
    return _folded(spec, theta_P, into) or _nearest(spec, theta_P, into)


def _folded(spec: Spec, theta_P: Tensor, into: Spec) -> Transferred | None:
    """By folds, in float64 and rounded once; None where none lead there, or not for this θ."""
    tensors = {name: t[0].double() for name, t in spec.layout.split(theta_P[None]).items()}
    for step in fold_path(spec, into):
        rewritten = step.rewrite(tensors)
        if rewritten is None:
            return None
        tensors = rewritten
    says = tuple(f"folded: {step.description}" for step in fold_path(spec, into))
    return Transferred(into.layout.join(tensors).to(theta_P.dtype), says) if says else None


def fold_path(spec: Spec, into: Spec) -> list[Fold]:
    """The folds that lead from one spec to another; empty where none do."""
    ways: list[list[Fold]] = [[step] for step in spec.folds()]
    seen = {spec}
    while ways:
        steps = ways.pop(0)
        last = steps[-1].to
        if last.trained() == into.trained():
            return steps
        if last not in seen:
            seen.add(last)
            ways += [[*steps, step] for step in last.folds()]
    return []


def _nearest(spec: Spec, theta_P: Tensor, into: Spec) -> Transferred:
    """With wide tensors as near as least squares bring them (Levenberg and Marquardt), from the tensors that
    both specs have; what no wide tensor of the first says stays at its initial value.
    """
    import torch

    wanted = spec.expand(theta_P.double()[None])
    x_Q = _shared(spec, theta_P, into).double()

    def apart(x_Q: Tensor) -> Tensor:
        return _difference(into.expand(x_Q[None]), wanted)

    error_N, damping = apart(x_Q), 1e-3
    scale = float(sum(t.square().sum() for t in wanted.values()))
    for _ in range(ROUNDS):
        if float(error_N @ error_N) <= CLOSE * scale or damping > 1e12:
            break
        jacobian_NQ = torch.func.jacfwd(apart)(x_Q)
        square_QQ = jacobian_NQ.T @ jacobian_NQ
        held_QQ = square_QQ + damping * torch.diag(square_QQ.diagonal().clamp(min=1e-12))
        new_Q = x_Q - torch.linalg.solve(held_QQ, jacobian_NQ.T @ error_N)
        new_N = apart(new_Q)
        gain = float(error_N @ error_N) - float(new_N @ new_N)
        if gain <= 0:
            damping *= 10
            continue
        done = gain < SMALL * float(error_N @ error_N)
        x_Q, error_N, damping = new_Q, new_N, damping / 10
        if done:
            break
    largest = max(float(t.abs().max()) for t in wanted.values())
    apart_by = f"of up to {largest:.3g}, which differ by at most {error_N.abs().max():.2g}"
    how = f"nearest by its wide tensors, {apart_by}"
    return Transferred(x_Q.to(theta_P.dtype), (how,))


def _shared(spec: Spec, theta_P: Tensor, into: Spec) -> Tensor:
    """The initial values of a spec, with the tensors that another's θ has in the same shape."""
    mine, its = spec.layout.split(theta_P[None]), into.layout.split(into.initial(0)[None])
    both = {n: mine[n] if n in mine and mine[n].shape == t.shape else t for n, t in its.items()}
    return into.layout.join({n: t[0] for n, t in both.items()})


def _difference(one: Tensors, other: Tensors) -> Tensor:
    """Entries of wide tensors that both have, the one's less the other's, flat."""
    import torch

    parts = []
    for name in [n for n in one if n in other]:
        a, b = one[name], other[name]
        common = tuple(slice(min(n, m)) for n, m in zip(a.shape, b.shape, strict=True))
        parts.append((a[common] - b[common]).flatten())
    return torch.cat(parts)
