"""Random numbers of torch's generator, scaled so that every CPU has the same bits.

torch's own distributions round as the kind of CPU does for which they were compiled (a fused multiply-add
or none, one polynomial or another). These draw the same words of the generator and round once, from float64:
what torch gives on CPUs with AVX2, but for a last bit of some normal numbers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TOGETHER = 16  # torch makes 16 normal numbers from 16 uniform ones, if so many are drawn


def uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> Tensor:
    """Draw uniformly from -bound to bound, float32: Tensor.uniform_(-bound, bound)."""
    low = torch.tensor(-bound)
    width = (-low - low).double()  # rounded to float32 first, as torch has it
    drawn = torch.rand(shape, generator=generator).double()
    return (drawn * width + low.double()).float()


def xavier(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw as torch.nn.init.xavier_uniform_ (Glorot and Bengio 2010) of a matrix [fan out, fan in]."""
    deviation = math.sqrt(2.0 / float(sum(shape)))
    return uniform(shape, math.sqrt(3.0) * deviation, generator)


def kaiming(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw as torch.nn.init.kaiming_uniform_ (He et al. 2015) of a matrix [fan out, fan in].

    a = √5, as torch.nn.Linear has it.
    """
    gain = math.sqrt(2.0 / (1 + math.sqrt(5) ** 2))
    deviation = gain / math.sqrt(shape[1])
    return uniform(shape, math.sqrt(3.0) * deviation, generator)


def normal(shape: tuple[int, ...], deviation: float, generator: torch.Generator) -> Tensor:
    """Draw from a normal distribution around 0, float32: Tensor.normal_(0, deviation), by Box and Muller."""
    count = math.prod(shape)
    if count < TOGETHER:  # in float64 one by one
        return torch.empty(shape).normal_(0, deviation, generator=generator)
    drawn = torch.rand(count, generator=generator).double()
    end = count // TOGETHER * TOGETHER
    values = torch.cat([_box_muller(drawn[:end]), drawn[end:]])
    if end < count:  # the last sixteen are drawn again, as torch does where their number is no multiple
        again = torch.rand(TOGETHER, generator=generator)
        values[-TOGETHER:] = _box_muller(again.double())
    return (values * deviation).float().reshape(shape)


def _box_muller(drawn: Tensor) -> Tensor:
    """Make two normal numbers from two uniform ones, eight places apart, in groups of sixteen."""
    groups = drawn.unflatten(0, (-1, 2, TOGETHER // 2))
    first, second = groups.unbind(1)
    radius = torch.sqrt(-2 * torch.log(1 - first))
    turn = 2 * math.pi * second
    pairs = [radius * torch.cos(turn), radius * torch.sin(turn)]
    return torch.stack(pairs, dim=1).flatten()
