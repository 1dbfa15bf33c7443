"""Transfer of θ to another spec of its family: unchanged, folded, untied, projected, or fitted.

Specs of one family compute the same from the same wide tensors (`Spec.expand`). A looser spec can have those
of a θ exactly; a tighter one gets the nearest by least squares.

Axes: P parameters of the old spec, Q of the new one, N entries of wide tensors.
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
"""Least squares stop at this share of the sum of squares, or where a round takes no larger share off it."""
LEAST_DAMPING = 1e-13
"""Where parameters have the same effect, less than this is lost in float64, and a step has no solution."""


@dataclass(frozen=True)
class Transferred:
    """θ [Q] of the new spec, and the steps that led there, as text."""

    theta_Q: Tensor
    how: tuple[str, ...]


def transfer(spec: Spec, theta_P: Tensor, into: Spec) -> Transferred:
    """Transfer θ [P] of a spec into another. Raises ValueError if their families differ."""
    if spec.trained() == into.trained():
        return Transferred(theta_P, ())
    # Ties come off first and on last: folds and fits know untied specs alone.
    if isinstance(spec, Tied):
        return transfer(spec.base, spec.untie(theta_P[None])[0], into)
    if isinstance(into, Tied):
        base = transfer(spec, theta_P, into.base)
        theta_Q = project(into.ties, base.theta_Q[None])[0]
        return Transferred(theta_Q, (*base.how, "projected on the ties"))
    if spec.family != into.family:
        raise ValueError(f"a θ of family {spec.family} cannot become one of {into.family}")
    return _fold(spec, theta_P, into) or _fit(spec, theta_P, into)


def _fold(spec: Spec, theta_P: Tensor, into: Spec) -> Transferred | None:
    """Transfer by folds, in float64 and rounded once; None if no fold leads there for this θ."""
    path = fold_path(spec, into)
    if not path:
        return None
    tensors = spec.layout.split_one(theta_P.double())
    for step in path:
        rewritten = step.rewrite(tensors)
        if rewritten is None:
            return None
        tensors = rewritten
    theta_Q = into.layout.join(tensors).to(theta_P.dtype)
    return Transferred(theta_Q, tuple(f"folded: {step.description}" for step in path))


def fold_path(spec: Spec, into: Spec) -> list[Fold]:
    """Return the folds that lead from one spec to another, the fewest; empty where none do."""
    # Breadth first, so that the first path that arrives is a shortest one.
    paths: list[list[Fold]] = [[step] for step in spec.folds()]
    seen = {spec}
    while paths:
        path = paths.pop(0)
        last = path[-1].to
        if last.trained() == into.trained():
            return path
        if last not in seen:
            seen.add(last)
            paths += [[*path, step] for step in last.folds()]
    return []


def _fit(spec: Spec, theta_P: Tensor, into: Spec) -> Transferred:
    """Fit the wide tensors by least squares (Levenberg and Marquardt), from the tensors that both specs have.

    Parameters on which no wide tensor of the old spec bears stay at their initial values.
    """
    import torch

    # In float64, and rounded once at the end.
    target = spec.expand(theta_P.double()[None])
    x_Q = _initial_guess(spec, theta_P, into).double()

    def residual(x_Q: Tensor) -> Tensor:
        return _difference(into.expand(x_Q[None]), target)

    error_N = residual(x_Q)
    damping = 1e-3
    scale = float(sum(t.square().sum() for t in target.values()))
    for _ in range(ROUNDS):
        square = float(error_N @ error_N)
        if square <= CLOSE * scale or damping > 1e12:
            break

        # a step of Gauss and Newton, damped along each parameter by how much the residual depends on it
        jacobian_NQ = torch.func.jacfwd(residual)(x_Q)
        square_QQ = jacobian_NQ.T @ jacobian_NQ
        diagonal_Q = square_QQ.diagonal().clamp(min=1e-12)
        damped_QQ = square_QQ + damping * torch.diag(diagonal_Q)
        step_Q = torch.linalg.solve(damped_QQ, jacobian_NQ.T @ error_N)
        new_Q = x_Q - step_Q
        new_N = residual(new_Q)
        gain = square - float(new_N @ new_N)
        # Levenberg and Marquardt's rule: after a step that was too long a shorter one, after a good one a longer.
        if gain <= 0:
            damping *= 10
            continue
        x_Q, error_N = new_Q, new_N
        damping = max(damping / 10, LEAST_DAMPING)
        if gain < SMALL * square:
            break
    largest = max(float(t.abs().max()) for t in target.values())
    differ = f"of up to {largest:.3g}, which differ by at most {error_N.abs().max():.2g}"
    return Transferred(x_Q.to(theta_P.dtype), (f"nearest by its wide tensors, {differ}",))


def _initial_guess(spec: Spec, theta_P: Tensor, into: Spec) -> Tensor:
    """Return the initial values of `into`, with the tensors that θ has in the same shape."""
    old = spec.layout.split_one(theta_P)
    tensors = into.layout.split_one(into.initial(0))
    for name, tensor in tensors.items():
        if name in old and old[name].shape == tensor.shape:
            tensors[name] = old[name]
    return into.layout.join(tensors)


def _difference(first: Tensors, second: Tensors) -> Tensor:
    """Return the entries of wide tensors that both have, first less second, flat."""
    import torch

    parts = []
    for name, a in first.items():
        if name not in second:
            continue
        b = second[name]
        # Sizes may differ, as of a table with fewer tokens: what both have is compared.
        sizes = zip(a.shape, b.shape, strict=True)
        common = tuple(slice(min(n, m)) for n, m in sizes)
        parts.append((a[common] - b[common]).flatten())
    return torch.cat(parts)
