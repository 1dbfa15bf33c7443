"""Proposers of a descent beside saliency, `compress: {proposer: nsga2}` or `random`: what that was measured against.

The population of a genetic search is what was tried from the same candidate; nothing is kept beside it.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import TrialState, create_trial

from adders.acceptance import own_theta
from compress.candidates import digest
from compress.hessian import constraints, expand_loss, possible
from compress.proposers import SINGLE, Parent, Rules, joined
from model.tied import Ties, tie
from search.kinds.samplers import NSGAII

POOL = 100  # cheapest constraints that a genetic search and chance choose among
DRAWS = 50  # for each set that is to be proposed, how many are drawn at most
CHOICE = CategoricalDistribution([False, True])


def propose(
    rules: Rules, parent: Parent, count: int, batch_size: int, excluded: Collection[str], draw: int
) -> list[Ties]:
    """Return up to `count` sets that go on from a parent (compress/proposers.py)."""
    single = [kind for kind in rules.kinds if kind in SINGLE]
    spec = tie(parent.base, parent.ties)
    at = expand_loss(spec, own_theta(spec, parent.theta_P), rules.problems)
    pool = [c.ties for c in constraints(at, single, rules.scope, POOL)]
    if not pool:
        return []
    chance = random.Random(f"{rules.seed} {draw}")
    if rules.proposer == "nsga2" and parent.children:
        return _new_sets(parent, count, excluded, _genetic(parent, pool, max(4, count), chance))

    def at_random() -> list[Ties]:
        return chance.sample(pool, chance.randint(1, min(2 * batch_size, len(pool))))

    return _new_sets(parent, count, excluded, at_random)


def _new_sets(parent: Parent, count: int, excluded: Collection[str], draw: Callable[[], Sequence[Ties]]) -> list[Ties]:
    """Draw constraints until `count` sets of the parent's ties with them are possible and new."""
    sets: dict[Ties, None] = {}
    for _ in range(DRAWS * count):
        if len(sets) == count:
            break
        ties = possible(parent.base, reduce(joined, draw(), parent.ties))
        if ties and ties != parent.ties and digest(ties) not in excluded:
            sets[ties] = None
    return list(sets)


def _genetic(parent: Parent, pool: Sequence[Ties], population: int, chance: Any) -> Callable[[], list[Ties]]:
    """Return draws of NSGA-II over which constraints a set has: numbers against exact match."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        sampler = NSGAII(seed=chance.randrange(1 << 31), population_size=population)
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
    names = [str(n) for n in range(len(pool))]
    for ties, round_, exact in parent.children:
        trial = create_trial(
            params={n: joined(ties, c) == ties for n, c in zip(names, pool, strict=True)},
            distributions=dict.fromkeys(names, CHOICE),
            values=[float(max(map(abs, ties), default=0)), exact],
            system_attrs=sampler.attributes(round_),
        )
        study.add_trial(trial)

    def draw() -> list[Ties]:
        trial = study.ask()
        chosen = [c for n, c in zip(names, pool, strict=True) if trial.suggest_categorical(n, [False, True])]
        study.tell(trial, state=TrialState.FAIL)
        return chosen

    return draw
