"""Specs in all their variety, and θ and tokens to try them on."""

from dataclasses import replace

import pytest
import torch

from model import RUNGS
from model.split_subspace import SplitSubspace
from trainer import step
from trainer.problems import sample

UNTIED = SplitSubspace()
SPECS = {
    **RUNGS,
    "75p": replace(RUNGS["74p"], circular=False),
    "untied": UNTIED,
    "untied, frozen spiral, qk_dim 3": replace(UNTIED, frozen_spiral=True, qk_dim=3),
    "circular, untied values": replace(RUNGS["57p"], tie_vo=False, rank1_out=False),
    "own norms": replace(RUNGS["57p"], shared_norm=False),
}
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def some_theta(spec, seeds=1):
    """θ [S, P] away from every special value: nothing is zero, nothing is equal."""
    gen = torch.Generator().manual_seed(spec.params)
    first = torch.stack([spec.initial(s) for s in range(seeds)])
    return first + 0.3 * torch.randn(first.shape, generator=gen)


def some_tokens(spec, seeds=1, batch=4):
    """Sequences [S, T + 1, B] of uniform problems."""
    row = torch.arange(seeds)
    return step.tokens_of(spec, *sample(row, row, torch.full_like(row, 10), torch.zeros(seeds), batch))
