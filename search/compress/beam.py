"""The descents of a study: rounds of sets of ties, out of the ledger, each a configuration like any other.

A round goes on from the kept sets with the fewest numbers. Its sets are written before anything of them
trains; each is judged when its seeds have ended, by what is recorded. So a driver that dies anywhere is
followed by one that goes on with the same sets, and nothing is asked of anybody twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch

from model import Spec, preset_name
from model.fold import fold
from model.tied import Tied as TiedSpec
from model.tied import tie, ties_of
from search.compress.acceptance import AcceptanceSet
from search.compress.proposers import Parent, propose
from search.errors import UserError
from search.store.candidates import CandidateStore, TieCandidate
from search.store.ledger import Ledger, Row, is_final
from search.study.provenance import lineage_of
from search.study.schema import Study
from search.study.start import ANY, InitialTheta
from search.study.trial import Configuration
from search.tracking.artifacts import ArtifactCache, RecordedSeed
from search.tracking.starts import parents_of
from trainer import Recipe

SEVERAL, MOST_SEVERAL = 8, 16
"""Constraints at once, at the first round and at most."""


class Beam:
    """What a study's `compress` asks for: configurations that are proposed, and judged when they are told."""

    def __init__(self, study: Study, ledger: Ledger, shelf: ArtifactCache):
        """Begin, or go on. Raises UserError for a θ to start from that does not get enough right."""
        assert study.compress is not None
        self.study, self.ledger, self.shelf, self.asked = study, ledger, shelf, study.compress
        self.exams: dict[Spec, AcceptanceSet] = {}
        self.sets = CandidateStore(ledger, study.name)
        self.tried = self.sets.read()
        if not self.tried:
            self._begin(parents_of(study, ledger))
        self.configurations = ledger.list_configurations(study.name)
        self.waiting = [t.number for t in self.tried if t.configuration and t.reached is None]
        self.waiting.reverse()
        self.is_stuck = False

    # ---- what a planner asks of it (as of search/run/proposals.py)

    @property
    def exhausted(self) -> bool:
        """Whether no round follows."""
        return not self._open and (
            self.is_stuck or self.rounds >= self.asked.rounds or self._is_out_of_patience
        )

    def known(self) -> list[Configuration]:
        """All that was proposed before, and has not been judged."""
        given, self.waiting = self.waiting, []
        return [self._configuration(self.tried[n]) for n in reversed(given)]

    def told(self) -> list[Configuration]:
        """Those that have been judged."""
        return [self._configuration(t) for t in self.tried if t.configuration and t.reached is not None]

    def ask(self) -> Configuration | None:
        """The next set of the round, or None while its sets are in training, and at the end."""
        if not self.waiting and not self._open and not self.exhausted:
            self._propose()
        return self._configuration(self.tried[self.waiting.pop()]) if self.waiting else None

    def tell(self, configuration: Configuration, rows: Sequence[Row]) -> None:
        """Judge a set of which every seed has ended; it is kept if one of its θ gets enough right."""
        number = next((t.number for t in self.tried if t.configuration == configuration.key), None)
        if number is None or self.tried[number].reached is not None or not all(map(is_final, rows)):
            return
        rows = self.ledger.list_seeds(self.study.name, configuration.key)  # a planner knows of outcomes alone
        self.waiting = [n for n in self.waiting if n != number]
        tried = replace(self.tried[number], reached=max(r["best_exact"] or 0.0 for r in rows))
        for row in rows:
            if (row["best_exact"] or 0.0) >= self.asked.accept.exact:
                tried = self._better(tried, self._examined(tried, self.shelf.seed(row)))
        self.sets.judge(tried)
        self.tried[number] = tried

    # ---- rounds

    @property
    def rounds(self) -> int:
        """How many have been proposed."""
        return max(t.round for t in self.tried)

    @property
    def _open(self) -> bool:
        return any(t.configuration and t.reached is None for t in self.tried)

    @property
    def kept(self) -> list[TieCandidate]:
        """The sets whose θ can be gone on from."""
        return [t for t in self.tried if t.start]

    @property
    def _is_out_of_patience(self) -> bool:
        smallest = min(t.numbers for t in self.kept)
        found = min(t.round for t in self.kept if t.numbers == smallest)
        return self.rounds - found >= self.asked.patience

    def _begin(self, parents: Sequence[InitialTheta]) -> None:
        """What the study starts from, folded where a fold is known."""
        roots = [self._root(n, parent) for n, parent in enumerate(parents)]
        self.sets.propose([(root, None) for root in roots])
        self.tried = roots

    def _root(self, number: int, parent: InitialTheta) -> TieCandidate:
        theta_P = torch.tensor(parent.thetas[ANY])
        base, ties = ties_of(parent.spec)
        steps: tuple[str, ...] = ()
        if isinstance(parent.spec, TiedSpec):
            theta_P = parent.spec.untie(theta_P[None])[0]
        else:
            base, theta_P, steps = (folded := fold(base, theta_P)).spec, folded.theta_P, folded.steps
            ties = ties_of(base)[1]
        wrong, total = self._exam(base).wrong(theta_P)
        if wrong > (1 - self.asked.accept.exact) * total:
            what = f"it adds {wrong:,} of {total:,} of our own problems wrongly"
            raise UserError(f"start: {preset_name(parent.spec)} has not grokked: {what}")
        loss = float(self._exam(base).programs.evaluate(theta_P[None])["loss"])
        *before, last = parent.lineage
        then = {**last, "then": [f"folded: {says}" for says in steps]}
        start = InitialTheta(base, {ANY: tuple(theta_P.tolist())}, (*before, then), number)
        return TieCandidate(number, 0, ties, reached=1.0 - wrong / total, wrong=wrong, loss=loss, start=start)

    def _propose(self) -> None:
        """Write the next round: the sets of each parent, none of them known, none twice."""
        found: list[TieCandidate] = []
        parents = self._parents()
        for place, parent in enumerate(parents):
            count = -(-(self.asked.proposals - len(found)) // (len(parents) - place))
            base = _start(parent).spec
            known = {t.ties for t in [*self.tried, *found] if self._base(t) == base}
            sets = propose(
                self.asked, self._as_parent(parent), count, self._several(), known, len(self.tried) + place
            )
            first = len(self.tried) + len(found)
            found += [
                TieCandidate(first + n, self.rounds + 1, ties, parent=parent.number)
                for n, ties in enumerate(sets)
            ]
        found = [replace(t, configuration=self._configuration(t).key) for t in found]
        self.is_stuck = not found
        if found:
            self.sets.propose([(t, self._configuration(t)) for t in found])
            self.tried += found
            self.waiting = [t.number for t in reversed(found)]

    def _parents(self) -> list[TieCandidate]:
        """Best first: the fewest numbers, where each round that a set was gone on from counts as one
        more; so one that does not give way is left for its siblings, and taken up again later.
        """
        visits: dict[int | None, set[int]] = {}
        for t in self.tried:
            visits.setdefault(t.parent, set()).add(t.round)
        order = sorted(self.kept, key=lambda t: (t.numbers + len(visits.get(t.number, ())), t.loss or 0.0))
        return order[: self.asked.beam]

    def _several(self) -> int:
        """How many constraints at once: more while that works, fewer where it does not."""
        several = SEVERAL
        for number in range(1, self.rounds + 1):
            kept = [t for t in self.kept if t.round == number and t.parent is not None]
            gained = max((self.tried[t.parent or 0].numbers - t.numbers for t in kept), default=0)
            several = min(MOST_SEVERAL, 2 * several) if gained >= several else max(2, gained)
        return several

    def _as_parent(self, tried: TieCandidate) -> Parent:
        start = _start(tried)
        children = [
            (t.ties, t.round, t.reached)
            for t in self.tried
            if t.parent == tried.number and t.reached is not None
        ]
        return Parent(start.spec, tried.ties, start.thetas[ANY], children)

    # ---- sets

    def _base(self, tried: TieCandidate) -> Spec:
        while tried.start is None:
            tried = self.tried[tried.parent or 0]
        return tried.start.spec

    def _configuration(self, tried: TieCandidate) -> Configuration:
        if tried.configuration and tried.configuration in self.configurations:
            return self.configurations[tried.configuration]
        start = _start(self.tried[tried.parent or 0])
        made = Configuration(tie(start.spec, tried.ties), self.recipe, start)
        self.configurations[made.key] = made
        return made

    @cached_property
    def recipe(self) -> Recipe:
        """Of every set."""
        return self.study.base_recipe()

    def _exam(self, base: Spec) -> AcceptanceSet:
        return self.exams.setdefault(base, AcceptanceSet(base))

    def _examined(self, tried: TieCandidate, seed: RecordedSeed) -> TieCandidate:
        """A set as one of its seeds has it: kept if that gets enough of our own problems right."""
        spec, result = seed.configuration.spec, seed.result
        base = self._base(tried)
        own_P = result.theta_P
        theta_P = spec.untie(own_P[None])[0] if isinstance(spec, TiedSpec) else own_P
        wrong, total = self._exam(base).wrong(theta_P)
        at = result.best_step // result.pair.recipe.eval_every - 1
        loss = float(result.curve_EM[at, 2])
        if wrong > (1 - self.asked.accept.exact) * total:
            return replace(tried, wrong=wrong, loss=loss)
        lineage = tuple(lineage_of(seed.checkpoint()))
        start = InitialTheta(base, {ANY: tuple(theta_P.tolist())}, lineage)
        return replace(tried, wrong=wrong, loss=loss, start=start)

    def _better(self, one: TieCandidate, other: TieCandidate) -> TieCandidate:
        """Of two seeds of a set the one that is kept, or has fewer wrong, or the lower loss."""
        if one.wrong is None or other.wrong is None:
            return other if one.wrong is None else one
        return min((one, other), key=lambda t: (t.start is None, t.wrong, t.loss))


def _start(tried: TieCandidate) -> InitialTheta:
    assert tried.start is not None
    return tried.start
