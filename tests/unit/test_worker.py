"""A worker by itself: it asks, trains between a reply and its next report, and says what became of its pairs."""

import pickle

import pytest

from model import PRESETS
from search.run import worker
from search.run.messages import NewBank, Order, Reply
from search.run.worker import work
from search.stats.record import MEASURED
from search.study.resources import Resources
from search.study.trial import Configuration
from tests.banks import finish
from trainer import Bank, Outcome, Pair, Recipe, Seed

pytestmark = pytest.mark.usefixtures("few_selection_problems")

RECIPE = Recipe(steps=6, batch=8, eval_every=2, hold=0, curriculum=(), fade_start=2, fade_end=6)
CONFIGURATION = Configuration(PRESETS["57p"], RECIPE)
RESOURCES = Resources(gpu=0, compiled=False, save_every=1)


def bank(resources=RESOURCES):
    return NewBank(CONFIGURATION.spec, 2, resources)


def orders(*seeds, first=1):
    return [Order(n, Pair(RECIPE, Seed.of(seed))) for n, seed in enumerate(seeds, first)]


class Running:
    """A worker whose messages go through bytes, as between processes. Its first report is there."""

    def __init__(self, **options):
        self.generator = work("a", **options)
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
