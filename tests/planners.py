"""Studies, planners and ledger rows for the tests of what is trained next."""

from search.run.packing import Capacity, interrupted
from search.run.planner import Planner
from search.run.proposals import Proposals
from search.run.tally import TrialReport
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.file import parse_study
from search.study.trial import Configuration
from trainer import Outcome

SWEEP = """
name: sweep
model: 57p
recipe: {steps: 1000}
seeds: {first: 1, count: 5}
resources: {seeds_per_trial: 2}
"""
SEARCH = """
name: search
model: 57p
recipe: {steps: 1000}
seeds: {first: 1, count: 3}
resources: {seeds_per_trial: 2}
space: {recipe.lr: {float: [0.001, 0.1], log: true}, model.qk_dim: {int: [3, 5]}}
sampler: {name: random, configurations: 4, seed: 1}
"""
ONLY = SEARCH[: SEARCH.index("space: ")]


class Given(StudyRecords):
    """A study's records in a home, but for the rows."""

    def __init__(self, home, study, rows):
        super().__init__(Ledger(home), study.name)
        self.given = rows

    def list_seeds(self):
        return list(self.given)


def planner_of(text, home, rows=(), ahead=2):
    study, rows = parse_study(text, "test"), list(rows)
    records = Given(home, study, rows)
    proposals = Proposals(study, records) if study.space else None
    listed = [Configuration(*c) for c in study.listed]
    planner = Planner(study, rows, proposals, interrupted(study, rows, records, listed))
    planner.capacity = Capacity(ahead)
    return planner


def rows_of(trial, outcome=Outcome.FAILED, token=0.5):
    """The ledger's rows of a trial whose seeds have all ended so."""
    return [
        {
            "configuration": configuration.key,
            "init_seed": seed.init_seed,
            "data_seed": seed.data_seed,
            "trial": trial.key,
            "confirmation": trial.confirmation,
            "outcome": outcome,
            "grok_step": 500 if outcome == Outcome.GROKKED else None,
            "best_token": token,
        }
        for configuration, seed in trial.work
    ]


def hear(planner, trial, rows):
    """Tell a planner what a worker says of a trial's seeds: configuration, outcome and grok_step of each."""
    known = {"seed": (0, 0), "step": 0, "budget": 1_000, "best_exact": 0.0}
    planner.update_progress(trial, TrialReport.of([known | row for row in rows]))


def said_of(trial, ended=(), grokked=()):
    """Rows for `hear`. ended: numbers of seeds that have failed; grokked: of seeds that go on perfectly."""
    return [
        {
            "configuration": c.key,
            "outcome": Outcome.FAILED if s.init_seed in ended else Outcome.RUNNING,
            "grok_step": 500 if s.init_seed in grokked else None,
        }
        for c, s in trial.work
    ]


def drain(planner):
    """Every trial that can start now."""
    trials = []
    while trial := planner.next():
        trials.append(trial)
    return trials


def finish(planner, outcome=Outcome.FAILED):
    """Run a plan to its end, one trial after the other. Returns trials and complete configurations."""
    trials, complete = [], []
    while trial := planner.next():
        trials.append(trial)
        complete += planner.complete_trial(trial, rows_of(trial, outcome))
    assert planner.is_done
    return trials, complete


def only(trial):
    """The configuration of a trial that has one."""
    (configuration,) = trial.configurations
    return configuration


def numbers(trials):
    return [[s.init_seed for _, s in t.work] for t in trials]
