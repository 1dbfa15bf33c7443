"""Random studies and random orders of events against what a plan promises, whatever happens to its trials.

A seed's outcome is a function of configuration and seed, so every order must come to the same records, but for
seeds that nobody needed.
"""

import hashlib
import random

import pytest

from search.run.packing import Capacity
from search.run.planner import Planner
from search.run.proposals import Proposals
from search.stats.counting import seed_of
from search.store.record import is_final
from search.study.file import parse_study
from tests.planners import Given, hear, rows_of
from tests.searches import reported
from trainer import Outcome

BASE = "name: any\nmodel: 57p\nrecipe: {steps: 1000}\n"
LISTS = ["", "configurations: [{recipe: {lr: 0.01}}, {recipe: {lr: 0.02}}, {model: 67p}]\n"]
SPACES = [
    "space: {recipe.lr: {float: [0.001, 0.1]}}\n",
    "space: {recipe.hold: {choice: [1, 2, 3]}, recipe.lr: {choice: [0.01, 0.02]}}\n",  # repeats itself
    "space: {recipe.steps: {int: [1000, 2000], step: 500}, recipe.eval_every: {choice: [500, 1000]}}\n",
]
CONFIRM = "confirm: {configurations: 2, seeds: {first: 101, count: 3}}\n"


def text_of(draw):
    """A study file: a list or a search, with rounds, an allocation, a confirmation or without."""
    seeds = draw.randint(1, 5)
    text = BASE + f"seeds: {{first: 1, count: {seeds}}}\n"
    if draw.random() < 0.7:
        text += f"resources: {{seeds_per_trial: {draw.randint(1, 4)}}}\n"
    is_search = draw.random() < 0.5
    if is_search:
        text += draw.choice(SPACES)
        text += f"sampler: {{name: random, configurations: {draw.randint(1, 8)}, seed: {draw.randint(0, 99)}}}\n"
    else:
        text += draw.choice(LISTS)
    rule, most = draw.random(), seeds + draw.randint(0, 8)
    if rule < 0.5:
        limit = f", max_seeds: {most}" if not is_search or draw.random() < 0.3 else ""
        text += f"until: {{grokked: {draw.randint(1, 3)}{limit}}}\n"
    elif rule < 0.75:
        text += f"allocation: {{threshold: 0.3, most: {most}}}\n"
    return text + (CONFIRM if draw.random() < 0.5 else "")


