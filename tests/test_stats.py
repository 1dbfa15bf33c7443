"""Grok rates and their intervals, against SciPy's; what became of seeds; the Pareto front."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.stats import counting as stats
from search.stats import intervals
from search.stats.counting import GrokRate, Stopping, difference, pareto, tries_until, wilson
from search.study.file import load_study, stopping_rule
from search.study.trial import Configuration
from trainer import FALSE_KILLS_UPPER, Outcome, Seed
from trainer.bank.hopeless import MEASURED

# As SciPy 1.17 prints them: binomtest(k, n).proportion_ci(method="wilson")
KNOWN = {
    (0, 10): (0.0, 0.277533),
    (1, 24): (0.007393, 0.202418),
    (2, 48): (0.011502, 0.139757),
    (3, 16): (0.065916, 0.430089),
    (10, 10): (0.722467, 1.0),
}


@pytest.mark.parametrize(("k", "n"), KNOWN)
def test_wilson_intervals_are_the_known_ones(k, n):
    assert wilson(k, n) == pytest.approx(KNOWN[k, n], abs=1e-6)


def test_wilson_agrees_with_scipy():
    scipy = pytest.importorskip("scipy.stats")
    for n in (1, 2, 16, 1000):
        for k in {0, 1, n // 2, n - 1, n}:
            interval = scipy.binomtest(k, n).proportion_ci(method="wilson")
            assert wilson(k, n) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_nothing_counted_says_nothing():
    assert wilson(0, 0) == (0.0, 1.0)
    assert str(GrokRate.of([])) == "0 of 0 grokked: 0.0% (95 % interval 0.0% to 100.0%)"


PUBLISHED = "79ee5e16e73c"
"""57p's published recipe, by which the hopeless rule was measured."""


def became(*outcomes, configuration=PUBLISHED):
    """Rows of the seeds 1, 2, ...; those that were given up were called hopeless."""
    return [
        {"init_seed": n, "data_seed": n, "configuration": configuration, "outcome": outcome,
         "hopeless_step": 20_000 if outcome == Outcome.GIVEN_UP else None}
        for n, outcome in enumerate(outcomes, 1)
    ]  # fmt: skip


def test_only_censored_seeds_and_those_under_way_leave_n():
    rate = GrokRate.of(became(*Outcome, Outcome.CENSORED))
    counted = (Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP, Outcome.SCREENED)
    assert rate == GrokRate.of(became(*counted)) == GrokRate(1, 5, 1, FALSE_KILLS_UPPER)
    assert rate.rate == 0.2
    assert GrokRate.of(became(*(o.value for o in Outcome))) == GrokRate(1, 5, 1, FALSE_KILLS_UPPER)


def test_given_up_seeds_are_failures_at_the_lower_end_of_the_interval(monkeypatch):
    """2 of 48 grokked and the rest were given up: had the rule lost 5 % of those, 4.3 had grokked."""
    monkeypatch.setattr(stats, "FALSE_KILLS_UPPER", 0.05)
    rate = GrokRate.of(became(*[Outcome.GROKKED] * 2, *[Outcome.GIVEN_UP] * 46))
    assert rate.rate == 2 / 48
    assert rate.interval == (wilson(2, 48)[0], wilson(2 + 46 * 0.05, 48)[1])
    assert rate.interval == pytest.approx((0.011502, 0.203472), abs=1e-6)
    none = GrokRate.of(became(*[Outcome.GROKKED] * 2, *[Outcome.FAILED] * 46))
    assert none.interval == wilson(2, 48)


@pytest.mark.parametrize(("share", "high"), [(0.0, wilson(2, 48)[1]), (1.0, 1.0)])
def test_the_upper_end_follows_what_the_rule_may_lose(share, high, monkeypatch):
    monkeypatch.setattr(stats, "FALSE_KILLS_UPPER", share)
    rate = GrokRate.of(became(*[Outcome.GROKKED] * 2, *[Outcome.GIVEN_UP] * 46))
    assert rate.interval == (wilson(2, 48)[0], high)


