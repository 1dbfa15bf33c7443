"""When a seed learned carries of each length: it is trained again, and its θ are asked at every evaluation.

Axes: S evaluation, P numbers, L longest run of carries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from model.adderboard import carry_pairs
from search.run.rerun import read_request
from search.run.worker import bank_of
from trainer import Bank
from trainer.step import step

if TYPE_CHECKING:
    from model import Spec
    from trainer.checkpoints.checkpoint import Checkpoint

RUNS = 11
PAIRS = 100
LEARNED = 0.99
SLOTS = 32
"""θ that are asked at once: memory."""


def carries(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return shares of right sums by evaluation and run of carries, as plain values, and the step of each run from
    which on LEARNED of its sums are right, None if never. Raises ValueError if the seed cannot be trained again.
    """
    request = read_request(checkpoint)
    in_stages = request.stages or request.configuration.recipe.stages
    if in_stages or request.configuration.trained != checkpoint.spec:
        raise ValueError("its seed was trained in several stages, or into ties")
    bank = bank_of(
        request.configuration.trained, [request.configuration.pair(request.seed)], request.slots, request.resources,
        "cpu",
    )  # fmt: skip
    assert isinstance(bank, Bank)
    thetas, steps = [], []
    while bank.result(0).steps < request.step and bank.advance():
        thetas.append(bank.state["theta"][0].clone())
        steps.append(bank.result(0).steps)
    shares_SL = right_shares(checkpoint.spec, torch.stack(thetas))
    lasting_SL = (shares_SL >= LEARNED).flip(0).cumprod(0).flip(0)
    first_L = [int(column.argmax()) if column.any() else None for column in lasting_SL.T]
    return {
        "steps": steps,
        "right": [[round(n, 3) for n in row] for row in shares_SL.tolist()],
        "learned": [None if n is None else steps[n] for n in first_L],
    }


def right_shares(spec: Spec, theta_SP: Tensor) -> Tensor:
    """Return the share of right sums by run of carries [S, L], on pairs that `verify` does not ask."""
    columns = []
    for run in range(RUNS):
        a, b = zip(*carry_pairs(run, PAIRS, "explain"), strict=True)
        tokens = step.tokens_of(spec, *(torch.tensor([n], dtype=torch.float64) for n in (a, b)))
        with torch.no_grad():
            parts = [step.evaluate(spec, part_SP, tokens)["exact"] for part_SP in theta_SP.split(SLOTS)]
        columns.append(torch.cat(parts))
    return torch.stack(columns, dim=1)
