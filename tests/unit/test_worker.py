"""A worker by itself: it asks, trains between a reply and its next report, and says what became of its pairs."""

import pickle

import pytest
import torch

from model import PRESETS
from search.run import worker
from search.run.messages import NewBank, Order, Reply
from search.run.worker import work
from search.stats.record import MEASURED
from search.study.resources import Resources
from search.study.trial import Configuration
from tests.banks import finish
from trainer import Bank, Outcome, Pair, Recipe, Seed
from trainer.stopping import Hopeless

pytestmark = pytest.mark.usefixtures("few_selection_problems")

RECIPE = Recipe(steps=6, batch=8, eval_every=2, hold=0, curriculum=(), fade_start=2, fade_end=6)
CONFIGURATION = Configuration(PRESETS["57p"], RECIPE)
ALWAYS = Hopeless(checkpoints=((0.3, 1.1, 1.1),))  # calls every seed hopeless at the first evaluation
RESOURCES = Resources(gpu=0, compiled=False, save_every=1)


def bank(slots=2, resources=RESOURCES):
    return NewBank(CONFIGURATION.spec, slots, resources)


def orders(*seeds, first=1, states=None):
    return [Order(n, Pair(RECIPE, Seed.of(s)), (states or {}).get(s)) for n, s in enumerate(seeds, first)]


class Running:
    """A worker whose messages go through bytes, as between processes. Its first report is there."""

    def __init__(self, name="a", **options):
        self.generator = work(name, **options)
        self.reports = [self._seen(next(self.generator))]

    def _seen(self, report):
        return pickle.loads(pickle.dumps(report))

    def send(self, **reply):
        self.reports.append(self._seen(self.generator.send(pickle.loads(pickle.dumps(Reply(**reply))))))
        return self.reports[-1]

    def to_the_end(self):
        """Every pair's end, by number."""
        while self.reports[-1].steps:
            self.send()
        return {n: seed for report in self.reports for n, seed in report.ended.items()}

    def close(self):
        with pytest.raises(StopIteration):
            self.generator.send(Reply(is_end=True))


def begun(*seeds, resources=RESOURCES, **reply):
    """A worker that has trained pairs of these seeds once."""
    running = Running()
    running.send(orders=orders(*seeds), bank=bank(resources=resources), **reply)
    return running


def alone(seed):
    """What a bank of its own makes of a seed, undisturbed."""
    return finish(Bank(CONFIGURATION.spec, [Pair(RECIPE, Seed.of(seed))], slots=2, compiled=False)).result(0)


def assert_as(ended, result):
    """A seed is reported as a bank made it, bit for bit."""
    assert (ended.outcome, ended.measured) == (result.outcome, {name: getattr(result, name) for name in MEASURED})
    for name in ("theta_P", "curve_EM", "probes_ER"):
        assert getattr(ended, name).tobytes() == getattr(result, name).numpy().tobytes(), name


def test_it_asks_first_and_trains_what_the_replies_bring():
    running = Running()
    (asks,) = running.reports
    assert (asks.worker, asks.attempt, asks.number, asks.steps, asks.ended) == ("a", 0, 0, {}, {})
    first = running.send(orders=orders(5, 6), bank=bank())
    assert first.steps == {1: 2, 2: 2} and first.number == 1
    assert running.send(orders=orders(7, first=3)).steps == {1: 4, 2: 4, 3: 0}, "it waits for a slot"
    third = running.send()
    assert third.steps == {3: 0} and {s.outcome for s in third.ended.values()} == {Outcome.FAILED}
    assert third.environment["slots"] == 2 and third.environment["engine"] == "programs"
    ended = running.to_the_end()
    assert sorted(ended) == [1, 2, 3] and running.reports[-1].steps == {}
    for number, seed in ((1, 5), (2, 6), (3, 7)):
        assert_as(ended[number], alone(seed))
    running.close()


def test_a_reply_that_comes_twice_changes_nothing():
    running = Running()
    twice = {"orders": orders(5), "bank": bank()}
    running.send(**twice)
    assert running.send(**twice).steps == {1: 4}
    assert_as(running.to_the_end()[1], alone(5))


def test_another_worker_goes_on_from_the_states():
    running = begun(5, 6)
    states = running.send().states
    assert sorted(states) == [1, 2]
    again = Running("b")
    report = again.send(orders=orders(6, 5, first=7, states={5: states[1], 6: states[2]}), bank=bank())
    assert report.steps == {} and sorted(report.ended) == [7, 8], "one evaluation was left"
    for number, seed in ((7, 6), (8, 5)):
        assert_as(report.ended[number], alone(seed))


def test_states_are_saved_as_often_as_the_study_and_the_driver_ask():
    rare = RESOURCES.model_copy(update={"save_every": 2})
    running = begun(5, resources=rare)
    assert [bool(report.states) for report in running.reports[1:]] == [False] and running.send().states
    running = begun(5, save_after_s=1_000.0)
    assert not running.send(save_after_s=1_000.0).states


