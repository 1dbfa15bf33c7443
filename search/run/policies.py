"""Policies of what a study trains next. Each says the next round, given the states of the configurations."""

from __future__ import annotations

from search.run.allocation import select_for_confirmation, select_for_more_seeds
from search.run.packing import Capacity
from search.run.study_run import ConfigurationState, Round, StudyRun
from search.study.kind import ProposalSource


class Policy:
    """One way in which a study goes on."""

    def __init__(self, run: StudyRun):
        self.run = run

    def next_round(self, capacity: Capacity) -> Round | None:
        """Return a round with seeds to train, or None if there is none now."""
        raise NotImplementedError

    def has_more(self) -> bool:
        """True if rounds may follow though nothing is in training."""
        return bool(self._candidates())

    def _candidates(self) -> list[ConfigurationState]:
        """Return the configurations that are to get more seeds."""
        return []


class Sweep(Policy):
    """Rounds of the study's list of seeds: the first one, and further ones while `until` asks for more.

    In a list of configurations the next round is begun while the one before is in training. In a search other
    proposals fill the slots.
    """

    def next_round(self, capacity: Capacity) -> Round | None:
        if self.run.is_search:
            return None
        for state in sorted(self.run.states.values(), key=lambda s: s.rounds_enqueued):
            if following := self.run.following_round(state):
                return following
        return None


class Search(Policy):
    """Configurations that Optuna or a package proposes, and is told about."""

    def __init__(self, run: StudyRun, proposals: ProposalSource | None):
        super().__init__(run)
        self.proposals = proposals
        self.is_stuck = False
        """True once the next proposal waits for a seed that this run trains no more: one that failed too often."""

    def next_round(self, capacity: Capacity) -> Round | None:
        """Return the first round of a new proposal.

        At most a quarter of the proposals are open at once, or one per worker if these are more: the sampler is to
        learn from those before.
        """
        limit = max(capacity.concurrent, self.run.study.planned // 4)
        while self.has_more():
            open_ = sum(not state.is_complete for state in self.run.states.values())
            if open_ >= limit:
                return None

            assert self.proposals is not None
            configuration = self.proposals.ask()
            if configuration is None:
                self.is_stuck = not open_
                return None

            is_new = configuration.key not in self.run.states
            state = self.run.add(configuration)
            if is_new and (first := self.run.first_round(state)):
                return first
            if state.is_complete:  # a repeated proposal shares the result
                self.report(state)
        return None

    def has_more(self) -> bool:
        return self.proposals is not None and not (self.is_stuck or self.proposals.exhausted or self.run.enough)

    def report(self, state: ConfigurationState) -> None:
        """Tell the sampler of a proposal whose first round was trained; one that was cut short stays open."""
        if self.proposals and all(map(state.is_final, self.run.seed_rounds[0])):
            ended = [row for row in state.search_rows if row.is_final]
            self.proposals.tell(state.configuration, ended)


class Allocation(Policy):
    """Further rounds for the most promising configurations, after the search."""

    def __init__(self, run: StudyRun, search: Search):
        super().__init__(run)
        self.search = search

    def next_round(self, capacity: Capacity) -> Round | None:
        if self.search.has_more():
            return None
        for state in self._candidates():
            if further := self.run.further_round(state):
                return further
        return None

    def _candidates(self) -> list[ConfigurationState]:
        """Return the configurations that deserve more seeds. One with a censored seed waits for a later run."""
        rule = self.run.study.allocation
        states = self.run.states
        if rule is None:
            return []

        scores = self.run.scores()
        pending = sum(len(state.pending) for state in states.values())
        ended = sum(score.rate.n for score in scores.values())
        if rule.budget is not None and pending + ended + len(self.run.seed_rounds[0]) > rule.budget:
            return []

        candidates = [states[key] for key in select_for_more_seeds(scores, rule)]
        return [state for state in candidates if state.is_complete and all(row.is_final for row in state.rows.values())]


class Confirmation(Policy):
    """Fresh seeds for the best configurations, once the search has ended. The search alone chooses them."""

    def __init__(self, run: StudyRun, search: Search):
        super().__init__(run)
        self.search = search
        self.seeds = run.study.confirm_seeds

    def next_round(self, capacity: Capacity) -> Round | None:
        is_searching = any(False in state.pending.values() for state in self.run.states.values())
        if self.search.has_more() or is_searching:
            return None
        for state in self._candidates():
            state.is_confirming = True
            if seeds := state.untrained(self.seeds):
                return Round(state.configuration, seeds, confirmation=True)
        return None

    def _candidates(self) -> list[ConfigurationState]:
        """Return the best configurations that are not confirmed."""
        if self.run.study.confirm is None:
            return []

        by_size = self.run.study.kind.seeks_few_parameters
        keys = select_for_confirmation(self.run.scores(), self.run.study.confirm.configurations, by_size)
        states = [self.run.states[key] for key in sorted(keys)]
        return [s for s in states if not s.is_confirming and not all(map(s.is_final, self.seeds))]
