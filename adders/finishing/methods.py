"""Methods of finishing: each takes a task and a θ [P] and returns another θ, without judging it.

Axes: P parameters, K candidate of a generation.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

from adders.curvature.minimise import Task
from adders.curvature.pool import Pool, draw_problems, tokens_from
from trainer.bank.bank import Bank, backend_of
from trainer.recipe import Pair, Recipe, Seed


def train(task: Task, theta_P: Tensor) -> Tensor:
    """Train on, without weight decay and at a low rate: the baseline.

    The carry kinds of which AdderBoard's edge cases are made are left out, as these judge the result.
    """
    steps = 10_000
    recipe = Recipe(
        steps=steps,
        eval_every=steps,
        lr=0.005,
        lr_floor=0.01,
        warmup=200,
        weight_decay=0.0,
        curriculum=(),
        carry_shares=((0, 0.2, 0.0, 0.2, 0.0),),
        hold=steps,
    )
    start = tuple(theta_P.float().tolist())
    data_seed = 2_000_000_000 + 1_000 * (task.seed % 1_000) + task.turn
    bank = Bank(task.spec, [Pair(recipe, Seed(0, data_seed), start)])
    while bank.advance():
        pass
    # a step goes forwards once, and backwards at twice the cost
    task.cost.problems += 3 * steps * recipe.batch
    return bank.state["theta"][0]


def targeted(task: Task, theta_P: Tensor) -> Tensor:
    """Run Adam on batches of which half are θ's own errors, searched anew every 500 steps."""
    steps = 3_000
    again = 500
    half = 128
    rng = random.Random(f"targeted {task.seed} {task.turn}")
    parameter = torch.nn.Parameter(theta_P.float().clone())
    adam = torch.optim.Adam([parameter], lr=0.001)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    fresh = draw_problems(task.seed, task.turn, 16_384)
    errors = fresh
    for n in range(steps):
        if n % again == 0:
            errors = task.own_errors(parameter.detach()) or fresh
        pairs = rng.choices(errors, k=half) + rng.choices(fresh, k=half)
        pool = Pool(task.spec, tokens_from(task.spec, pairs), task.cost)
        _, grad_P = pool.slope(parameter.detach().numpy())
        parameter.grad = torch.from_numpy(grad_P).float()
        adam.step()
        falling.step()
    return parameter.detach()


def cma_es(task: Task, theta_P: Tensor) -> Tensor:
    """Run CMA-ES (Hansen 2016; the library `cmaes`) on the share of wrong answers and the loss.

    The curvature sets each entry's first deviation: how far it can move before the loss shows it.
    """
    import numpy as np
    from cmaes import CMA

    pool = task.pool(theta_P)
    centre_P = theta_P.double()
    # a thousand problems tell curvatures well enough, and each costs two passes per parameter
    seen = Pool(task.spec, pool.tokens[..., :1_024], task.cost)
    bent_P = torch.from_numpy(seen.curvature(centre_P.numpy()).diagonal().copy())
    reach_P = (bent_P + 1e-3 * bent_P.max()).rsqrt()
    backend = backend_of(task.spec, Recipe(), "cpu", compiled=True)
    search = CMA(np.zeros(len(theta_P)), 0.01, seed=task.seed % 2**31, population_size=24)
    best_P = theta_P
    least = float("inf")
    for _ in range(400):
        proposals = [search.ask() for _ in range(search.population_size)]
        theta_KP = (centre_P + torch.tensor(np.array(proposals)) * reach_P).float()
        measured = backend.evaluate(theta_KP, pool.tokens)
        task.cost.problems += len(proposals) * pool.size
        # the library sorts by this, and a NaN would have no place
        worth = (1 - measured["exact"] + measured["loss"]).nan_to_num(1e9, 1e9).tolist()
        search.tell(list(zip(proposals, worth, strict=True)))
        if min(worth) < least:
            least = min(worth)
            best_P = theta_KP[worth.index(least)]
        if search.should_stop():
            break
    return best_P
