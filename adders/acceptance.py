"""What a set of ties must get right to be accepted: problems of our own, none of `verify`'s, or all pairs.

Axes: P parameters of a base.
"""

from functools import cached_property
from math import exp, log1p

import torch
from torch import Tensor

from adders.proof.prover import prove
from adders.proof.rounding import ANY
from model.adderboard import DIGITS, carry_pairs
from model.spec import Spec
from model.tied import Tied, project, untied
from model.verdict import PROVED
from trainer import Recipe
from trainer.bank.bank import backend_of
from trainer.data.problems import sample
from trainer.engine.native import EngineBackend
from trainer.engine.torch_backend import TorchBackend
from trainer.step import step

STRATUM = 400  # problems for each length of the longest run of carries
UNIFORM = 50_000  # problems without regard to carries
OWN_SEED = 46_000_046  # their data seed, which trains nothing
LIMIT_S = 120  # of a proof


class AcceptanceSet:
    """The selection problems, and 54,400 others, for θ of one base."""

    def __init__(self, base: Spec):
        self.base = base

    def errors(self, theta_P: Tensor) -> int:
        """Return the number of problems that θ [P] adds wrongly."""
        count = 0
        for tokens in (self.backend.problems, self.strata):
            exact = self.backend.evaluate(theta_P[None], tokens)["exact"]
            count += round((1 - float(exact)) * tokens.shape[-1])
        return count

    def loss(self, theta_P: Tensor) -> float:
        """Return the loss of θ [P] on the selection problems."""
        return float(self.backend.evaluate(theta_P[None])["loss"])

    @property
    def size(self) -> int:
        return int(self.backend.problems.shape[-1] + self.strata.shape[-1])

    @cached_property
    def backend(self) -> EngineBackend | TorchBackend:
        """What evaluates the base, compiled."""
        return backend_of(self.base, Recipe(), "cpu", compiled=True)

    @cached_property
    def strata(self) -> Tensor:
        """Uniform problems, and some for each length of the longest run of carries."""
        pairs = list[tuple[int, int]]()
        for run in range(DIGITS + 1):
            pairs += carry_pairs(run, STRATUM, "of descents")
        stratified = torch.tensor(pairs, dtype=torch.float64).T[:, None]
        seed, step_, digits = (torch.tensor([n]) for n in (OWN_SEED, 1, DIGITS))
        uniform = torch.stack(sample(seed, step_, digits, torch.zeros(1), UNIFORM))
        return step.tokens_of(self.base, *torch.cat([stratified, uniform], dim=2))


def worst_loss(spec: Spec, theta_P: Tensor, level: str) -> float | None:
    """Return the loss at the worst of all pairs, log(1 + exp(-margin)), of a θ [P] that is proved at `level`.

    None of one that is not. Raises ValueError for a family that proofs do not know.
    """
    machine = ANY if level == "any" else None  # what holds on any machine holds here
    proof = prove(spec, theta_P, machine, limit_s=LIMIT_S)
    return log1p(exp(-proof.margin)) if proof.verdict == PROVED else None


def base_theta(spec: Spec, theta_P: Tensor) -> Tensor:
    """Return θ of the base of a spec, from θ [P] of the spec."""
    return untied(spec, theta_P)[1]


def own_theta(spec: Spec, theta_P: Tensor) -> Tensor:
    """Return θ of a spec, from θ [P] of its base."""
    return project(spec.ties, theta_P[None])[0] if isinstance(spec, Tied) else theta_P
