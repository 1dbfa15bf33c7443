"""Proposers: curvature, a genetic search over the cheapest constraints, or chance.

Each proposes sets of ties that go on from one accepted candidate and that were not tried. The population of a
genetic search is what was tried from the same candidate; nothing is kept beside it.

Axes: P entries of a base's θ.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import NSGAIISampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from torch import Tensor

from model.spec import Spec
from model.tied import Ties, canonical, equated, tie, zeroed
from search.compress.acceptance import own_theta
from search.compress.proposals import SINGLE, SaliencyProposer
from search.store.candidates import digest
from trainer.curvature.hessian import constraints, expand_loss

POOL = 100  # cheapest constraints that a genetic search and chance choose among
DRAWS = 50  # for each set that is to be proposed, how many are drawn at most
CHOICE = CategoricalDistribution([False, True])


class ProposalRules(Protocol):
    """The part of a descent's rules that proposers read (search/compress/descent.py)."""

    @property
    def kinds(self) -> Sequence[str]: ...
    @property
    def scope(self) -> str: ...
    @property
    def proposer(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def problems(self) -> int: ...


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
    rules: ProposalRules, parent: Parent, count: int, batch_size: int, tried: Collection[str], draw: int
) -> list[Ties]:
    """Return up to `count` sets that were not tried.

    batch_size: constraints at once, about. tried: digests. draw: of the proposer's generator.
    """
    if parent.numbers < 2 or count < 1:
        return []
    if rules.proposer == "saliency":
        proposer = SaliencyProposer.around(
            parent.base, parent.ties, parent.theta_P, rules.kinds, rules.scope, rules.problems
        )
        sets = proposer.sets(count, batch_size, tried)
        return sets if len(sets) == count else proposer.exhaustive.sets(count, batch_size, tried)
    single = [kind for kind in rules.kinds if kind in SINGLE]
    spec = tie(parent.base, parent.ties)
    at = expand_loss(spec, own_theta(spec, parent.theta_P), rules.problems)
    pool = [c.ties for c in constraints(at, single, rules.scope, POOL)]
    if not pool:
        return []
    chance = random.Random(f"{rules.seed} {draw}")
    if rules.proposer == "nsga2" and parent.children:
        return _new_sets(parent, count, tried, _genetic(parent, pool, max(4, count), chance))

    def at_random() -> list[Ties]:
        return chance.sample(pool, chance.randint(1, min(2 * batch_size, len(pool))))

    return _new_sets(parent, count, tried, at_random)


def _new_sets(
    parent: Parent, count: int, tried: Collection[str], draw: Callable[[], Sequence[Ties]]
) -> list[Ties]:
    """Draw constraints until `count` sets of the parent's ties with them are possible and new."""
    sets: dict[Ties, None] = {}
    for _ in range(DRAWS * count):
        if len(sets) == count:
            break
        ties = parent.ties
        for constraint in draw():
            ties = joined(ties, constraint)
        if ties != parent.ties and digest(ties) not in tried and _is_possible(parent.base, ties):
            sets[ties] = None
    return list(sets)


def _is_possible(base: Spec, ties: Ties) -> bool:
    """True unless the ties empty a tensor that must not be."""
    try:
        tie(base, ties)
    except ValueError:
        return False
    return True


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


def joined(ties: Ties, constraint: Ties) -> Ties:
    """Return the ties of two sets together. What they make equal and opposite both is zero."""
    first: dict[int, int] = {}
    for p, k in enumerate(constraint):
        if k == 0:
            ties = zeroed(ties, p) if ties[p] else ties
        elif (q := first.setdefault(abs(k), p)) != p:
            sign = 1 if (constraint[q] > 0) == (k > 0) else -1
            try:
                ties = equated(ties, p, q, sign)
            except ValueError:
                ties = zeroed(ties, p)
    return canonical(ties)
