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

from adders.curvature.arithmetic import exp, gram, total
from model.adderboard import DIGITS, Pairs, carry_pairs
from model.spec import Spec
from trainer.data import hard_examples
from trainer.engine.kernel import KernelLoss, is_wrong
from trainer.engine.native import Array, has_kernel
from trainer.step import step
from trainer.step.objective import answer_logits
from trainer.step.step import tokens_of

CHUNK = 64
"""Problems whose Jacobian is made at once: it stays in the cache."""
STEP = np.float32(2**-10)
"""Step of a difference, as a share of each number."""
LEAST_NUMBER = 0.05
"""Numbers nearer to 0 get this one's step."""


@dataclass
class Cost:
    """Problems that a method has passed through the model, forwards, backwards or as a tangent."""

    problems: int = 0


def draw_problems(seed: int, turn: int, count: int) -> Pairs:
    """Draw about `count` pairs: half uniform, a quarter with runs of carries, a quarter of shorter numbers.

    seed, turn: name the pairs.
    """
    # `Random` reads a text's bytes; a hash, as of a tuple, would differ from process to process
    rng = random.Random(f"finish {seed} {turn}")
    end = 10**DIGITS
    uniform = [(rng.randrange(end), rng.randrange(end)) for _ in range(count // 2)]
    short = [(_number(rng), _number(rng)) for _ in range(count // 4)]
    each = -(-count // 4 // (DIGITS + 1))
    runs = list[tuple[int, int]]()
    for length in range(DIGITS + 1):
        runs += carry_pairs(length, each, f"to finish {seed} {turn}")
    # numbers of one digit are AdderBoard's edge cases
    return uniform + short + [pair for pair in runs if min(pair) > 9]


def _number(rng: random.Random) -> int:
    """Draw a number of 2 to 10 digits, each length as likely."""
    digits = rng.randint(2, DIGITS)
    return rng.randrange(10 ** (digits - 1), 10**digits)


def tokens_from(spec: Spec, pairs: Pairs) -> Tensor:
    """Return the tokens [1, T + 1, B] of pairs."""
    a_1B, b_1B = torch.tensor(pairs, dtype=torch.float64).T[:, None]
    return tokens_of(spec, a_1B, b_1B)


class TorchLoss:
    """The same as `KernelLoss` by torch, in float64."""

    def __init__(self, spec: Spec, tokens_1TB: Tensor):
        self.spec = spec
        self.tokens = tokens_1TB

    def slope(self, theta_P: Array) -> tuple[float, Array]:
        """Return the mean loss and its gradient [P]."""
        parameter_P = torch.from_numpy(theta_P).double().requires_grad_()
        mean = step.loss(self.spec, parameter_P[None], self.tokens)
        (gradient_P,) = torch.autograd.grad(mean, parameter_P)
        return float(mean.detach()), gradient_P.numpy()

    @torch.no_grad()
    def logits(self, theta_P: Array) -> Array:
        """Return the logits at the answer's positions [A, V, B]."""
        theta_1P = torch.from_numpy(theta_P).double()[None]
        logits = answer_logits(self.spec, theta_1P, self.tokens)
        logits_V1AB = torch.stack(torch.broadcast_tensors(*logits))
        return logits_V1AB[:, 0].movedim(0, 1).numpy()


def loss_of(spec: Spec, tokens_1TB: Tensor) -> KernelLoss | TorchLoss:
    """Return a spec's loss on some problems, by its kernel where that can be had."""
    kind = KernelLoss if has_kernel(spec) else TorchLoss
    return kind(spec, tokens_1TB)


class Pool:
    """The plain loss of a spec on some problems, for one θ [P], which is read in float32.

    By the engine, to the same bits on every machine; where it cannot be had, by torch.
    """

    def __init__(self, spec: Spec, tokens_1TB: Tensor, cost: Cost):
        self.spec = spec
        self.tokens = tokens_1TB
        self.cost = cost
        self.size = tokens_1TB.shape[-1]
        self.problems = loss_of(spec, tokens_1TB)

    def slope(self, theta_P: Array) -> tuple[float, Array]:
        """Return the mean loss and its gradient [P], float32."""
        self.cost.problems += 2 * self.size
        return self.problems.slope(theta_P.astype(np.float32))

    def curvature(self, theta_P: Array) -> Array:
        """Return the Gauss-Newton matrix [P, P] of the mean loss, Jᵀ (diag p − p pᵀ) J (Schraudolph 2002).

        J, the logits' Jacobian, is approximated by central differences.
        """
        self.cost.problems += 2 * len(theta_P) * self.size  # each number moved up and down
        # The model reads float32, so differences are taken between such numbers.
        near_P = theta_P.astype(np.float32)
        sums = []
        for tokens_1TB in self.tokens.split(CHUNK, dim=-1):
            part = loss_of(self.spec, tokens_1TB)
            sums.append(_curvature(part, near_P))
        return total(np.stack(sums, -1)) / (self.size * self.spec.answers)


def _curvature(part: KernelLoss | TorchLoss, theta_P: Array) -> Array:
    """Return the sum of Jᵀ (diag p − p pᵀ) J over problems and answers [P, P]."""
    logits_AVB = part.logits(theta_P).astype(float)
    # softmax, by sums in an order of our own: the same bits on every machine
    power_AVB = exp(logits_AVB - logits_AVB.max(1, keepdims=True))
    sum_AB = total(np.moveaxis(power_AVB, 1, -1))
    p_AVB = power_AVB / sum_AB[:, None]
    root_AVB = np.sqrt(p_AVB)

    size_P = np.maximum(np.abs(theta_P), np.float32(LEAST_NUMBER))
    apart_PP = np.diag(STEP * size_P)
    # diag p − p pᵀ is the covariance under p, so a row is the Jacobian's, centred and weighted by √p
    rows = []
    for n, apart_P in enumerate(apart_PP):
        ahead_P = theta_P + apart_P
        behind_P = theta_P - apart_P
        rise_AVB = part.logits(ahead_P).astype(float) - part.logits(behind_P)
        run = float(ahead_P[n]) - float(behind_P[n])  # as float32 has it, not as asked
        slope_AVB = rise_AVB / run
        mean_AB = total(np.moveaxis(slope_AVB * p_AVB, 1, -1))
        centred_AVB = slope_AVB - mean_AB[:, None]
        rows.append((centred_AVB * root_AVB).ravel())
    return gram(np.stack(rows))


def wrong_pairs(spec: Spec, theta_P: Tensor, pairs: Pairs, cost: Cost) -> Pairs:
    """Return the pairs that θ [P] adds wrongly."""
    tokens = tokens_from(spec, pairs)
    cost.problems += len(pairs)
    with torch.no_grad():
        if has_kernel(spec):
            wrong_B = is_wrong(spec, theta_P.float().numpy(), tokens[0])
        else:
            logits = answer_logits(spec, theta_P[None], tokens)
            (wrong_B,) = hard_examples.is_wrong(logits, tokens[:, spec.prompt :], spec.task.answers)
    return [pairs[n] for n in wrong_B.nonzero().flatten().tolist()]