class Run:
    """A driver and its workers, made up: what they do comes from `draw`, what seeds become from their keys."""

    def __init__(self, home, draw, text, fails=0.0):
        self.home, self.draw, self.fails = home, draw, fails
        self.study = parse_study(text, "any")
        self.records, self.rows = Given(home, self.study, []), {}
        self.rate = draw.choice([0.05, 0.3, 0.8])
        self.failed, self.concluded = set(), []
        self.start()

    def start(self):
        """A driver, the first or one after another died."""
        for row in self.rows.values():
            if row["outcome"] == Outcome.RUNNING:
                row["outcome"] = Outcome.CENSORED
        self.records.given = list(self.rows.values())
        proposals = Proposals(self.study, self.records) if self.study.space else None
        self.planner = Planner(self.study, self.records.given, proposals)
        self.planner.capacity = Capacity(self.draw.randint(1, 3))
        self.running, self.ended, self.failed = {}, set(), set()

    def groks(self, configuration, seed):
        digest = hashlib.sha256(f"{configuration.key} {seed}".encode()).digest()
        return digest[0] / 256 < self.rate

    def started(self, trial):
        for (c, s), row in zip(trial.work, rows_of(trial, Outcome.RUNNING), strict=True):
            place = (c.key, s)
            assert place not in self.failed, "a seed that failed is not tried again in one run"
            assert all(place not in [(o.key, t) for o, t in other.work] for other in self.running.values())
            assert place not in self.rows or not is_final(self.rows[place]), "trained twice"
            self.rows[place] = row | {"steps": 0}
        self.running[trial.key] = trial

    def reported(self, trial):
        """Some more of the trial's seeds have ended, or are perfect and go on."""
        self.ended |= {(c.key, s) for c, s in trial.work if self.draw.random() < 0.5}
        rows = []
        for c, s in trial.work:
            has_ended = (c.key, s) in self.ended
            perfect = has_ended and self.groks(c, s)
            outcome = Outcome.FAILED if has_ended and not perfect else Outcome.RUNNING
            rows.append({"configuration": c.key, "outcome": outcome, "grok_step": 500 if perfect else None})
        hear(self.planner, trial, rows)

    def completed(self, trial):
        """The trial's end: its results, without seeds that nobody needs any more; or its failure."""
        del self.running[trial.key]
        is_lost = self.draw.random() < self.fails
        for c, s in trial.work:
            row = self.rows[c.key, s]
            if is_lost:
                row["outcome"] = Outcome.CENSORED
                self.failed.add((c.key, s))
            elif (c.key, s) in self.ended or trial.confirmation or not self.planner.study_run.has_enough(c):
                row["outcome"] = Outcome.GROKKED if self.groks(c, s) else Outcome.FAILED
                row["grok_step"] = 500 if self.groks(c, s) else None
            else:
                del self.rows[c.key, s]
        self.ended -= {(c.key, s) for c, s in trial.work}
        self.records.given = list(self.rows.values())
        mine = [r for r in self.rows.values() if r["trial"] == trial.key]
        states = [t.state.name for t in self.planner.search.proposals.trials()] if self.study.space else []
        over = self.planner.complete_trial(trial, mine)
        for c in over:
            assert not any(c in t.configurations for t in self.running.values()), "concluded while it trains"
        self.concluded += over
        self.check_told(states)

    def check_told(self, before):
        """What the sampler was told now was trained whole, and is in no trial that runs or waits."""
        for trial, state in zip(self.planner.search.proposals.trials() if before else (), before, strict=False):
            if trial.state.name == "COMPLETE" and state == "RUNNING":
                key = trial.user_attrs["configuration"]
                rows = {seed_of(r): r for r in self.rows.values() if r["configuration"] == key}
                assert all(s in rows and is_final(rows[s]) for s in self.study.first_seeds)
                assert not any(key == c.key for t in self.running.values() for c in t.configurations)

    def step(self):
        """Something happens. False once the plan is done."""
        kind = self.draw.random()
        if self.running and kind < 0.4:
            self.reported(self.draw.choice(list(self.running.values())))
        elif self.running and kind < 0.6:
            self.completed(self.draw.choice(list(self.running.values())))
        elif kind < 0.65 and (
            unseen := [t for k, t in self.running.items() if k not in self.planner.study_run.reports]
        ):
            trial = self.running.pop(self.draw.choice(unseen).key)
            for c, s in trial.work:
                del self.rows[c.key, s]
            self.planner.requeue(trial)
        else:
            after = self.draw.choice([None, *self.running.values()])
            trial = self.planner.next(after)
            if trial is not None:
                self.started(trial)
            elif not self.running:
                assert self.planner.is_done, "nothing runs, and nothing is to be begun"
                return False
        return True

    def to_the_end(self):
        for _ in range(5_000):
            if not self.step():
                return
        raise AssertionError("it does not end")

    def check_end(self):
        """Each round of each configuration is trained, but for what there is enough of and what failed.

        The sampler was told of all proposals that were trained whole.
        """
        recorded = {place for place, row in self.rows.items() if is_final(row)} | self.failed
        for c in [s.configuration for s in self.planner.study_run.states.values()]:
            if self.planner.study_run.has_enough(c):
                continue
            rounds = self.study.rounds
            needed = [s for seeds in (rounds if self.study.until.grokked else rounds[:1]) for s in seeds]
            assert {(c.key, s) for s in needed} <= recorded, "seeds were forgotten"
        if self.study.space:
            final = recorded - self.failed
            told = {c.key for c in reported(self.planner.search.proposals)}
            assert told == {key for key, _ in final if all((key, s) in final for s in self.study.first_seeds)}

    def confirmed(self):
        return {key for (key, _), row in self.rows.items() if row["confirmation"]}


@pytest.mark.parametrize("number", range(120, 160))
def test_whatever_the_order_each_seed_is_trained_once_and_none_is_forgotten(number, home):
    draw = random.Random(number)
    run = Run(home, draw, text_of(draw), fails=draw.choice([0.0, 0.0, 0.3]))
    run.to_the_end()
    run.check_end()
    if not run.failed:
        run.start()
        assert run.planner.is_done and run.planner.next() is None, "a finished study is done"


@pytest.mark.parametrize("number", range(40))
def test_a_driver_that_dies_anywhere_changes_nothing_of_what_is_chosen(number, home):
    draw = random.Random(1_000 + number)
    run = Run(home, draw, text_of(draw))
    for _ in range(draw.randint(1, 4)):
        for _ in range(draw.randint(1, 30)):
            if not run.step():
                break
        run.start()
    begun = run.confirmed()
    run.to_the_end()
    run.check_end()
    if run.study.confirm:
        seeds = {(key, s) for key in begun for s in run.study.confirm_seeds}
        assert seeds <= {place for place, row in run.rows.items() if is_final(row)}, "begun, and not ended"
        grokked = {r["configuration"] for r in run.rows.values() if r["outcome"] == Outcome.GROKKED}
        assert bool(run.confirmed()) == bool(grokked), "the best is confirmed, whoever was there when it won"
