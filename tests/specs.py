"""Specs of every family in all their variety, drawn from the fields themselves, and θ and tokens to try.

A family that is added is drawn from too: its constraints and sizes say which values they have.
"""

import importlib
import random
from dataclasses import MISSING, fields, replace

import torch
from hypothesis import strategies as st

from model import PRESETS
from model.spec import FAMILIES
from trainer.data.problems import sample
from trainer.step import step


def bases(family):
    """Where variants start from: no constraint, and the rungs."""
    return [FAMILIES[family](), *(spec for spec in PRESETS.values() if spec.family == family)]


def values_of(field):
    """The values of a field that are tried, besides its default."""
    meta, default = field.metadata, field.default
    if meta["values"] or isinstance(default, bool):
        return [v for v in (meta["values"] or (True, False)) if v != default]
    if isinstance(default, float):
        return [0.7 * default]
    low, high = meta["ge"] or 1, meta["le"]
    return [v for v in (low, low + 2) if v != default and v <= high]


def changes_of(family):
    """Every field of a family with every value that is tried: pairs (name, value)."""
    assert all(f.default is not MISSING for f in fields(FAMILIES[family]))
    return [(field.name, value) for field in FAMILIES[family].options() for value in values_of(field)]


def changed(spec, name, value):
    """The spec with a constraint, and what that needs, or with a size; None where it cannot have it."""
    try:
        return spec.constrained(name, value) if name in spec.constraints() else replace(spec, **{name: value})
    except ValueError:
        return None


def mixture(spec, changes):
    """The spec after these changes one by one, without those that cannot be."""
    for name, value in changes:
        spec = changed(spec, name, value) or spec
    return spec


def alone(family):
    """Each change by itself, on the first base that it fits; each constraint off the last that has it."""
    found = {}
    for name, value in changes_of(family):
        fits = (changed(b, name, value) for b in bases(family) if getattr(b, name) != value)
        found[f"{family} {name}={value}"] = next(filter(None, fits), None)
    for name in FAMILIES[family].constraints():
        applied = [b for b in bases(family) if name in b.applied()]
        found |= {f"{family} without {name}": applied[-1].without(name)} if applied else {}
    return found


def mixtures(family, count=12):
    """Some mixtures of half of all changes. `make test-full` tries hundreds (`specs`)."""
    rng, changes = random.Random(family), changes_of(family)
    drawn = [mixture(rng.choice(bases(family)), rng.sample(changes, len(changes) // 2)) for _ in range(count)]
    return {f"{family} mixture {n}": spec for n, spec in enumerate(drawn)}


@st.composite
def specs(draw, family):
    """Any spec of a family, by some changes of some base."""
    changes = draw(st.lists(st.sampled_from(changes_of(family)), max_size=16))
    return mixture(draw(st.sampled_from(bases(family))), changes)


def _each_once(named):
    """Specs by name, each once."""
    names = {spec: name for name, spec in reversed(named.items()) if spec}
    return {name: spec for name, spec in named.items() if spec and names[spec] == name}


def variants():
    """The rungs, each change alone and mixtures of them, of all families."""
    named = dict(PRESETS)
    for family in FAMILIES:
        named |= {f"{family} alone": FAMILIES[family](), **alone(family), **mixtures(family)}
    return _each_once(named)


def reference(spec, theta_P):
    """The family's plain module with these weights, in θ's precision."""
    template = importlib.import_module(f"model.submissions.{spec.family}")
    tensors = spec.layout.split(theta_P.detach()[None])
    return template.Adder(spec.as_dict(), {name: t[0].tolist() for name, t in tensors.items()}).to(theta_P.dtype)


def some_theta(spec, seeds=1):
    """θ [S, P] away from every special value: nothing is zero, nothing is equal."""
    gen = torch.Generator().manual_seed(spec.params)
    first = torch.stack([spec.initial(s) for s in range(seeds)])
    return first + 0.3 * torch.randn(first.shape, generator=gen)


def some_tokens(spec, seeds=1, batch=4):
    """Sequences [S, T + 1, B] of uniform problems."""
    row = torch.arange(seeds)
    digits = torch.full_like(row, spec.task.digits)
    return step.tokens_of(spec, *sample(row, row, digits, torch.zeros(seeds), batch, task=spec.task))


def any_tokens(spec, seeds=1, batch=4):
    """What a model reads [S, T, B], with any token anywhere."""
    length, gen = some_tokens(spec).shape[1] - 1, torch.Generator().manual_seed(1)
    return torch.randint(spec.tokens, (seeds, length, batch), generator=gen, dtype=torch.int32)
