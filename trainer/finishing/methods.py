"""The ways to finish: each takes a θ [P] and a task, and gives another θ. Nothing is judged here.

Axes: P parameters, K candidate of a generation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.adderboard import Pairs
from model.spec import Spec
from trainer.bank import Bank
from trainer.finishing.pool import Cost, Pool, drawn, errors, tokens_from
from trainer.native import Native
from trainer.programs import Programs
from trainer.recipe import Pair, Recipe, Seed

FRESH, MOST_ERRORS = 4_096, 2_048
SEARCHED = 16_384  # problems among which a θ's own errors are looked for


@dataclass
class Task:
    """What a turn of a method works on. `seed` and `turn` name its problems."""

    spec: Spec
    programs: Native | Programs
    seed: int
    turn: int
    cost: Cost

    def own_errors(self, theta_P: Tensor) -> Pairs:
        """θ's errors among fresh problems."""
        found = drawn(self.seed, -1 - self.turn, SEARCHED)
        return errors(self.spec, theta_P.float(), found, self.cost)[:MOST_ERRORS]

    def pool(self, theta_P: Tensor, fresh: int = FRESH, most: int = MOST_ERRORS) -> Pool:
        """Fresh problems and θ's own errors."""
        pairs = drawn(self.seed, self.turn, fresh) + self.own_errors(theta_P)[:most]
        return Pool(self.spec, tokens_from(self.spec, pairs), self.cost)


def train(task: Task, theta_P: Tensor) -> Tensor:
    """Go on training as before, without weight decay and at a low rate: what the others are to beat.

    The carry kinds of which AdderBoard's edge cases are made are left out.
    """
    steps = 10_000
    recipe = Recipe(
        steps=steps, eval_every=steps, lr=0.005, lr_floor=0.01, warmup=200, weight_decay=0.0, curriculum=(),
        carry_shares=((0, 0.2, 0.0, 0.2, 0.0),), hold=steps,
    )  # fmt: skip
    start = tuple(theta_P.float().tolist())
    pair = Pair(recipe, Seed(0, 2_000_000_000 + 1_000 * (task.seed % 1_000) + task.turn), start)
    bank = Bank(task.spec, [pair], hopeless=None)
    while bank.advance():
        pass
    task.cost.problems += 3 * steps * recipe.batch
    return bank.state["theta"][0]


def lbfgs(task: Task, theta_P: Tensor) -> Tensor:
    """L-BFGS (Byrd, Lu, Nocedal and Zhu 1995; SciPy's) on fresh problems and the θ's own errors."""
    from scipy.optimize import minimize

    pool = task.pool(theta_P)

    def slope(x: Any) -> tuple[float, Any]:
        loss, grad_P = pool.slope(torch.from_numpy(x))
        return loss, grad_P.numpy()

    asked = {"maxiter": 1_000, "maxcor": 40, "ftol": 0.0, "gtol": 1e-9}
    found = minimize(slope, theta_P.double().numpy(), jac=True, method="L-BFGS-B", options=asked)
    return torch.from_numpy(found.x)


def levenberg_marquardt(task: Task, theta_P: Tensor, until: float = 0.0) -> Tensor:
    """Damped Gauss-Newton steps on the whole pool (Marquardt 1963; Schraudolph 2002), to a loss `until`."""
    return damped(task.pool(theta_P, FRESH // 4, FRESH // 8), theta_P.double(), until=until)


@dataclass(frozen=True)
class Pull:
    """½ w θᵀ A θ beside the loss: w begins at `first` and grows by a factor a step."""

    by_PP: Tensor
    first: float
    growth: float


def damped(
    pool: Pool, theta_P: Tensor, steps: int = 20, until: float = 0.0, pull: Pull | None = None
) -> Tensor:
    """Damped Gauss-Newton steps; without a pull until one is no gain, with one all of them."""
    damping, by_PP = 1e-3, pull.by_PP if pull else torch.zeros(()).double()
    for n in range(steps):
        weight = pull.first * pull.growth**n if pull else 0.0

        def worth(at_P: Tensor, weight: float = weight) -> float:
            return pool.loss(at_P) + (weight * float(at_P @ by_PP @ at_P) / 2 if weight else 0.0)

        loss, (_, grad_P) = worth(theta_P), pool.slope(theta_P)
        curved_PP = pool.curvature(theta_P)
        if pull:
            grad_P, curved_PP = grad_P + weight * by_PP @ theta_P, curved_PP + weight * by_PP
        scale = torch.diag(curved_PP.diagonal() + 1e-12)
        for _ in range(8):
            new_P = theta_P - torch.linalg.solve(curved_PP + damping * scale, grad_P)
            new = worth(new_P)
            if new < loss:
                break
            damping *= 4
        else:
            if pull is None:
                break
            damping = 1.0
            continue
        gained, theta_P, loss, damping = loss - new, new_P, new, damping / 3
        if pull is None and (gained < 1e-4 * loss or loss <= until):
            break
    return theta_P


def targeted(task: Task, theta_P: Tensor) -> Tensor:
    """Adam on batches of which half are the θ's own errors, looked for again and again."""
    steps, again, batch, rate = 3_000, 500, 256, 0.001
    rng, theta_P = random.Random(f"targeted {task.seed} {task.turn}"), theta_P.float().clone()
    parameter = torch.nn.Parameter(theta_P)
    adam = torch.optim.Adam([parameter], lr=rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    fresh, own = drawn(task.seed, task.turn, 16_384), list[tuple[int, int]]()
    for n in range(steps):
        if n % again == 0:
            own = task.own_errors(parameter.detach()) or fresh
        pairs = rng.choices(own, k=batch // 2) + rng.choices(fresh, k=batch // 2)
        _, grad_P = Pool(task.spec, tokens_from(task.spec, pairs), task.cost).slope(parameter.detach())
        parameter.grad = grad_P.float()
        adam.step()
        falling.step()
    return parameter.detach()


def cma_es(task: Task, theta_P: Tensor) -> Tensor:
    """CMA-ES (Hansen 2016; the library `cmaes`) on the share of wrong answers and the loss.

    Each entry's first deviation is by how far it can move before the loss shows it: the curvature's.
    """
    import numpy as np
    from cmaes import CMA

    pool, centre_P = task.pool(theta_P), theta_P.double()
    seen = Pool(task.spec, pool.tokens[..., :1_024], task.cost)
    bent_P = seen.curvature(centre_P).diagonal()
    reach_P = (bent_P + 1e-3 * bent_P.max()).rsqrt()
    search = CMA(np.zeros(len(theta_P)), 0.01, seed=task.seed % 2**31, population_size=24)
    best_P, least = theta_P, float("inf")
    for _ in range(400):
        asked = [search.ask() for _ in range(search.population_size)]
        theta_KP = (centre_P + torch.tensor(np.array(asked)) * reach_P).float()
        its = task.programs.evaluate(theta_KP, pool.tokens)
        task.cost.problems += len(asked) * pool.size
        worth = (1 - its["exact"] + its["loss"]).nan_to_num(1e9, 1e9).tolist()
        search.tell(list(zip(asked, worth, strict=True)))
        if min(worth) < least:
            best_P, least = theta_KP[worth.index(min(worth))], min(worth)
        if search.should_stop():
            break
    return best_P
