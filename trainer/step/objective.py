"""The loss in torch: cross-entropy, or with a teacher its distillation (trainer/recipe/teacher.py).

The engine's arithmetic is in model/cpp/loss.h.

Axes: S slot, T position, B problem, A answer position, V vocabulary, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.spec import Spec
from trainer.recipe.teacher import Teacher, teacher_of
from trainer.step.schedule import Hyper


def answer_logits(spec: Spec, theta_SP: Tensor, tokens_STB: Tensor) -> Sequence[Tensor]:
    """Return the logits of the answer positions, V tensors [S, A, B], teacher-forced: each sees the right tokens."""
    read_STB = tokens_STB[:, :-1]  # nothing comes after the last token
    return spec.forward(theta_SP, read_STB, first=spec.prompt - 1)


def cross_entropy(logits_V: Sequence[Tensor], target_SAB: Tensor) -> Tensor:
    """Return the cross-entropy [S, A, B] of V logit tensors [S, A, B], or of one [V, S, A, B]."""
    if isinstance(logits_V, Tensor):
        target_1SAB = target_SAB.long()[None].expand(1, *logits_V.shape[1:])
        return logits_V.logsumexp(0) - logits_V.gather(0, target_1SAB)[0]
    # Written out, in one order: torch.logsumexp promises none.
    largest = logits_V[0]
    right = logits_V[0]
    for v, logit in enumerate(logits_V[1:], start=1):
        largest = torch.maximum(largest, logit)
        right = torch.where(target_SAB == v, logit, right)
    largest = largest.detach()  # it cancels, so that no gradient need pass through it
    total = torch.exp(logits_V[0] - largest)
    for logit in logits_V[1:]:
        total = total + torch.exp(logit - largest)
    return torch.log(total) + largest - right


@dataclass(frozen=True)
class Objective:
    """A step's loss. A program has the teacher, a seed the numbers, in `hyper`."""

    teacher: Teacher | None = None

    @classmethod
    def of(cls, recipe: Any) -> Objective:
        """Return a recipe's objective."""
        return cls(teacher_of(recipe.teacher)) if recipe.teacher else PLAIN

    def __call__(self, spec: Spec, theta_SP: Tensor, tokens_STB: Tensor, hyper: Hyper) -> Tensor:
        """Return the mean loss [S] over the answer and, where the spec has one, the end token; teacher-forced."""
        logits = answer_logits(spec, theta_SP, tokens_STB)
        loss_SAB = cross_entropy(logits, tokens_STB[:, spec.prompt :])
        if self.teacher:
            apart_SAB = self._from_teacher(logits, theta_SP, tokens_STB, hyper)
            alpha = hyper["distill_alpha"][:, None, None]
            loss_SAB = (1 - alpha) * loss_SAB + alpha * apart_SAB
        return loss_SAB.mean((1, 2))

    def _from_teacher(
        self,
        logits_V: Sequence[Tensor],
        theta_SP: Tensor,
        tokens_STB: Tensor,
        hyper: Hyper,
    ) -> Tensor:
        """Return T² KL(teacher, seed) of each answer [S, A, B], both at the temperature T."""
        assert self.teacher
        spec = self.teacher.spec
        # Its θ is the same for all slots, and is no part of what is trained.
        heat = hyper["distill_temperature"][:, None, None]
        teacher_SP = theta_SP.new_tensor(self.teacher.theta).expand(len(theta_SP), -1)
        taught = answer_logits(spec, teacher_SP, tokens_STB)

        def log_shares(logits: Sequence[Tensor]) -> Tensor:
            """Return the logarithms of softmax [V, S, A, B] at the temperature."""
            stacked = torch.stack(torch.broadcast_tensors(*logits))
            return (stacked / heat).log_softmax(0)

        log_s = log_shares(logits_V)
        log_r = log_shares(taught)
        apart = (log_r.exp() * (log_r - log_s)).sum(0)
        return heat * heat * apart  # T², by which gradients are as large at any temperature (Hinton et al., section 2)


PLAIN = Objective()
