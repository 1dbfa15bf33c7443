"""Problems to finish a θ on: drawn here, apart from AdderBoard's and from those that judge it.

Uniform pairs; pairs with a run of carries of each length; pairs of numbers of 2 to 10 digits; and a θ's own
errors among fresh ones. Of one digit, as in most of AdderBoard's edge cases, there are none.

Axes: S seed, P parameters, B problem, A answer position, V vocabulary, N entries of logits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.adderboard import Pairs, carry_pairs
from model.spec import Spec
from trainer.curvature.arithmetic import exp, gram, total
from trainer.data import hard_examples
from trainer.data.problems import DIGITS
from trainer.engine.build import missing_to_build
from trainer.engine.kernel import KernelLoss, is_wrong
from trainer.engine.native import Array
from trainer.step import step
from trainer.step.step import tokens_of

CHUNK = 64
"""Problems whose Jacobian is made at once: it stays in the cache."""
STEP, LEAST_NUMBER = np.float32(2**-10), 0.05
"""Of differences: a share of each number, and the number of which it is the least."""


@dataclass
class Cost:
    """Problems that a method has passed through the model, forwards, backwards or as a tangent."""

    problems: int = 0


def draw_problems(seed: int, turn: int, count: int) -> Pairs:
    """Draw half of the pairs uniformly, a quarter with runs of carries, a quarter of shorter numbers."""
    rng = random.Random(f"finish {seed} {turn}")
    uniform = [(rng.randrange(10**DIGITS), rng.randrange(10**DIGITS)) for _ in range(count // 2)]
    short = [(_number(rng), _number(rng)) for _ in range(count // 4)]
    each = -(-count // 4 // (DIGITS + 1))
    runs = [p for run in range(DIGITS + 1) for p in carry_pairs(run, each, f"to finish {seed} {turn}")]
    return uniform + short + [p for p in runs if min(p) > 9]


def _number(rng: random.Random) -> int:
    digits = rng.randint(2, DIGITS)
    return rng.randrange(10 ** (digits - 1), 10**digits)


def tokens_from(spec: Spec, pairs: Pairs) -> Tensor:
    """Return tokens [1, T + 1, B]."""
    return tokens_of(spec, *torch.tensor(pairs, dtype=torch.float64).T[:, None])


def has_kernel(spec: Spec) -> bool:
    """True if a spec's kernel is there or can be built."""
    kernel = spec.kernel()
    return kernel is not None and not missing_to_build(kernel.source, kernel.shape)


class TorchLoss:
    """The same as `KernelLoss` by torch, in float64."""

    def __init__(self, spec: Spec, tokens_1TB: Tensor):
        self.spec, self.tokens = spec, tokens_1TB

    def slope(self, theta_P: Array) -> tuple[float, Array]:
        parameter_P = torch.from_numpy(theta_P).double().requires_grad_()
        mean = step.loss(self.spec, parameter_P[None], self.tokens)
        (gradient_P,) = torch.autograd.grad(mean, parameter_P)
        return float(mean.detach()), gradient_P.numpy()

    @torch.no_grad()
    def logits(self, theta_P: Array) -> Array:
        theta_1P = torch.from_numpy(theta_P).double()[None]
        logits = self.spec.forward(theta_1P, self.tokens[:, :-1], first=self.spec.prompt - 1)
        return torch.stack(torch.broadcast_tensors(*logits))[:, 0].movedim(0, 1).numpy()


def loss_of(spec: Spec, tokens_1TB: Tensor) -> KernelLoss | TorchLoss:
    """Return a spec's loss on some problems, by its kernel where that can be had."""
    return (KernelLoss if has_kernel(spec) else TorchLoss)(spec, tokens_1TB)


class Pool:
    """The plain loss of a spec on some problems, for one θ [P], which is read in float32.

    By the engine, to the same bits on every machine; where it cannot be had, by torch.
    """

    def __init__(self, spec: Spec, tokens_1TB: Tensor, cost: Cost):
        self.spec, self.tokens, self.cost = spec, tokens_1TB, cost
        self.size = tokens_1TB.shape[-1]
        self.problems = loss_of(spec, tokens_1TB)

    def slope(self, theta_P: Array) -> tuple[float, Array]:
        """Return the mean loss and its gradient [P], float32."""
        self.cost.problems += 2 * self.size
        return self.problems.slope(theta_P.astype(np.float32))

    def curvature(self, theta_P: Array) -> Array:
        """Return the Gauss-Newton matrix [P, P] of the mean loss, Jᵀ (diag p − p pᵀ) J (Schraudolph 2002).

        J is had by differences.
        """
        self.cost.problems += 2 * len(theta_P) * self.size
        parts = (loss_of(self.spec, part) for part in self.tokens.split(CHUNK, dim=-1))
        sums = [_curvature(part, theta_P.astype(np.float32)) for part in parts]
        return total(np.stack(sums, -1)) / (self.size * self.spec.answers)


def _curvature(part: KernelLoss | TorchLoss, theta_P: Array) -> Array:
    """Return the sum of Jᵀ (diag p − p pᵀ) J over problems and answers [P, P]."""
    logits_AVB = part.logits(theta_P).astype(float)
    power_AVB = exp(logits_AVB - logits_AVB.max(1, keepdims=True))
    p_AVB = power_AVB / total(np.moveaxis(power_AVB, 1, -1))[:, None]
    apart_PP = np.diag(STEP * np.maximum(np.abs(theta_P), np.float32(LEAST_NUMBER)))
    rows = []
    for n, apart_P in enumerate(apart_PP):
        ahead_P, behind_P = theta_P + apart_P, theta_P - apart_P
        rise_AVB = part.logits(ahead_P).astype(float) - part.logits(behind_P)
        slope_AVB = rise_AVB / (float(ahead_P[n]) - float(behind_P[n]))
        mean_AB = total(np.moveaxis(slope_AVB * p_AVB, 1, -1))
        rows.append(((slope_AVB - mean_AB[:, None]) * np.sqrt(p_AVB)).ravel())
    return gram(np.stack(rows))


def wrong_pairs(spec: Spec, theta_P: Tensor, pairs: Pairs, cost: Cost) -> Pairs:
    """Return the pairs that θ [P] adds wrongly."""
    tokens = tokens_from(spec, pairs)
    cost.problems += len(pairs)
    with torch.no_grad():
        if has_kernel(spec):
            wrong_B = is_wrong(spec, theta_P.float().numpy(), tokens[0])
        else:
            logits = spec.forward(theta_P[None], tokens[:, :-1], first=spec.prompt - 1)
            (wrong_B,) = hard_examples.is_wrong(logits, tokens[:, spec.prompt :])
    return [pairs[n] for n in wrong_B.nonzero().flatten().tolist()]
