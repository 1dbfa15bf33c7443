"""The loss in torch: cross-entropy, or what a recipe has switched on (trainer/recipe/losses.py).

The engine's arithmetic is in model/cpp/loss.h and trainer/engine/cpp/aims.h.

Axes: S slot, T position, B problem, A answer position, V vocabulary, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.spec import Spec
from trainer.data.problems import DIGITS, MARK, marked
from trainer.recipe.teacher import Teacher, teacher_of
from trainer.step.schedule import Hyper


def cross_entropy(logits_V: Sequence[Tensor], target_SAB: Tensor) -> Tensor:
    """Return the cross-entropy [S, A, B] of V logit tensors [S, A, B]."""
    largest, right = logits_V[0], logits_V[0]
    for v, logit in enumerate(logits_V[1:], start=1):
        largest = torch.maximum(largest, logit)
        right = torch.where(target_SAB == v, logit, right)
    largest = largest.detach()
    total = torch.exp(logits_V[0] - largest)
    for logit in logits_V[1:]:
        total = total + torch.exp(logit - largest)
    return torch.log(total) + largest - right


@dataclass(frozen=True)
class Objective:
    """A step's loss. A program has the parts that are on, a seed their numbers, in `hyper`.

    operands: the positions in a sequence of the digits of both numbers, units first.
    """

    on: frozenset[str] = frozenset()
    operands: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    teacher: Teacher | None = None

    @classmethod
    def of(cls, spec: Spec, recipe: Any) -> Objective:
        """Return a recipe's objective for a spec."""
        if not recipe.losses:
            return PLAIN
        teacher = teacher_of(recipe.teacher) if recipe.teacher else None
        return cls(frozenset(recipe.losses), operands_of(spec), teacher)

    def __call__(self, spec: Spec, theta_SP: Tensor, tokens_STB: Tensor, hyper: Hyper) -> Tensor:
        """Return the mean loss [S] over the answer and, where the spec has one, the end token; teacher-forced."""
        logits = spec.forward(theta_SP, tokens_STB[:, :-1], first=spec.prompt - 1)
        target_SAB = tokens_STB[:, spec.prompt :]
        if self is PLAIN:
            return cross_entropy(logits, target_SAB).mean((1, 2))
        loss_SAB = self._of_answers(logits, target_SAB, hyper)
        if self.teacher:
            apart_SAB = self._from_teacher(logits, theta_SP, tokens_STB, hyper)
            alpha = hyper["distill_alpha"][:, None, None]
            loss_SAB = (1 - alpha) * loss_SAB + alpha * apart_SAB
        loss_SB = loss_SAB.mean(1)
        return (loss_SB * self._weights(logits, tokens_STB, spec.prompt, hyper)).mean(1)

    def _of_answers(self, logits_V: Sequence[Tensor], target_SAB: Tensor, hyper: Hyper) -> Tensor:
        """Return the loss of each answer [S, A, B]."""
        log_p_VSAB = torch.stack(torch.broadcast_tensors(*logits_V)).log_softmax(0)
        is_right_VSAB = torch.stack([target_SAB == v for v in range(len(logits_V))])
        loss_SAB = -torch.where(is_right_VSAB, log_p_VSAB, 0).sum(0)
        if "label_smoothing" in self.on:
            spread = hyper["label_smoothing"][:, None, None]
            loss_SAB = (1 - spread) * loss_SAB - spread * log_p_VSAB.mean(0)
        if "focal_gamma" in self.on:
            log_missed_SAB = torch.where(is_right_VSAB, -torch.inf, log_p_VSAB).logsumexp(0)
            loss_SAB = (hyper["focal_gamma"][:, None, None] * log_missed_SAB).exp() * loss_SAB
        return loss_SAB

    def _from_teacher(
        self, logits_V: Sequence[Tensor], theta_SP: Tensor, tokens_STB: Tensor, hyper: Hyper
    ) -> Tensor:
        """Return T² KL(teacher, seed) of each answer [S, A, B], both at the temperature T."""
        assert self.teacher
        spec, heat = self.teacher.spec, hyper["distill_temperature"][:, None, None]
        teacher_SP = self.teacher.theta_1P(theta_SP).expand(len(theta_SP), -1)
        taught = spec.forward(teacher_SP, tokens_STB[:, :-1], first=spec.prompt - 1)
        log_s, log_r = (
            (torch.stack(torch.broadcast_tensors(*logits)) / heat).log_softmax(0)
            for logits in (logits_V, taught)
        )
        return heat * heat * (log_r.exp() * (log_r - log_s)).sum(0)

    def _weights(
        self, logits_V: Sequence[Tensor], tokens_STB: Tensor, prompt: int, hyper: Hyper
    ) -> Tensor | float:
        """Return the weight of each problem [S, B], 1 in the mean."""
        if not self.on & {"chain_beta", "hardest"}:
            return 1.0
        weight_SB = torch.ones_like(tokens_STB[:, 0], dtype=logits_V[0].dtype)
        if "chain_beta" in self.on:
            chain_SB = longest_run(*(tokens_STB[:, list(places)] for places in self.operands))
            weight_SB = 1 + hyper["chain_beta"][:, None] * chain_SB / DIGITS
        if "hardest" in self.on:
            plain_SB = cross_entropy([logit.detach() for logit in logits_V], tokens_STB[:, prompt:]).mean(1)
            weight_SB = torch.where(among_largest(plain_SB, hyper["hardest"]), weight_SB, 0)
        return weight_SB / weight_SB.mean(1, keepdim=True)


PLAIN = Objective()


def among_largest(loss_SB: Tensor, share_S: Tensor) -> Tensor:
    """Mark the share of each slot's problems with the largest loss [S, B]; of equal ones the first."""
    order_SB = loss_SB.sort(dim=1, descending=True, stable=True)[1]
    rank_SB = order_SB.sort(dim=1)[1]
    count_S = (share_S.double() * loss_SB.shape[1] + 0.5).floor().clamp(min=1)
    return rank_SB < count_S[:, None]


def longest_run(x_SDB: Tensor, y_SDB: Tensor) -> Tensor:
    """Return the most columns in a row that carry [S, B], of digits [S, D, B], units first."""
    run_SB = torch.zeros_like(x_SDB[:, 0])
    longest_SB = run_SB
    for d in range(x_SDB.shape[1]):
        carries_SB = x_SDB[:, d] + y_SDB[:, d] + (run_SB > 0) >= 10
        run_SB = torch.where(carries_SB, run_SB + 1, 0)
        longest_SB = torch.maximum(longest_SB, run_SB)
    return longest_SB


def operands_of(spec: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the positions in a spec's sequence of the digits of both numbers, units first."""
    tokens = marked(spec)
    first, second = (
        tuple(tokens.index(MARK + n) for n in range(begin, begin + DIGITS)) for begin in (0, DIGITS)
    )
    return first, second
