"""Searches for the tests: spaces, proposals that remember what they wrote, and rows to tell them of."""

from dataclasses import replace
from typing import Any, cast

from optuna.trial import TrialState

from search.kinds.proposals import KEY, Proposals
from search.stats.record import SeedRecord
from search.store.study_records import StudyRecords, Values
from search.study.file import parse_study
from search.study.trial import Configuration
from tests.bad_studies import GOOD
from trainer import Outcome

SPACE = """
space:
  recipe.mixed_lengths: {float: [0.1, 0.6], step: 0.1}
  recipe.fade_end: {int: [1000, 9000], after: recipe.fade_start, step: 4000}
  recipe.curriculum: {choice: [[], [[3, 2000], [6, 5000]]]}
  model.qk_dim: {choice: [3, 4]}
"""  # a grid of 72
LINE = "space: {recipe.lr: {float: [0, 1]}, recipe.clip: {float: [0, 1]}}\n"
STEPS = "recipe.steps: {int: [3000, 6000], step: 250}"
IMPOSSIBLE = f"space: {{{STEPS}, recipe.eval_every: {{choice: [250, 500, 750, 1000]}}}}\n"
NARROW = "space: {recipe.lr: {float: [0.01, 0.02]}, model.qk_dim: {choice: [3, 4]}}\n"


class Memory:
    """A study's records in memory, with the methods that a search calls."""

    def __init__(self) -> None:
        self.proposed: list[Values] = []
        self.known: dict[str, Configuration] = {}
        self.recorded: list[SeedRecord] = []

    def create_proposal(self, number: int, configuration: Configuration | None, numbers: Values) -> None:
        assert number == len(self.proposed)
        key = configuration and configuration.key
        self.proposed.append({"number": number, "configuration": key, "numbers": dict(numbers)})
        if configuration:
            self.known.setdefault(configuration.key, configuration)

    def list_proposals(self) -> list[Values]:
        return list(self.proposed)

    def list_configurations(self) -> dict[str, Configuration]:
        return dict(self.known)

    def list_seeds(self) -> list[SeedRecord]:
        return list(self.recorded)


def proposals_of(
    ledger: Memory, name: str = "tpe", count: int | None = 24, space: str = SPACE, more: str = ""
) -> Proposals:
    given = f"sampler: {{name: {name}, configurations: {'null' if count is None else count}{more}}}\n"
    begin = GOOD.replace("model: 57p\n", "") if "model: " in space else GOOD
    return Proposals(parse_study(begin + space + given, "test"), cast(StudyRecords, ledger))


def row(outcome: Outcome = Outcome.FAILED, token: float | None = 0.5, step: int | None = None) -> SeedRecord:
    return SeedRecord(outcome=outcome, best_token=token, grok_step=step)


def train(proposals: Proposals, configuration: Configuration, *rows: SeedRecord) -> None:
    """Record rows, one a seed, and tell of them, as a driver does."""
    ledger = cast(Memory, proposals.records)
    key = configuration.key
    mine = [replace(row, configuration=key, init_seed=n, data_seed=n) for n, row in enumerate(rows, start=1)]
    others = [r for r in ledger.recorded if r.configuration != key]
    ledger.recorded = [*others, *mine]
    proposals.tell(configuration, mine)


def asked(proposals: Proposals, most: int = 1_000) -> list[Configuration]:
    """Ask and tell, at most so often."""
    found: list[Configuration] = []
    while len(found) < most and (configuration := proposals.ask()) is not None:
        found.append(configuration)
        train(proposals, configuration, row(token=configuration.recipe.lr % 1))
    return found


def numbers(proposals: Proposals) -> list[dict[str, Any]]:
    return [t.params for t in proposals.trials()]


def states(proposals: Proposals) -> list[TrialState]:
    return [t.state for t in proposals.trials()]


def reported(proposals: Proposals) -> list[Configuration]:
    """The proposals that Optuna was told of, each once."""
    keys = [t.user_attrs[KEY] for t in proposals.trials() if t.state == TrialState.COMPLETE]
    return [c for c in proposals.proposed() if c.key in keys]
