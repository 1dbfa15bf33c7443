"""Problems to finish a θ on: drawn here, apart from AdderBoard's and from those that judge it.

Uniform pairs; pairs with a run of carries of each length; pairs of numbers of 2 to 10 digits; and a θ's own
errors among fresh ones. Of one digit, as in most of AdderBoard's edge cases, there are none.

Axes: S seed, P parameters, B problem, A answer position, V vocabulary, N entries of logits.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.adderboard import Pairs, carry_pairs
from model.spec import Spec
from trainer.data import hard_examples
from trainer.data.problems import DIGITS
from trainer.engine.build import missing_to_build
from trainer.engine.kernel import flat, is_wrong, loss_and_gradient
from trainer.engine.native import blocks
from trainer.step import step
from trainer.step.step import tokens_of

CHUNK = 512  # problems at once: memory
FORWARDS = threading.Lock()
"""Serialises forward-mode differentiation: PyTorch keeps one nesting level per process."""


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


class Pool:
    """The plain loss of a spec on some problems, for one θ [P]."""

    def __init__(self, spec: Spec, tokens_1TB: Tensor, cost: Cost):
        self.spec, self.tokens, self.cost = spec, tokens_1TB, cost
        self.kernel, self.blocks = has_kernel(spec), blocks(tokens_1TB)

    @property
    def size(self) -> int:
        return self.tokens.shape[-1]

    @torch.no_grad()
    def loss(self, theta_P: Tensor) -> float:
        """Return the mean loss."""
        self.cost.problems += self.size
        return float(self._mean(theta_P))

    def slope(self, theta_P: Tensor) -> tuple[float, Tensor]:
        """Return the mean loss and its gradient [P], float64; by the kernel, where there is one, float32 inside."""
        if self.kernel:
            return slopes([self], theta_P[None])[0]
        self.cost.problems += 2 * self.size
        parameter_P = theta_P.detach().double().requires_grad_()
        mean = self._mean(parameter_P)
        (grad_P,) = torch.autograd.grad(mean, parameter_P)
        return float(mean.detach()), grad_P

    def curvature(self, theta_P: Tensor) -> Tensor:
        """Return the Gauss-Newton matrix [P, P] of the mean loss, Jᵀ (diag p − p pᵀ) J (Schraudolph 2002)."""
        self.cost.problems += len(theta_P) * self.size
        one_PP = torch.eye(len(theta_P)).to(theta_P)
        total_PP = torch.zeros_like(one_PP)
        for part in self._parts():

            def along(one_P: Tensor, part: Tensor = part) -> Tensor:
                tangent: Tensor = torch.func.jvp(lambda t: self._logits(t, part), (theta_P,), (one_P,))[1]
                return tangent

            p_VAB = self._logits(theta_P, part).softmax(0)
            with FORWARDS:
                slope_PVAB = torch.func.vmap(along)(one_PP)
            apart_PVAB = slope_PVAB - (slope_PVAB * p_VAB).sum(1, keepdim=True)
            rows_PN = (apart_PVAB * p_VAB.sqrt()).flatten(1)
            total_PP = total_PP + rows_PN @ rows_PN.T
        return total_PP / (self.size * self.spec.answers)

    def _parts(self) -> Iterator[Tensor]:
        return iter(self.tokens.split(CHUNK, dim=-1))

    def _logits(self, theta_P: Tensor, tokens_1TB: Tensor) -> Tensor:
        logits = self.spec.forward(theta_P[None], tokens_1TB[:, :-1], first=self.spec.prompt - 1)
        return torch.stack(list(torch.broadcast_tensors(*logits)))[:, 0]

    def _mean(self, theta_P: Tensor) -> Tensor:
        parts = [step.loss(self.spec, theta_P[None], part).sum() * part.shape[-1] for part in self._parts()]
        mean: Tensor = torch.stack(parts).sum() / self.size
        return mean


def slopes(pools: Sequence[Pool], theta_SP: Tensor) -> list[tuple[float, Tensor]]:
    """Return `Pool.slope` of each pool, all of one spec, at its own θ: to the same bits, with one pass of `expand`."""
    spec, parameter_SP = pools[0].spec, theta_SP.detach().double().requires_grad_()
    wide_SN = flat(spec, parameter_SP).float()
    both = [
        loss_and_gradient(spec, wide_N, pool.blocks, pool.size) for pool, wide_N in zip(pools, wide_SN, strict=True)
    ]
    for pool in pools:
        pool.cost.problems += 2 * pool.size
    (grad_SP,) = torch.autograd.grad(wide_SN, parameter_SP, torch.stack([gradient_N for _, gradient_N in both]))
    return [(mean, grad_P) for (mean, _), grad_P in zip(both, grad_SP, strict=True)]


def wrong_pairs(spec: Spec, theta_P: Tensor, pairs: Pairs, cost: Cost) -> Pairs:
    """Return the pairs that θ [P] adds wrongly."""
    tokens = tokens_from(spec, pairs)
    cost.problems += len(pairs)
    with torch.no_grad():
        if has_kernel(spec):
            wrong_B = is_wrong(spec, flat(spec, theta_P[None])[0].float(), tokens[0])
        else:
            logits = spec.forward(theta_P[None], tokens[:, :-1], first=spec.prompt - 1)
            (wrong_B,) = hard_examples.is_wrong(logits, tokens[:, spec.prompt :])
    return [pairs[n] for n in wrong_B.nonzero().flatten().tolist()]
