"""Searches for the tests: spaces, proposals that remember what they wrote, and rows to tell them of."""

from dataclasses import replace

from optuna.trial import TrialState

from search.kinds.proposals import KEY, Proposals
from search.stats.record import SeedRecord
from search.study.file import parse_study
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
NESTED = """
space:
  model.tie_vo: {choice: [true, false]}
  recipe.optimiser: {choice: [adamw, lion], when: {model.tie_vo: true}}
  recipe.lr: {float: [0.02, 0.05], when: {recipe.optimiser: adamw}}
"""  # the base has adamw, and another lr
TASKS = """
model: 262p
space:
  model.task: {choice: [addition, copy]}
  recipe.clip: {float: [2, 3], when: {model.task: addition}}
"""
NARROW = "space: {recipe.lr: {float: [0.01, 0.02]}, model.qk_dim: {choice: [3, 4]}}\n"


class Memory:
    """A study's records in memory, with the methods that a search calls."""

    def __init__(self):
        self.proposed = []
        self.known = {}
        self.recorded = []

    def create_proposal(self, number, configuration, numbers):
        assert number == len(self.proposed)
        key = configuration and configuration.key
        self.proposed.append({"number": number, "configuration": key, "numbers": dict(numbers)})
        if configuration:
            self.known.setdefault(configuration.key, configuration)

    def list_proposals(self):
        return list(self.proposed)

    def list_configurations(self):
        return dict(self.known)

    def list_seeds(self):
        return list(self.recorded)


def proposals_of(ledger, name="tpe", count=24, space=SPACE, more=""):
    given = f"sampler: {{name: {name}, configurations: {'null' if count is None else count}{more}}}\n"
    begin = GOOD.replace("model: 57p\n", "") if "model: " in space else GOOD
    return Proposals(parse_study(begin + space + given, "test"), ledger)


def row(outcome=Outcome.FAILED, token=0.5, step=None):
    return SeedRecord(outcome=outcome, best_token=token, grok_step=step)


def train(proposals, configuration, *rows):
    """Record rows, one a seed, and tell of them once all are final, as a planner does."""
    ledger = proposals.records
    key = configuration.key
    mine = [replace(row, configuration=key, init_seed=n, data_seed=n) for n, row in enumerate(rows, start=1)]
    others = [r for r in ledger.recorded if r.configuration != key]
    ledger.recorded = [*others, *mine]
    if all(row.is_final for row in mine):
        proposals.tell(configuration, mine)


def asked(proposals, most=1_000):
    """Ask and tell, at most so often."""
    found = []
    while len(found) < most and (configuration := proposals.ask()) is not None:
        found.append(configuration)
        train(proposals, configuration, row(token=configuration.recipe.lr % 1))
    return found


def numbers(proposals):
    return [t.params for t in proposals.trials()]


def states(proposals):
    return [t.state for t in proposals.trials()]


def reported(proposals):
    """The proposals that Optuna was told of, each once."""
    keys = [t.user_attrs[KEY] for t in proposals.trials() if t.state == TrialState.COMPLETE]
    return [c for c in proposals.proposed() if c.key in keys]
