"""The programs that run in a bank: make problems, train a step, evaluate. Pure, and compiled at the edge.

Axes: S slot, K step of a block, T position, B problem, A answer position, P parameters.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from model.spec import Spec
from model.tasks import ADDITION, Columns, Task
from trainer.data.hard_examples import (
    COUNT,
    OPERANDS,
    POOL,
    is_right,
    pool_seed,
    select_errors,
    with_errors,
)
from trainer.data.problems import Kinds, sample
from trainer.optimisers.base import Optimiser
from trainer.step import schedule
from trainer.step.objective import PLAIN, Objective, answer_logits, cross_entropy
from trainer.step.schedule import Hyper

State = dict[str, Tensor]
"""A bank's slots: theta [S, P]; step, data_seed [S] (int64); wd_scale, mix_scale [S]; active [S] (bool); and
the optimiser's tensors [S, ...], by names of its own."""


def tokens_of(spec: Spec, a: Tensor, b: Tensor) -> Tensor:
    """Return whole sequences [..., T + 1, B], int32, from problems [..., B] (float64 integers)."""
    return torch.stack([t.to(torch.int32) for t in spec.tokens_of(a, b)], dim=-2)


def draw(
    state: State,
    hyper: Hyper,
    batch: int,
    block: int,
    mixed: bool = False,
    task: Task = ADDITION,
) -> tuple[Tensor, Tensor]:
    """Draw the problems of the next `block` steps of every slot: two tensors [K, S, B], float64 integers.

    batch: problems of a step. mixed: draw some of them among the slot's own errors, as `hyper` says. task: the spec's.
    """
    # The problems of several steps at once, because they depend on nothing that is trained.
    ahead_K = torch.arange(block, device=state["step"].device)
    step_KS = state["step"] + ahead_K[:, None]

    def rows(tensor: Tensor) -> Tensor:
        """Return the entry [R] for each slot at each step."""
        return tensor.expand_as(step_KS).reshape(-1)

    seeds_R = rows(state["data_seed"])
    step_R = rows(step_KS)
    if isinstance(task, Columns):
        mix_KS = schedule.carry_mix(step_KS, hyper, task) * state["mix_scale"]
        kinds = schedule.kinds(step_KS, hyper, state["mix_scale"])
        a, b = sample(
            seeds_R,
            step_R,
            rows(schedule.digits(step_KS, hyper, task)),
            rows(mix_KS),
            batch,
            rows(hyper["mixed_lengths"]),
            Kinds(*map(rows, kinds)),
            task,
        )
    else:
        a, b = task.sample(seeds_R, step_R, batch)
    if mixed:
        operands = state[OPERANDS].repeat(block, 1, 1)
        counts = state[COUNT].repeat(block)
        targeted_R = rows(hyper["targeted"])
        a, b = with_errors((a, b), (seeds_R, step_R), targeted_R, operands, counts)
    return a.unflatten(0, step_KS.shape), b.unflatten(0, step_KS.shape)


def find_hard_examples(spec: Spec, state: State, hyper: Hyper, is_wrong: Callable[[Tensor, Tensor], Tensor]) -> State:
    """Search each slot's own errors (trainer/data/hard_examples.py), among problems of its present schedule.

    is_wrong: (θ with its ties applied [S, P], tokens [S, T + 1, N]) -> marks of wrong answers [S, N].
    """
    # Another stream than training's, or the errors would be of problems that were just learnt.
    searched = {**state, "data_seed": pool_seed(state["data_seed"])}
    (a_SN,), (b_SN,) = draw(searched, hyper, POOL, 1, task=spec.task)
    read_SP = apply_ties(state["theta"], state["step"], hyper)
    wrong_SN = is_wrong(read_SP, tokens_of(spec, a_SN, b_SN))
    return select_errors(a_SN, b_SN, wrong_SN)


def loss(spec: Spec, theta_SP: Tensor, tokens_STB: Tensor) -> Tensor:
    """Return the mean cross-entropy [S] over the answer and, where the spec has one, the end token."""
    return PLAIN(spec, theta_SP, tokens_STB, {})


