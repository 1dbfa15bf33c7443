"""What a descent tries next: sets of ties that go on from one accepted candidate and were not tried.

By curvature; a proposer of another name is a part that another package adds (lab/proposers.py).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from model.spec import Spec
from model.tied import Ties
from search.compress.proposals import SaliencyProposer
from search.plugins import part
from search.study.compress import KINDS


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

    batch_size: constraints at once, about. excluded: digests of sets to leave out. draw: number that, with the
    seed, starts the proposer's generator.
    """
    if parent.numbers < 2 or count < 1:
        return []
    if rules.proposer != "saliency":
        proposer = part("proposers", f"compress.proposer {rules.proposer}")
        return proposer(rules, parent, count, batch_size, excluded, draw)
    saliency = SaliencyProposer.around(
        parent.base, parent.ties, parent.theta_P, rules.kinds, rules.scope, rules.problems
    )
    sets = saliency.sets(count, batch_size, excluded)
    if len(sets) == count:
        return sets
    return replace(saliency, ways=None).sets(count, batch_size, excluded)  # every way to loosen a tie
