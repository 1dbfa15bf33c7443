"""A study's descent: each candidate is a configuration of the study, which the planner has trained.

A round is written to the ledger before anything of it trains; each candidate is judged when its seeds have
ended, by their records. So a driver that dies anywhere is followed by one that goes on with the same
candidates, and no seed is trained twice.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from adders.acceptance import base_theta
from compress.candidates import DatabaseCandidates, TieCandidate
from compress.descent import Descent, Origin, Training
from compress.proposers import Rules
from compress.section import Compress, section_of
from model.fold import fold
from model.tied import Tied, tie, ties_of
from search.errors import reraise_as
from search.plugins import part
from search.stats.record import SeedRecord
from search.store.recorded_seed import RecordedSeed
from search.store.study_records import StudyRecords
from search.study.ancestors import ancestors_of
from search.study.schema import Study
from search.study.start import ANY, InitialTheta
from search.study.trial import Configuration
from trainer.recipe.seed import check_fit


class StudyDescent:
    """A study's `compress`: configurations that are proposed, and judged when their seeds have ended.

    A planner treats it as it treats a search's proposals (search/kinds/proposals.py).
    """

    def __init__(self, study: Study, parents: Sequence[InitialTheta], records: StudyRecords):
        """Begin, or go on. Raises UserError for a θ to start from that does not get enough right."""
        rules = _rules(section_of(study))
        self.study = study
        self.records = records
        self.descent = Descent(DatabaseCandidates(records), rules)
        origins = [] if self.descent.candidates else list(map(_origin, parents))
        with reraise_as():  # its path says where
            for spec in [ties_of(spec)[0] for spec, *_ in origins] or map(self.descent.base_of, self.descent.accepted):
                check_fit(spec, study.base_recipe, has_start=True)
                study.stop.check(spec, study.base_recipe)
        if origins:
            with reraise_as("start"):
                self.descent.begin(origins)
        self.configurations = records.list_configurations()
        self.waiting = [c.number for c in self.descent.candidates if c.reached is None]

    @property
    def exhausted(self) -> bool:
        """True if no round follows."""
        return self.descent.is_over

    def proposed(self) -> list[Configuration]:
        """Return all that was proposed before and is not judged."""
        numbers = self.waiting
        self.waiting = []
        return [self._configuration(self.descent.candidates[n]) for n in numbers]

    def ask(self) -> Configuration | None:
        """Return the next candidate of the round, or None while its last are in training, and at the end."""
        descent = self.descent
        if not self.waiting and not descent.is_open and not descent.is_over:
            proposals = descent.propose(descent.rules.proposals)
            configurations = [self._configuration(c) for c in proposals]
            keyed = list[TieCandidate]()
            for candidate, configuration in zip(proposals, configurations, strict=True):
                keyed.append(replace(candidate, configuration=configuration.key))
            if keyed:
                self.waiting = [c.number for c in descent.add(keyed, configurations)]
        return self._configuration(descent.candidates[self.waiting.pop(0)]) if self.waiting else None

    def tell(self, configuration: Configuration, rows: Sequence[SeedRecord]) -> None:
        """Judge the candidate of a configuration, whose seeds have ended, by their records."""
        candidates = self.descent.candidates
        candidate = next((c for c in candidates if c.configuration == configuration.key), None)
        if candidate is None or candidate.reached is not None:
            return
        # A planner has outcomes alone; the ledger has seeds too that were begun and are asked for no more.
        rows = [row for row in self.records.list_seeds(configuration.key) if row.is_final]
        self.waiting = [n for n in self.waiting if n != candidate.number]
        exact = max(r.best_exact or 0.0 for r in rows)
        right = (r for r in rows if self.descent.rules.is_enough(r.best_exact or 0.0))
        self.descent.judge(candidate, exact, map(self._training, self.records.seeds(right)))
        if not self.descent.is_open:
            self.descent.end_round()

    def _training(self, seed: RecordedSeed) -> Training:
        """Return a recorded seed as a training of its candidate."""
        result = seed.result
        recipe = seed.result.pair.recipe
        theta_P = base_theta(seed.configuration.spec, result.theta_P)
        loss = float(result.curve_EM[result.best_step // recipe.eval_every - 1, 2])
        if recipe.finish_above < 1:  # the curve stays that of the training
            loss = self.descent.acceptance_of(ties_of(seed.configuration.spec)[0]).loss(theta_P)
        return Training(
            (theta_P,),
            result.best_exact,
            loss,
            lineage=tuple(ancestors_of(seed.checkpoint())),
        )

    def _configuration(self, candidate: TieCandidate) -> Configuration:
        """Return a candidate's configuration: its model tied, trained from its parent's θ."""
        if candidate.configuration and candidate.configuration in self.configurations:
            return self.configurations[candidate.configuration]
        start = self.descent.parent_of(candidate).start
        assert start is not None
        configuration = Configuration(tie(start.spec, candidate.ties), self.study.base_recipe, start)
        self.configurations[configuration.key] = configuration
        return configuration


def _origin(parent: InitialTheta) -> Origin:
    """Return a θ that the study starts from, folded where a fold is known."""
    spec = parent.spec
    theta_P = torch.tensor(parent.thetas[ANY])
    *before, last = parent.lineage
    steps: tuple[str, ...] = ()
    if not isinstance(spec, Tied):
        folded = fold(spec, theta_P)
        spec = folded.spec
        theta_P = folded.theta_P
        steps = folded.steps
    return (
        spec,
        [theta_P],
        (*before, {**last, "then": [f"folded: {step}" for step in steps]}),
    )


def _rules(compress: Compress) -> Rules:
    """Return the rules of a study's section. Raises UserError for a proposer that is not installed."""
    if compress.proposer != "saliency":
        part("proposers", f"compress.proposer {compress.proposer}")  # which may be missing
    same = compress.model_dump(include={"proposer", "seed", "proposals", "beam", "rounds", "patience"})
    kinds = tuple(compress.kinds)
    accept = compress.accept
    return Rules(
        kinds=kinds,
        scope=compress.scope,
        accept=accept.exact,
        proved=accept.proved,
        **same,
    )