def test_the_rules_measured_share_is_not_carried_to_other_recipes():
    """There the configuration's own spared seeds bound it: of none that ran on nothing is known."""
    given_up = [Outcome.GIVEN_UP] * 40
    rows = became(Outcome.GROKKED, *given_up, configuration="another")
    assert GrokRate.of(rows).wrongly == 40 and GrokRate.of(rows).interval[1] == 1.0
    assert GrokRate.of(became(Outcome.GROKKED, *given_up)).wrongly == 40 * FALSE_KILLS_UPPER
    spared = [{**row, "init_seed": 100 + n, "data_seed": 100 + n, "outcome": Outcome.FAILED}
              for n, row in enumerate(rows[1:21])]  # fmt: skip
    some = GrokRate.of(rows + spared)
    assert some.wrongly == pytest.approx(40 * (1 - 0.05 ** (1 / 20)))  # none of 20: 13.9 %, one-sided 95 %
    assert GrokRate.of([*rows, {**spared[0], "outcome": Outcome.GROKKED}]).wrongly == 40
    both = GrokRate.of(rows + became(*given_up))
    assert both.wrongly == 40 + 40 * FALSE_KILLS_UPPER


def test_the_configurations_by_which_the_rule_was_measured_are_those_of_the_page():
    studies = ("57p-rate", "54p-rate", "47p-rate", "67p-rate", "74p-rate", "100p-rate")
    known = {Configuration(*c).key for study in studies for c in load_study(study).listed()}
    assert known <= MEASURED and len(MEASURED) == 13


def test_a_study_that_stops_at_a_success_has_the_interval_for_that():
    """Two of twenty, the second one last: the exact interval of the negative binomial, not Wilson's."""
    seeds = [Seed.of(n) for n in range(1, 41)]
    rows = became(*[Outcome.FAILED] * 5, Outcome.GROKKED, *[Outcome.FAILED] * 13, Outcome.GROKKED)
    rate = GrokRate.of(rows, (2, seeds))
    assert rate.tries == (2, 20, 20) and rate.interval == intervals.stopped(2, 20, 20)
    assert rate.interval[0] == pytest.approx(0.0123, abs=1e-4) and rate.interval != wilson(2, 20)
    assert "negative binomial" in str(rate) and "10.0%" not in str(rate)
    assert GrokRate.of(rows, (3, seeds)).tries is None, "it went through all its seeds"
    assert GrokRate.of(rows).interval == wilson(2, 20)


def test_seeds_that_nobody_waited_for_may_have_grokked_before():
    seeds = [Seed.of(n) for n in range(1, 9)]
    rows = became(Outcome.FAILED, Outcome.CENSORED, Outcome.GROKKED, Outcome.GIVEN_UP)
    assert tries_until(rows, 1, seeds) == (1, 3, 2)
    assert tries_until(rows[:1] + rows[2:], 1, seeds) == (1, 3, 2), "2 was not begun"
    assert tries_until(rows, 1, [Seed.of(n) for n in (4, 3, 2, 1)]) == (1, 2, 2)


def test_a_search_stops_as_a_whole_and_a_sweep_not_at_all():
    wanted, seeds = stopping_rule(load_study("57p"))
    assert wanted == 1 and seeds[0] == Seed.of(777) and len(seeds) == len(set(seeds))
    assert stopping_rule(load_study("57p-rate")) is None and stopping_rule(load_study("fade")) is None


# Newcombe 1998, table II, method 10: k and n of both samples, and the interval of the difference
DIFFERENCES = {
    (56, 70, 48, 80): (0.0524, 0.3339),
    (9, 10, 3, 10): (0.1705, 0.8090),
    (6, 7, 2, 7): (0.0582, 0.8062),
    (5, 56, 0, 29): (-0.0381, 0.1926),
    (0, 10, 0, 20): (-0.1611, 0.2775),
    (0, 10, 0, 10): (-0.2775, 0.2775),
    (10, 10, 0, 20): (0.6791, 1.0),
    (10, 10, 0, 10): (0.6075, 1.0),
}


@pytest.mark.parametrize(("k", "n", "other_k", "other_n"), DIFFERENCES)
def test_intervals_of_differences_are_the_published_ones(k, n, other_k, other_n):
    one, other = GrokRate(k, n), GrokRate(other_k, other_n)
    low, high = DIFFERENCES[k, n, other_k, other_n]
    assert difference(one, other) == pytest.approx((low, high), abs=5e-5)
    assert difference(other, one) == pytest.approx((-high, -low), abs=5e-5)


