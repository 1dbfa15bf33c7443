"""Proposers of the notebook: chance, and a genetic search that learns what its sets reached."""

import pytest

from compress.candidates import digest
from compress.proposers import Parent, Rules, propose
from model.tied import constrained, free
from tests.compress.test_proposals_of_descents import BASE, CERTIFICATES, crosses_tensors
from trainer.checkpoints.checkpoint import Checkpoint


def neighbours(*firsts):
    return [constrained(BASE, [f"{BASE.layout.entries()[n + 1]} = {BASE.layout.entries()[n]}"]) for n in firsts]


@pytest.mark.parametrize("proposer", ["nsga2", "random"])
def test_every_proposer_gives_new_sets_of_the_scope_that_was_asked_for(proposer):
    loaded = Checkpoint.load(CERTIFICATES / "46p")
    rules = Rules(proposer=proposer, scope="tensor", problems=64)
    children = [(ties, 1, 0.9 + n / 100) for n, ties in enumerate(neighbours(*range(6)))]
    tried = {digest(ties) for ties, _, _ in children}
    parent = Parent(loaded.spec, free(46), loaded.theta_P, children)
    sets = propose(rules, parent, 5, 3, tried, draw=7)
    assert len(sets) == len(set(sets)) == 5 and not tried & {digest(t) for t in sets}
    assert sets == propose(rules, parent, 5, 3, tried, draw=7), "the same when it is asked again"
    assert sets != propose(rules, parent, 5, 3, tried, draw=8)
    assert all(max(map(abs, t)) < 46 and not crosses_tensors(t) for t in sets)


def test_a_genetic_search_learns_what_its_sets_reached():
    """Its children hold a constraint more often if the sets that hold it were right than if the others were."""
    loaded, rules = Checkpoint.load(CERTIFICATES / "46p"), Rules(proposer="nsga2", problems=64)
    drawn = propose(rules, Parent(loaded.spec, free(46), loaded.theta_P), 24, 8, (), draw=0)
    mark = max(range(45), key=lambda n: min(sum(t[n] == 0 for t in drawn), sum(t[n] != 0 for t in drawn)))

    def share(is_right_with, draw):
        children = [(t, 1, 1.0 if (t[mark] == 0) == is_right_with else 0.1) for t in drawn]
        parent = Parent(loaded.spec, free(46), loaded.theta_P, children)
        bred = propose(rules, parent, 24, 8, {digest(t) for t in drawn}, draw=draw)
        return sum(t[mark] == 0 for t in bred) / len(bred)

    for draw in (2, 3):
        assert share(True, draw) > share(False, draw) + 0.05
