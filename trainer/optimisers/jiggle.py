"""Jiggle: θ is perturbed, settles, and the best of some such and of none is kept. At evaluations alone.

MicroAdder's 226p was trained with it (its training code). There the candidates settle on the same problems
and their steps are not counted; here a step is a step, and each settles on the problems that follow.

Axes: S slot, P parameters, M measure.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.fields import option
from trainer.fields import Group, dependent_option
from trainer.optimisers.base import Optimiser, Tensors, columns
from trainer.optimisers.noise import normal

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

SOURCE = "MicroAdder, src/train.py (226p)"
BASE, BEST, SCORE = "jiggle_base.", "jiggle_best.", "jiggle_score"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Jiggle(Group):
    jiggle_every: int = option(
        0, "distance of jiggles: perturb θ, settle, keep the best; 0 is off", unit="steps", ge=0,
        switch=True, source=SOURCE,
    )  # fmt: skip
    jiggle_settle: int = dependent_option(
        "jiggle_every", 2_000, "how long each candidate settles, and one without a perturbation before them",
        unit="steps", ge=1, source=SOURCE,
    )  # fmt: skip
    jiggle_candidates: int = dependent_option(
        "jiggle_every", 2, "how many", unit="candidates", ge=1, source=SOURCE
    )
    jiggle_strength: float = dependent_option(
        "jiggle_every", 3.0, "root mean square of a tensor's perturbation, of the tensor's own",
        unit="learning rates", ge=0.0, source=SOURCE,
    )  # fmt: skip

    @staticmethod
    def validate(recipe: Any) -> None:
        if not recipe.jiggle_every:
            return
        for name in ("jiggle_every", "jiggle_settle"):
            if (length := getattr(recipe, name)) % recipe.eval_every:
                raise ValueError(f"eval_every must divide {name}, got {recipe.eval_every} and {length}")
        if (took := (recipe.jiggle_candidates + 1) * recipe.jiggle_settle) >= recipe.jiggle_every:
            raise ValueError(
                f"jiggle_every must be above what a jiggle takes, {took} steps, got {recipe.jiggle_every}"
            )


def jiggle(inner: Optimiser) -> Optimiser:
    def kept(theta_SP: Tensor) -> Tensors:
        return {"theta": theta_SP, **inner.fresh(theta_SP)}

    def aside(theta_SP: Tensor) -> Tensors:
        copies = {p + name: t.clone() for p in (BASE, BEST) for name, t in kept(theta_SP).items()}
        return {**inner.aside(theta_SP), **copies, SCORE: theta_SP.new_zeros(len(theta_SP))}

    return dataclasses.replace(inner, aside=aside, settle=settle)


def settle(spec: Spec, state: Tensors, now: Tensors, measures_SM: Tensor) -> Tensors:
    """What becomes of slots after an evaluation at which a jiggle begins or a candidate has settled."""
    import torch

    names = [name.removeprefix(BASE) for name in state if name.startswith(BASE)]
    since_S, rest_S = state["step"] % now["jiggle_every"], now["jiggle_settle"]
    last_S = now["jiggle_candidates"] + 1
    turn_S = torch.where(
        (state["step"] >= now["jiggle_every"]) & (since_S % rest_S == 0), since_S // rest_S, -1
    )
    begins_S, settled_S = turn_S == 0, (turn_S >= 1) & (turn_S <= last_S)
    score_S = measures_SM[:, 0] + measures_SM[:, 1]
    better_S = settled_S & ((turn_S == 1) | (score_S > state[SCORE]))
    base = {n: _where(begins_S, state[n], state[BASE + n]) for n in names}
    best = {n: _where(better_S, state[n], state[BEST + n]) for n in names}
    shaken = {**base, "theta": perturbed(spec, base["theta"], state, now)}
    on = {n: _where(settled_S & (turn_S < last_S), shaken[n], state[n]) for n in names}
    new = {n: _where(turn_S == last_S, best[n], on[n]) for n in names}
    new |= {BASE + n: t for n, t in base.items()} | {BEST + n: t for n, t in best.items()}
    return {**new, SCORE: torch.where(better_S, score_S, state[SCORE])}


def perturbed(spec: Spec, theta_SP: Tensor, state: Tensors, now: Tensors) -> Tensor:
    """θ with noise on each tensor, of `jiggle_strength` learning rates of its root mean square."""
    import torch

    from trainer.data.problems import uniforms

    strength, lr = columns(now, "jiggle_strength", "lr")
    size_SP = (strength * lr).expand_as(theta_SP).double()
    noise_SP = normal(uniforms(state["data_seed"], state["step"], 2 * theta_SP.shape[1]).double())
    tensors = (spec.layout.split(t).values() for t in (theta_SP.double(), noise_SP, size_SP))
    parts = []
    for theta, noise, size in zip(*tensors, strict=True):
        theta, noise, size = (t.flatten(1) for t in (theta, noise, size))
        parts.append(theta + size * noise * (theta.square().mean(1) / noise.square().mean(1)).sqrt()[:, None])
    return torch.cat(parts, dim=1).to(theta_SP)


def _where(chosen_S: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return one.where(chosen_S.reshape(-1, *[1] * (one.dim() - 1)), other)