def test_what_given_up_seeds_might_have_done_widens_the_difference():
    complete, given_up = GrokRate(2, 48), GrokRate(2, 48, 46, 46 * 0.05)
    low, high = difference(complete, complete)
    assert difference(given_up, complete)[0] == low and difference(given_up, complete)[1] > high
    assert difference(complete, given_up)[0] < low and difference(complete, given_up)[1] == high


def rows(*pairs):
    return [{"outcome": outcome, "hopeless_step": step} for outcome, step in pairs]


def test_what_became_of_the_spared_seeds_is_counted():
    found = rows(
        (Outcome.GROKKED, None),
        (Outcome.FAILED, None),
        (Outcome.GIVEN_UP, 24_000),
        (Outcome.GIVEN_UP, 30_000),
        (Outcome.FAILED, 24_000),
        (Outcome.CENSORED, None),
        (Outcome.RUNNING, None),
    )
    stopping = Stopping.of(found)
    assert stopping == Stopping(seeds=5, ended=2, spared=1, spared_grokked=0)
    assert stopping.says() == "given up: 2 of 5; 1 more ran on: none grokked"
    more = Stopping.of(found + rows((Outcome.GROKKED, 24_000), (Outcome.DIVERGED, 24_000)))
    assert more.says() == "given up: 2 of 7; 3 more ran on: 1 grokked"
    assert Stopping.of(rows((Outcome.GIVEN_UP, 24_000))).says() == "given up: 1 of 1"


# Screened seeds

RUNG = "token 0.35 at 5000"


def screened(*outcomes, configuration="a", screen=RUNG):
    row = {"hopeless_step": None, "configuration": configuration, "screen": screen}
    return [{"outcome": outcome} | row for outcome in outcomes]


def test_what_a_screen_may_have_killed_is_bounded_by_its_own_spared_seeds():
    """30 ended, of 10 spared one grokked: at most 39.4 % of the 30 would have (Clopper-Pearson)."""
    rows = screened(*[Outcome.SCREENED] * 30, *[Outcome.FAILED] * 9, Outcome.GROKKED)
    rows += screened(*[Outcome.GROKKED] * 4, *[Outcome.FAILED] * 6, screen=None)
    assert stats.wrongly_screened(rows) == pytest.approx(30 * 0.3942, abs=0.01)
    rate = GrokRate.of(rows)
    assert (rate.grokked, rate.n) == (5, 50)
    assert rate.interval == (wilson(5, 50)[0], wilson(5 + rate.wrongly, 50)[1])
    assert Stopping.of(rows, Outcome.SCREENED) == Stopping(50, 30, 10, 1)
    assert Stopping.of(rows, Outcome.SCREENED).says(Outcome.SCREENED) == (
        "screened: 30 of 50; 10 more ran on: 1 grokked"
    )


def test_where_nobody_was_spared_all_screened_seeds_may_have_grokked():
    rate = GrokRate.of(screened(*[Outcome.SCREENED] * 7, Outcome.CENSORED))
    assert rate.wrongly == 7 and rate.interval == (0.0, 1.0)


def test_what_was_measured_of_a_rung_before_counts_with_its_configuration_alone(monkeypatch):
    monkeypatch.setattr(stats, "SCREENS", {("a", RUNG): (0, 190)})
    rows = screened(*[Outcome.SCREENED] * 100, *[Outcome.FAILED] * 10)
    assert stats.wrongly_screened(rows) == pytest.approx(100 * (1 - 0.05 ** (1 / 200)))
    for other in ({"configuration": "b"}, {"screen": "token 0.5 at 5000"}):
        others = screened(*[Outcome.SCREENED] * 100, *[Outcome.FAILED] * 10, **other)
        assert stats.wrongly_screened(others) == pytest.approx(100 * (1 - 0.05 ** (1 / 10)))
        both = stats.wrongly_screened(rows + others)
        assert both == pytest.approx(stats.wrongly_screened(rows) + stats.wrongly_screened(others))
    assert "of 190 seeds that it called and that ran on 0 grokked" in stats.screen_words([RUNG], ["a"])
    assert "was not measured for this spec and recipe" in stats.screen_words([RUNG], ["b"])
    assert "not all was measured" in stats.screen_words([RUNG], ["a", "b"])


# What a grokked seed costs


