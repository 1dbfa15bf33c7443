"""Random studies and random orders of events against what a plan promises, whatever happens to its workers.

A seed's outcome is a function of configuration and seed, so every order must come to the same records, but for
seeds that nobody needed.
"""

import hashlib
import random
from dataclasses import replace

import pytest

from search.kinds.proposals import Proposals
from search.run.packing import Capacity
from search.run.planner import Planner
from search.stats.record import ENOUGH
from search.study.file import parse_study
from tests import by_tier
from tests.planners import Given, row_of
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
        text += f"resources: {{slots: {draw.randint(1, 4)}}}\n"
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
    """A driver and its workers, made up: what they do comes from `draw`, what seeds become from their keys.

    fails: how probable it is that a worker dies at the end of something.
    """

    def __init__(self, home, draw, text, fails=0.0):
        self.draw, self.fails = draw, fails
        self.study = parse_study(text, "any")
        self.records, self.rows = Given(home, self.study, []), {}
        self.rate = draw.choice([0.05, 0.3, 0.8])
        self.failed, self.concluded = set(), []
        self.start()

    def start(self):
        """A driver, the first or one after another died."""
        for key, row in self.rows.items():
            if row.outcome == Outcome.RUNNING:
                self.censor(key, "its driver died")
        self.records.given = list(self.rows.values())
        proposals = Proposals(self.study, self.records) if self.study.space else None
        self.planner = Planner(self.study, self.records.given, proposals)
        self.planner.capacity = Capacity(self.draw.randint(1, 3))
        self.failed = set()

    def censor(self, key, reason):
        self.rows[key] = replace(self.rows[key], outcome=Outcome.CENSORED, reason=reason)

    @property
    def held(self):
        """Workers with pairs, and their pairs by number."""
        return {name: dict(bank.pairs) for name, bank in self.planner.banks.items() if bank.pairs}

    def groks(self, pair):
        digest = hashlib.sha256(f"{pair.configuration.key} {pair.seed}".encode()).digest()
        return digest[0] / 256 < self.rate

    def taken(self):
        """A worker asks: one with pairs or one without."""
        worker = str(self.draw.randrange(3))
        before = {pair.key for pairs in self.held.values() for pair in pairs.values()}
        pairs = list(self.planner.take(worker, self.draw.random() < 0.8).values())
        for pair in pairs:
            assert pair.key not in self.failed, "a seed that failed is not tried again in one run"
            assert pair.key not in before, "two workers have it"
            assert pair.key not in self.rows or not self.rows[pair.key].is_final, "trained twice"
            self.rows[pair.key] = replace(row_of(pair, Outcome.RUNNING), steps=0)
        bank = self.planner.banks.get(worker)
        assert len({pair.configuration.program for pair in bank.pairs.values()} if bank else ()) <= 1
        return bool(pairs)

    def reported(self, worker, pairs):
        """Some seeds are perfect, and go on."""
        perfect = [n for n, pair in pairs.items() if self.groks(pair) and self.draw.random() < 0.5]
        perfect += [n for n, pair in pairs.items() if pair.has_grokked]
        self.planner.update(worker, dict.fromkeys(pairs, 500), perfect)

    def ended(self, worker, pairs):
        """Some seeds end; those that nobody needs are cut."""
        needless = self.planner.needless(worker)
        cut = [n for n in needless if not pairs[n].has_grokked]
        others = [n for n in pairs if n not in cut and self.draw.random() < 0.5]
        rows = []
        for n in others:
            row = row_of(pairs[n], Outcome.GROKKED if self.groks(pairs[n]) else Outcome.FAILED)
            self.rows[pairs[n].key] = row
            rows.append(row)
        for n in cut:
            if self.draw.random() < 0.5:  # it had begun
                self.censor(pairs[n].key, ENOUGH)
                rows.append(self.rows[pairs[n].key])
            else:
                del self.rows[pairs[n].key]
        gone = self.planner.end(worker, [*others, *cut])
        self.complete(gone, rows, [pairs[n] for n in cut])

    def died(self, worker):
        """A worker dies; what failed too often is given up."""
        lost = self.planner.give_back(worker, self.draw.random() < 0.7)
        for pair in lost:
            self.failed.add(pair.key)
            self.censor(pair.key, "no luck")
        if lost:
            self.complete(lost, [self.rows[pair.key] for pair in lost])

    def complete(self, pairs, rows, cut=()):
        states = [t.state.name for t in self.planner.search.proposals.trials()] if self.study.space else []
        over = self.planner.complete(pairs, rows, cut)
        for c in over:
            at_work = [pair for held in self.held.values() for pair in held.values()]
            assert all(pair.configuration != c for pair in at_work), "concluded while it trains"
        self.concluded += over
        self.check_told(states)

    def check_told(self, before):
        """What the sampler was told now was trained whole, and is with no worker."""
        for trial, state in zip(self.planner.search.proposals.trials() if before else (), before, strict=False):
            if trial.state.name == "COMPLETE" and state == "RUNNING":
                key = trial.user_attrs["configuration"]
                rows = {r.seed: r for r in self.rows.values() if r["configuration"] == key}
                assert all(s in rows and rows[s].is_final for s in self.study.first_seeds)
                assert not any(pair.configuration.key == key for held in self.held.values() for pair in held.values())

    def step(self):
        """Something happens. False once the plan is done."""
        kind, held = self.draw.random(), self.held
        worker = self.draw.choice(sorted(held)) if held else ""
        if held and kind < 0.3:
            self.reported(worker, held[worker])
        elif held and kind < 0.6:
            self.ended(worker, held[worker])
        elif held and kind < 0.6 + 0.1 * self.fails:
            self.died(worker)
        elif not self.taken() and not self.held:
            self.planner.banks.clear()  # workers that may not switch have ended
            if not self.taken():
                assert self.planner.is_done, "nothing is in training, and nothing is to be begun"
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
        recorded = {place for place, row in self.rows.items() if row.is_final} | self.failed
        for c in [s.configuration for s in self.planner.study_run.states.values()]:
            if self.planner.study_run.has_enough(c):
                continue
            rounds = self.study.rounds
            needed = [s for seeds in (rounds if self.study.until.grokked else rounds[:1]) for s in seeds]
            assert {(c.key, s.init_seed, s.data_seed) for s in needed} <= recorded, "seeds were forgotten"
        if self.study.space:
            final = {(key, init) for key, init, _ in recorded - self.failed}
            told = {c.key for c in reported(self.planner.search.proposals)}
            first = [s.init_seed for s in self.study.first_seeds]
            cut = {key for (key, *_), row in self.rows.items() if not row.is_final}  # they stay open
            assert told - cut == {key for key, _ in final if all((key, s) in final for s in first)} - cut

    def confirmed(self):
        return {key for (key, *_), row in self.rows.items() if row["confirmation"]}


@pytest.mark.parametrize("number", by_tier(range(120, 160), range(120, 140)))
def test_whatever_the_order_each_seed_is_trained_once_and_none_is_forgotten(number, home):
    draw = random.Random(number)
    run = Run(home, draw, text_of(draw), fails=draw.choice([0.0, 0.3, 1.0]))
    run.to_the_end()
    run.check_end()
    if not run.failed:
        run.start()
        assert run.planner.is_done and not run.planner.take("a"), "a finished study is done"


@pytest.mark.parametrize("number", by_tier(range(40), range(20)))
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
        seeds = {(key, s.init_seed, s.data_seed) for key in begun for s in run.study.confirm_seeds}
        assert seeds <= {place for place, row in run.rows.items() if row.is_final}, "begun, and not ended"
        grokked = {r["configuration"] for r in run.rows.values() if r["outcome"] == Outcome.GROKKED}
        assert bool(run.confirmed()) == bool(grokked), "the best is confirmed, whoever was there when it won"