def test_it_reports_news_and_otherwise_when_it_is_due(monkeypatch):
    """News: a seed that is perfect, or slots that fall free beyond an eighth."""
    monkeypatch.setattr(worker.time, "monotonic", lambda: 0.0)
    report = begun(5, 6, report_after_s=9.0).reports[-1]
    assert sorted(report.ended) == [1, 2] and report.number == 1, "nothing before they end"
    monkeypatch.setattr(worker.Bank, "newest", perfect_from(2, worker.Bank.newest))
    running = begun(5, 6, report_after_s=9.0)
    report = running.reports[-1]
    assert (report.steps, report.perfect, report.best_exact) == ({1: 2, 2: 2}, [1], 1.0)
    assert running.send(report_after_s=9.0).steps == {}, "it is news once"


def perfect_from(step, newest):
    def rows(self):
        found = newest(self)
        if found[0]["step"] >= step:
            found[0] |= {"grok_step": step, "best_exact": 1.0}
        return found

    return rows


def test_what_nobody_needs_ends_unless_it_has_grokked(monkeypatch):
    running = begun(5, 6, 7)
    whole = worker.Bank.result

    def result(self, n):
        found = whole(self, n)
        return found if n else worker.replace(found, grok_step=2)

    monkeypatch.setattr(worker.Bank, "result", result)
    report = running.send(enough=[1, 2, 3, 99])
    assert report.steps == {1: 4}
    cut = {n: (seed.outcome, seed.measured["steps"]) for n, seed in report.ended.items()}
    assert cut == {2: (Outcome.CENSORED, 2), 3: (Outcome.CENSORED, 0)}


def test_hopeless_seeds_are_given_up_but_for_those_spared():
    running = Running()
    pairs = [Pair(RECIPE, Seed.of(n), rules=(ALWAYS,), spared=n == 2) for n in (1, 2, 3)]
    running.send(orders=[Order(n, pair) for n, pair in enumerate(pairs, 1)], bank=bank())
    ended = running.to_the_end()
    names = ("steps", "hopeless_step")
    facts = {n: (s.outcome, *(s.measured[name] for name in names), len(s.curve_EM)) for n, s in ended.items()}
    given_up = (Outcome.GIVEN_UP, 2, 2, 1)
    assert facts == {1: given_up, 2: (Outcome.FAILED, 6, 2, 3), 3: given_up}
    assert begun(1).to_the_end()[1].outcome == Outcome.FAILED, "the study has no such rule"


def test_a_bank_of_another_spec_follows_in_the_same_process():
    running = begun(5)
    before = running.to_the_end()[1]
    other = PRESETS["67p"]
    running.send(orders=orders(5, first=2), bank=NewBank(other, 2, RESOURCES))
    after = running.to_the_end()[2]
    assert (before.theta_P.shape, after.theta_P.shape) == ((57,), (other.params,))
    assert running.reports[-1].speed.seed_steps == 12, "of both"


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_gpu_is_for_workers_whose_place_is_on_one(on_gpu, monkeypatch):
    """With `gpu: auto` few seeds have places on CPUs, while the GPU is another study's."""
    devices, whole = [], worker.bank_of
    monkeypatch.setattr(worker.accelerators, "device", lambda: "cuda")

    def bank_of(*given):
        devices.append(given[4])
        return whole(*given[:4], "cpu", given[5])

    monkeypatch.setattr(worker, "bank_of", bank_of)
    Running(on_gpu=on_gpu).send(orders=orders(5), bank=bank())
    assert devices == ["cuda" if on_gpu else "cpu"]


def test_an_error_is_reported_and_is_the_end(monkeypatch):
    running = Running(attempt=3)
    running.send(orders=orders(5), bank=bank())
    monkeypatch.setattr(worker.Bank, "advance", lambda self: {}["no luck"])
    report = running.send()
    assert (report.failure, report.attempt, report.ended) == ("KeyError: 'no luck'", 3, {})
    assert report.traceback.startswith("Traceback") and "advance" in report.traceback
    running.close()


def test_remarks_of_the_trainer_are_in_the_next_report():
    running = Running()
    worker.logging.getLogger("trainer.any").warning("a compiler hangs")
    assert running.send().remarks == ["a compiler hangs"] and running.send().remarks == []


def test_a_tied_spec_that_is_trained_as_its_base_comes_in_its_own_numbers():
    ties = (1, 1, *range(2, 57))
    pair = Pair(Recipe(**{**RECIPE.as_dict(), "ramp": 2}), Seed.of(5), None, ties)
    running = Running()
    running.send(orders=[Order(1, pair)], bank=bank())
    found = running.to_the_end()[1]
    assert found.theta_P.shape == (56,) and torch.from_numpy(found.theta_P).isfinite().all()