def spent(outcome, steps, core_s=2.0):
    return {"outcome": outcome, "steps": steps, "core_s": core_s}


def test_what_a_grokked_seed_costs_is_paid_for_by_all_counted_seeds():
    rows = [spent(Outcome.GROKKED, 50_000), spent(Outcome.SCREENED, 5_000), spent(Outcome.GROKKED, 45_000)]
    cost = stats.Cost.of([*rows, spent(Outcome.CENSORED, 9_000_000)])
    assert (cost.seed_steps, cost.per_million, cost.each) == (100_000, 20.0, 3.0)
    assert str(cost) == "20 grokked per million seed-steps; each cost 3 core-seconds here"
    unknown = stats.Cost.of([*rows, spent(Outcome.FAILED, 60_000, None)])
    assert unknown.each is None and str(unknown) == "12.5 grokked per million seed-steps"
    none = stats.Cost.of(rows[1:2])
    assert none.each is None and str(none) == "none grokked in 0.005 million seed-steps"
    assert stats.Cost.of([]).per_million == 0.0


# ---- the Pareto front


def test_few_parameters_and_high_rates_are_on_the_front():
    assert pareto([57, 60, 70, 70, 80], [0.1, 0.1, 0.5, 0.4, 0.5]) == [True, False, True, False, False]


def test_equals_are_on_the_front_together():
    assert pareto([57, 57, 60, 60], [0.2, 0.2, 0.2, 0.3]) == [True, True, False, True]
    assert pareto([57, 57], [0.0, 0.0]) == [True, True]
    assert pareto([], []) == []


def dominates(one, other):
    """Fewer or as many parameters, as high or a higher rate, one of them strictly better."""
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@given(st.lists(st.tuples(st.integers(46, 52), st.integers(0, 6)), max_size=20))
def test_the_front_is_what_the_definition_says(points):
    expected = [not any(dominates(other, point) for other in points) for point in points]
    assert pareto([p for p, _ in points], [rate / 6 for _, rate in points]) == expected


# Summaries


def ended(*outcomes, configuration="one", confirmation=False):
    """Rows as the ledger has them, of seeds that ended so."""
    known = {
        "trial": "t", "confirmation": confirmation, "held": False, "screen": None, "steps": 1_000,
        "core_s": 0.5, "best_exact": 0.25, "verify_calls": 1, "study": "s", "reason": None,
    }  # fmt: skip
    return [row | known for row in became(*outcomes, configuration=configuration)]


def test_a_summary_has_one_rate_and_leaves_out_what_confirms_where_it_stops():
    mine = ended(Outcome.GROKKED, Outcome.FAILED, Outcome.FAILED, Outcome.FAILED)
    confirming = ended(Outcome.GROKKED, Outcome.GROKKED, confirmation=True)
    found = stats.summarise(mine)
    assert (found["grokked"], found["counted"], found["grok_rate"]) == (1, 4, 0.25)
    assert found["interval"] == list(wilson(1, 4)) and found["seed_steps"] == 4_000
    together = stats.summarise(mine + confirming)
    assert (together["grokked"], together["counted"]) == (3, 6)
    stopping = stats.summarise(mine + confirming, (1, [Seed.of(n) for n in range(1, 5)]))
    assert (stopping["grokked"], stopping["counted"], stopping["seeds"]) == (1, 4, 6)
    two = stats.summarise(mine + ended(Outcome.FAILED, configuration="other"))
    assert two["configurations"] == 2 and two["grok_rate"] is two["interval"] is None
    nothing = stats.summarise([])
    assert nothing["configurations"] == 0 and nothing["grok_rate"] is nothing["interval"] is None


def test_what_a_rule_did_in_whole_sentences():
    some = Stopping(seeds=1_000, ended=30, spared=4, spared_grokked=0)
    assert some.told("It ended") == (
        "It ended 30 of 1,000 seeds. 4 more that it called were spared and ran on: none grokked. "
    )
    grokked = Stopping(seeds=10, ended=3, spared=4, spared_grokked=2)
    assert grokked.told("It ended").endswith("were spared and ran on: 2 of them grokked. ")
    assert Stopping(10, 3, 0, 0).told("It ended") == "It ended 3 of 10 seeds. "
    assert Stopping(10, 0, 0, 0).told("It ended") == ""