def apply_ties(theta_SP: Tensor, step_S: Tensor, hyper: Hyper) -> Tensor:
    """Return (1 - r) θ + r Π θ where slots have ties, which the model reads; r is the ramp at this step.

    Π makes each entry the mean of the entries of its number, with its sign: so tied entries are equal, opposite
    or zero to the bit when the ramp has ended.
    """
    if "ties" not in hyper:
        return theta_SP
    number_SP = hyper["ties"].abs()
    sign_SP = torch.sign(hyper["ties"]).to(theta_SP)
    # K numbers, from 0 on; entries that read number 0 have the sign 0, and so become 0. There are at most as many
    # numbers as entries.
    none_SK = theta_SP.new_zeros(len(theta_SP), theta_SP.shape[1] + 1)
    sums_SK = none_SK.scatter_add(1, number_SP, theta_SP * sign_SP)
    counts_SK = none_SK.scatter_add(1, number_SP, torch.ones_like(theta_SP))
    means_SK = sums_SK / counts_SK.clamp(min=1)
    r_S1 = schedule.ramp(step_S, hyper)[:, None]
    return (1 - r_S1) * theta_SP + r_S1 * sign_SP * means_SK.gather(1, number_SP)


def train_step(
    spec: Spec,
    optimiser: Optimiser,
    state: State,
    hyper: Hyper,
    tokens_STB: Tensor,
    objective: Objective = PLAIN,
) -> tuple[State, Tensor]:
    """Train every slot by one step. Return the new state and the losses [S] before it.

    tokens_STB: the problems of each slot. objective: the loss.
    """

    def total(theta_SP: Tensor) -> tuple[Tensor, Tensor]:
        read_SP = apply_ties(theta_SP, state["step"], hyper)
        loss_S = objective(spec, read_SP, tokens_STB, hyper)
        return loss_S.sum(), loss_S  # of a sum over slots each seed's gradient is its own

    def slope(theta_SP: Tensor) -> tuple[Tensor, Tensor]:
        grad_SP, (_, loss_S) = torch.func.grad_and_value(total, has_aux=True)(theta_SP)
        return grad_SP, loss_S

    grad_SP, loss_S = slope(state["theta"])
    # The loss that is reported stays that at θ.
    if optimiser.gradient_point:
        there_SP = optimiser.gradient_point(state, schedule.now(state, hyper), grad_SP)
        grad_SP, _ = slope(there_SP)
    return apply_update(optimiser, state, hyper, grad_SP), loss_S


def apply_update(optimiser: Optimiser, state: State, hyper: Hyper, grad_SP: Tensor) -> State:
    """Clip each seed's gradient [S, P], and take the optimiser's step where the slot is active. Return the state."""
    now = schedule.now(state, hyper)
    grad_SP, tensors = optimiser.gradient(state, now, grad_SP)
    new = {**tensors, **optimiser.update(state, now, grad_SP)}
    # Idle slots are computed with the others, and keep what they had.
    active_S = state["active"]
    for name, tensor in new.items():
        is_active = active_S.reshape(-1, *[1] * (tensor.dim() - 1))  # broadcasts over the other axes
        new[name] = torch.where(is_active, tensor, state[name])
    return {**state, **new, "step": state["step"] + active_S}


@torch.no_grad()
def evaluate(spec: Spec, theta_SP: Tensor, tokens_1TB: Tensor) -> dict[str, Tensor]:
    """Return teacher-forced measures [S] on shared problems: exact match, token accuracy, loss.

    Exact match counts problems with all columns of the answer right; for those, greedy decoding sees
    the same tokens and gives the same digits. The end token counts in the loss alone.
    """
    logits = answer_logits(spec, theta_SP, tokens_1TB)
    target_1AB = tokens_1TB[:, spec.prompt :]
    right_SAB = is_right(logits, target_1AB, spec.task.answers)
    return {
        "exact": right_SAB.all(1).float().mean(1),
        "token": right_SAB.float().mean((1, 2)),
        "loss": cross_entropy(logits, target_1AB).mean((1, 2)),
    }
