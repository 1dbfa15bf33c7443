"""Proposers: curvature, a genetic search over the cheapest constraints, or chance.

Each proposes sets of ties that go on from one accepted candidate and that were not tried. The population of a
genetic search is what was tried from the same candidate; nothing is kept beside it.

Axes: P entries of a base's θ.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import NSGAIISampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from torch import Tensor

from model.spec import Spec
from model.tied import Ties, tie
from search.compress.acceptance import own_theta
from search.compress.proposals import SINGLE, SaliencyProposer, joined
from search.store.candidates import digest
from search.study.compress import KINDS
from trainer.curvature.hessian import constraints, expand_loss, possible

POOL = 100  # cheapest constraints that a genetic search and chance choose among
DRAWS = 50  # for each set that is to be proposed, how many are drawn at most
CHOICE = CategoricalDistribution([False, True])


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of a descent.

    kinds: of constraints. scope: `tensor` ties numbers of one tensor only, `global` any two. proposals:
    candidates a round. beam: accepted candidates that a round goes on from. rounds: at most. patience: rounds
    that may pass without a smaller candidate. accept: the share of the problems that a candidate must get
    right. proved: the level at which it must be right on all pairs too, if any. problems: on which curvature is
    measured. seed: of the proposer's own generator.
    """

    kinds: tuple[str, ...] = KINDS
    scope: str = "global"
    proposer: str = "saliency"
    seed: int = 0
    proposals: int = 12
    beam: int = 1
    rounds: int = sys.maxsize
    patience: int = 40
    accept: float = 1.0
    proved: str | None = None
    problems: int = 1_024


@dataclass(frozen=True)
class Parent:
    """An accepted candidate: its base, ties and θ [P of the base].

    children: what was tried from it: ties, round, exact match.
    """

    base: Spec
    ties: Ties
    theta_P: Tensor
    children: Sequence[tuple[Ties, int, float]] = ()

    @property
    def numbers(self) -> int:
        """Number of different numbers that are left."""
        return max(map(abs, self.ties), default=0)


def propose(
    rules: Rules, parent: Parent, count: int, batch_size: int, excluded: Collection[str], draw: int
) -> list[Ties]:
    """Return up to `count` sets that go on from a parent.

    batch_size: constraints at once, about. excluded: digests of sets to leave out. draw: of the generator.
    """
    if parent.numbers < 2 or count < 1:
        return []
    if rules.proposer == "saliency":
        proposer = SaliencyProposer.around(
            parent.base, parent.ties, parent.theta_P, rules.kinds, rules.scope, rules.problems
        )
        sets = proposer.sets(count, batch_size, excluded)
        return sets if len(sets) == count else proposer.exhaustive.sets(count, batch_size, excluded)
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


def _new_sets(
    parent: Parent, count: int, excluded: Collection[str], draw: Callable[[], Sequence[Ties]]
) -> list[Ties]:
    """Draw constraints until `count` sets of the parent's ties with them are possible and new."""
    sets: dict[Ties, None] = {}
    for _ in range(DRAWS * count):
        if len(sets) == count:
            break
        ties = possible(parent.base, reduce(joined, draw(), parent.ties))
        if ties and ties != parent.ties and digest(ties) not in excluded:
            sets[ties] = None
    return list(sets)


class NSGAII(NSGAIISampler):
    """NSGA-II for proposals that are told out of order.

    A generation begins when the one before has been told often enough. What is still in training then is told
    later and would be nobody's parent: so parents are the best of all that has been told.
    """

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return self._elite_population_selection_strategy(study, complete)

    def attributes(self, generation: int) -> dict[str, Any]:
        """Return what the sampler notes of a trial of a generation."""
        return {self._get_generation_key(): generation}


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
