"""Studies, planners and ledger rows for the tests of what is trained next."""

from search.kinds.proposals import Proposals
from search.run.packing import Capacity
from search.run.planner import Planner
from search.stats.record import SeedRecord
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
resources: {slots: 2}
"""
SEARCH = """
name: search
model: 57p
recipe: {steps: 1000}
seeds: {first: 1, count: 3}
resources: {slots: 2}
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
    proposals = Proposals(study, Given(home, study, rows)) if study.space else None
    planner = Planner(study, rows, proposals, [Configuration(*c) for c in study.listed])
    planner.capacity = Capacity(ahead)
    return planner


def row_of(pair, outcome=Outcome.FAILED, token=0.5):
    """The ledger's row of a pair that has ended so."""
    key, init_seed, data_seed = pair.key
    return SeedRecord(
        configuration=key,
        init_seed=init_seed,
        data_seed=data_seed,
        confirmation=pair.confirmation,
        outcome=outcome,
        steps=pair.configuration.recipe.steps,
        grok_step=500 if outcome == Outcome.GROKKED else None,
        best_token=token,
    )


def end(planner, worker, pairs, rows=None):
    """Tell a planner that pairs of a worker have ended. Returns the configurations that are complete."""
    numbers = [n for n, pair in planner.banks[worker].pairs.items() if pair in pairs]
    planner.end(worker, numbers)
    rows = [row_of(pair) for pair in pairs] if rows is None else rows
    cut = [pair for pair, row in zip(pairs, rows, strict=True) if row["outcome"] == Outcome.CENSORED]
    return planner.complete(pairs, rows, cut)


def taken(planner, worker="a"):
    """The pairs that a worker is handed now."""
    return list(planner.take(worker).values())


def hear(planner, worker, grokked=(), step=500):
    """Tell a planner that a worker's seeds of these numbers have been perfect, and train on like the others."""
    pairs = planner.banks[worker].pairs
    perfect = [n for n, pair in pairs.items() if pair.seed.init_seed in grokked]
    planner.update(worker, dict.fromkeys(pairs, step), perfect)


def finish(planner, outcome_of=lambda pair: Outcome.FAILED, workers=1):
    """Run a plan to its end, in rounds of workers whose pairs all end at once.

    Returns the pairs that were trained, in rounds, and the configurations in the order in which they were complete.
    """
    trained, complete = [], []
    while True:
        had = {w: list(planner.take(str(w)).values()) for w in range(workers)}
        had = {w: pairs for w, pairs in had.items() if pairs}
        if not had:
            break
        for w, pairs in had.items():
            trained.append(pairs)
            complete += end(planner, str(w), pairs, [row_of(pair, outcome_of(pair)) for pair in pairs])
    assert planner.is_done
    return trained, complete


def rows_of(trained, outcome_of=lambda pair: Outcome.FAILED):
    """The ledger's rows of what `finish` trained."""
    return [row_of(pair, outcome_of(pair)) for pairs in trained for pair in pairs]


def numbers(pairs):
    return [pair.seed.init_seed for pair in pairs]
