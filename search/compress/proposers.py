"""Who proposes the sets of a round: curvature, a genetic search over the cheapest constraints, or chance.

Each is asked for sets that go on from one kept set and that nobody has tried. A genetic search's
population are the sets that were tried from the same one; nothing is remembered beside them.

Axes: P entries of a base's θ.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
import torch
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import TrialState, create_trial

from model.spec import Spec
from model.tied import Tied, Ties, canonical, equated, project, tie, zeroed
from search.compress.generations import Generations
from search.compress.journal import digest
from search.compress.proposals import SINGLE, Proposer
from search.study.compress import Compress
from trainer.curvature.hessian import SAMPLE, constraints, expand_loss

POOL = 100  # cheapest constraints that a genetic search and chance choose among
TRIES = 50  # for each set that was tried before, how often another one is drawn
CHOICE = CategoricalDistribution([False, True])


@dataclass(frozen=True)
class Parent:
    """A kept set: its base, ties and θ of the base; and what was tried from it: ties, the round of it,
    exact match.
    """

    base: Spec
    ties: Ties
    theta: tuple[float, ...]
    children: Sequence[tuple[Ties, int, float]] = ()

    @property
    def numbers(self) -> int:
        return max(map(abs, self.ties), default=0)


def propose(
    asked: Compress, parent: Parent, count: int, several: int, known: Collection[Ties], draw: int
) -> list[Ties]:
    """So many sets that are not known, or fewer. several: constraints at once, about; draw: of its
    generator.
    """
    if parent.numbers < 2 or count < 1:
        return []
    theta_P = torch.tensor(parent.theta)
    if asked.proposer == "saliency":
        around_it = parent.base, parent.ties, theta_P, asked.kinds, asked.reach, SAMPLE
        return Proposer.around(*around_it).sets(count, several, {digest(t): 0.0 for t in known})
    single = [kind for kind in asked.kinds if kind in SINGLE]
    spec = tie(parent.base, parent.ties)
    own_P = project(parent.ties, theta_P[None])[0] if isinstance(spec, Tied) else theta_P
    pool = [c.ties for c in constraints(expand_loss(spec, own_P), single, asked.reach, POOL)]
    chance = random.Random(f"{asked.seed} {draw}")
    if asked.proposer == "nsga2" and parent.children:
        return _bred(parent, pool, count, known, chance)
    return _drawn(parent, pool, count, several, known, chance)


def _drawn(
    parent: Parent, pool: Sequence[Ties], count: int, several: int, known: Collection[Ties], chance: Any
) -> list[Ties]:
    """Sets of up to twice so many constraints of the pool, at random."""
    made: dict[Ties, None] = {}
    for _ in range(TRIES * count):
        if len(made) == count or not pool:
            break
        size = chance.randint(1, min(2 * several, len(pool)))
        drawn = _possible(parent, chance.sample(pool, size))
        if drawn is not None and drawn not in known:
            made[drawn] = None
    return list(made)


def _bred(
    parent: Parent, pool: Sequence[Ties], count: int, known: Collection[Ties], chance: Any
) -> list[Ties]:
    """NSGA-II over which constraints of the pool a set has: numbers against exact match."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        sampler = Generations(seed=chance.randrange(1 << 31), population_size=max(4, count))
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    names = [str(n) for n in range(len(pool))]
    for ties, round_, exact in parent.children:
        params = {n: joined(ties, c) == ties for n, c in zip(names, pool, strict=True)}
        study.add_trial(
            create_trial(
                params=params,
                distributions=dict.fromkeys(names, CHOICE),
                values=[float(max(map(abs, ties), default=0)), exact],
                system_attrs=sampler.attributes(round_),
            )
        )
    made: dict[Ties, None] = {}
    for _ in range(TRIES * count):
        if len(made) == count:
            break
        trial = study.ask()
        chosen = [c for n, c in zip(names, pool, strict=True) if trial.suggest_categorical(n, [False, True])]
        bred = _possible(parent, chosen)
        if bred is not None and bred not in known:
            made[bred] = None
        study.tell(trial, state=TrialState.FAIL)
    return list(made)


def _possible(parent: Parent, chosen: Sequence[Ties]) -> Ties | None:
    """The parent's ties with these, one after another; None if that is nothing more, or empties a tensor that
    must not be."""
    ties = parent.ties
    for other in chosen:
        ties = joined(ties, other)
    try:
        tie(parent.base, ties)
    except ValueError:
        return None
    return ties if ties != parent.ties else None


def joined(one: Ties, other: Ties) -> Ties:
    """The ties of two sets together. What they make equal and opposite both is zero."""
    first: dict[int, int] = {}
    for p, k in enumerate(other):
        if k == 0:
            one = zeroed(one, p) if one[p] else one
        elif (q := first.setdefault(abs(k), p)) != p:
            sign = 1 if (other[q] > 0) == (k > 0) else -1
            try:
                one = equated(one, p, q, sign)
            except ValueError:
                one = zeroed(one, p)
    return canonical(one)
