"""Specs in all their variety, and θ and tokens to try them on."""

import importlib
import random
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from model import RUNGS
from model.export import weights
from model.families.split_subspace import SplitSubspace
from trainer import step
from trainer.problems import sample

FIVE_WIDE = SplitSubspace(
    tok_dim=2,
    heads=1,
    vocabulary=10,
    arc=True,
    spiral=True,
    plain_spiral=True,
    frozen_plus=True,
    frozen_eos=True,
    tie_qk=True,
    no_ffn_bias=True,
)
"""What 74p, 67p and 57p have in common, without what they share, freeze and cut down."""
SIZES = {"vocabulary": 10, "qk_dim": 5}
"""The value with which a constraint that is a size is applied here; the others are true."""


def constrained(spec, name):
    """A spec with one constraint more and all that this needs; what it excludes gives way."""
    known, changes, wanted = spec.constraints(), {}, {name: SIZES.get(name, True)}
    while wanted:
        changes |= wanted
        wanted = {k: v for one in wanted if one in known for k, v in known[one].metadata["needs"].items()}
    excludes = {name: field.metadata["excludes"] for name, field in known.items()}
    for other in spec.applied():
        if any(new in excludes[other] or other in excludes.get(new, ()) for new in changes):
            spec = spec.without(other)
    width = changes.get("tok_dim", spec.tok_dim) + spec.pos_dim
    return replace(spec, **changes, pos_dim=spec.pos_dim + -width % spec.heads)  # a width that heads divide


def mixture(seed):
    """A spec with sizes and constraints drawn at random."""
    rng = random.Random(seed)
    spec = SplitSubspace(tok_dim=rng.choice([2, 3, 4]), pos_dim=rng.choice([3, 4, 5]), heads=1)
    for name in rng.sample(list(spec.constraints()), 8):
        spec = constrained(spec, name)
    return replace(spec, heads=rng.choice([h for h in (1, 2, 3, 4) if spec.width % h == 0]))


SUBMITTED = {name: spec for name, spec in RUNGS.items() if find_spec(f"model.submissions.{spec.family}")}
"""The rungs of all families that can be exported."""
_57p = RUNGS["57p"]
VARIANTS = {
    "five wide": FIVE_WIDE,
    "four token dimensions": SplitSubspace(tok_dim=4, pos_dim=5, heads=3),
    **{f"242p, {name}": constrained(RUNGS["242p"], name) for name in SplitSubspace.constraints()},
    **{f"57p, {name}": constrained(_57p, name) for name in SplitSubspace.constraints()},
    **{f"57p without {name}": _57p.without(name) for name in _57p.applied()},
    **{f"mixture {seed}": mixture(seed) for seed in range(24)},
}
_names = {spec: name for name, spec in (VARIANTS | SUBMITTED).items()}  # each spec once, a rung by its name
SPECS = {name: spec for name, spec in (SUBMITTED | VARIANTS).items() if _names[spec] == name}
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def reference(spec, theta_P):
    """The family's plain module with these weights, in θ's precision."""
    template = importlib.import_module(f"model.submissions.{spec.family}")
    return template.Adder(spec.as_dict(), weights(spec, theta_P)).to(theta_P.dtype)


def some_theta(spec, seeds=1):
    """θ [S, P] away from every special value: nothing is zero, nothing is equal."""
    gen = torch.Generator().manual_seed(spec.params)
    first = torch.stack([spec.initial(s) for s in range(seeds)])
    return first + 0.3 * torch.randn(first.shape, generator=gen)


def some_tokens(spec, seeds=1, batch=4):
    """Sequences [S, T + 1, B] of uniform problems."""
    row = torch.arange(seeds)
    return step.tokens_of(spec, *sample(row, row, torch.full_like(row, 10), torch.zeros(seeds), batch))
