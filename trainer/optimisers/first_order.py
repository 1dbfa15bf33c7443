"""Optimisers that keep at most two vectors per slot. Each is a function; `optimisers/__init__.py` lists them.

A function takes the state, the numbers of the step (`now`) and the clipped gradient [S, P], and returns the tensors
that the step changes.

Axes: S slot, P parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.optimisers.base import Tensors, columns

if TYPE_CHECKING:
    from torch import Tensor


def adamw(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
    """Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2."""
    lr, decay, beta1, beta2, epsilon = columns(now, "lr", "decay", "beta1", "beta2", "epsilon")
    count_S1 = (state["step"] + 1)[:, None]
    # As torch's AdamW writes it (lerp), which rounds otherwise than a sum of two products.
    m = state["m"] + (grad_SP - state["m"]) * (1 - beta1)
    v = state["v"] * beta2 + grad_SP.square() * (1 - beta2)
    # Both means begin at 0; these factors take that out (Kingma and Ba, section 3).
    unbiased_m = m / (1 - beta1**count_S1)
    unbiased_v = v / (1 - beta2**count_S1)
    decayed = state["theta"] * (1 - decay)
    theta = decayed - lr * unbiased_m / (unbiased_v.sqrt() + epsilon)
    return {"theta": theta, "m": m, "v": v}


def adam(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
    """Kingma and Ba, "Adam", ICLR 2015, algorithm 1: weight decay is a part of the gradient."""
    (l2,) = columns(now, "l2")
    # Adam's decay is in the gradient, so θ itself is not decayed.
    without_decay = {**now, "decay": 0 * now["decay"]}
    return adamw(state, without_decay, grad_SP + l2 * state["theta"])


def lion(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
    """Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023, algorithm 2."""
    lr, decay, beta1, beta2 = columns(now, "lr", "decay", "beta1", "beta2")
    mixed = state["m"] * beta1 + grad_SP * (1 - beta1)
    nothing = mixed - mixed  # 0, or NaN where the gradient is NaN, which a sign would hide
    decayed = state["theta"] * (1 - decay)
    theta = decayed - lr * (mixed.sign() + nothing)
    m = state["m"] * beta2 + grad_SP * (1 - beta2)
    return {"theta": theta, "m": m}


def sgd(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
    """Nesterov's momentum as Sutskever et al. write it ("On the importance of initialization and momentum",
    ICML 2013, section 2), in torch's form: beta1 is the momentum, weight decay is a part of the gradient.
    """
    lr, l2, momentum = columns(now, "lr", "l2", "beta1")
    grad_SP = grad_SP + l2 * state["theta"]
    m = state["m"] * momentum + grad_SP
    theta = state["theta"] - lr * (grad_SP + m * momentum)
    return {"theta": theta, "m": m}
