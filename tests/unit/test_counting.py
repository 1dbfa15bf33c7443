"""Counts of outcomes, grok rates and their intervals, stopping rules, costs, summaries, the Pareto front."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.stats import counting
from search.stats.counting import Cost, GrokRate, StoppingCounts, pareto, summarise, tries_until
from search.stats.intervals import mid_p, stopped
from search.stats.metrics import final_metrics
from search.stats.record import SeedRecord
from trainer import Outcome, Seed
from trainer.stopping import Hopeless, Rung, screen
from trainer.stopping.hopeless import FALSE_KILLS_UPPER

PUBLISHED = "79ee5e16e73c"
"""Key of 57p's published recipe, by which the hopeless rule was measured."""
RUNG = "token 0.35 at 5000"
GROKKED, FAILED, GIVEN_UP, SCREENED, CENSORED = (
    Outcome.GROKKED,
    Outcome.FAILED,
    Outcome.GIVEN_UP,
    Outcome.SCREENED,
    Outcome.CENSORED,
)


def rows(*outcomes, first=1, configuration=PUBLISHED, **changes):
    """Ledger rows of the seeds `first`, `first` + 1, ...; given-up and screened ones were called by their rule."""
    facts = {"study": "s", "configuration": configuration, "steps": 1_000, "core_s": 0.5, "best_exact": 0.25}
    called = {
        GROKKED: {"grok_step": 400},
        GIVEN_UP: {"hopeless_step": 20_000},
        SCREENED: {"screen": RUNG},
    }
    return [
        SeedRecord.of(
            {**facts, "verify_calls": 1, "init_seed": n, "data_seed": n, "outcome": outcome}
            | called.get(outcome, {})
            | changes
        )
        for n, outcome in enumerate(outcomes, first)
    ]


def overview(seeds):
    """Counts of each study, as `status` shows them."""
    by_study = counting.group_by(seeds, "study")
    return [{"study": study, **summarise(some)} for study, some in by_study.items()]


# Rates


def test_only_censored_seeds_and_those_under_way_leave_n():
    rate = GrokRate.of(rows(*Outcome, CENSORED))
    assert rate == GrokRate.of(rows(*counting.COUNTED)) == GrokRate(1, 5, 1 + FALSE_KILLS_UPPER)
    assert rate.rate == 0.2 and GrokRate.of([]).interval == (0.0, 1.0) and GrokRate.of([]).rate is None


def test_ended_seeds_fail_at_the_lower_end_and_some_grok_at_the_upper_end():
    """At most 0.88 % of 46 seeds were given up wrongly, of a configuration by which that was measured."""
    rate = GrokRate.of(rows(*[GROKKED] * 2, *[GIVEN_UP] * 46))
    assert rate.interval == (mid_p(2, 48)[0], mid_p(2 + 46 * FALSE_KILLS_UPPER, 48)[1])
    assert GrokRate.of(rows(*[GROKKED] * 2, *[FAILED] * 46)).interval == mid_p(2, 48)


def test_the_measured_share_is_not_carried_to_other_recipes():
    """There the configuration's own spared seeds bound it: if none ran on, all may have grokked."""
    ended = rows(GROKKED, *[GIVEN_UP] * 40, configuration="other")
    assert GrokRate.of(ended).missed == 40 and GrokRate.of(ended).interval[1] == 1.0
    spared = rows(*[FAILED] * 20, first=100, configuration="other", hopeless_step=20_000)
    assert GrokRate.of(ended + spared).missed == pytest.approx(40 * (1 - 0.05 ** (1 / 20)))
    both = GrokRate.of(ended + rows(*[GIVEN_UP] * 40))
    assert both.missed == 40 + 40 * FALSE_KILLS_UPPER


def test_a_screens_own_spared_seeds_bound_what_it_killed():
    """30 ended, of 10 spared one grokked: at most 39.4 % of the 30 would have (Clopper-Pearson)."""
    seeds = rows(*[SCREENED] * 30, *[FAILED] * 9, GROKKED, configuration="a", screen=RUNG)
    seeds += rows(*[GROKKED] * 4, *[FAILED] * 6, first=50, configuration="a")
    rate = GrokRate.of(seeds)
    assert (rate.grokked, rate.n) == (5, 50) and rate.missed == pytest.approx(30 * 0.3942, abs=0.01)
    assert str(rate).endswith(": up to 12 that rules ended might have grokked)")
    assert StoppingCounts.of(seeds, Rung) == StoppingCounts(50, 30, 10, 1)


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_a_seed_that_a_rule_ended_was_called_whatever_its_row_says(nothing):
    """Frames have NaN, tables may lack a rule's column: then none is known to have been spared."""
    for rule in (Hopeless, Rung):
        seeds = rows(*[rule.outcome] * 4, GROKKED, *[FAILED] * 20, configuration="a", **{rule.column: nothing})
        assert GrokRate.of(seeds).missed == 4 and StoppingCounts.of(seeds, rule) == StoppingCounts(25, 4)
        assert counting.PooledRate.of(seeds).grokked == 1


@pytest.mark.parametrize("rule", [Rung, Hopeless])
def test_what_a_rule_calls_of_others_does_not_bound_a_configuration(rule):
    """Ninety spared seeds of an early recipe did not grok: a late one's, of which none was spared, may all have."""
    called = {rule.column: RUNG if rule is Rung else 20_000}
    early = rows(*[FAILED] * 90, configuration="early", **called)
    late = rows(*[rule.outcome] * 8, first=200, configuration="late", **called)
    assert GrokRate.of(late).missed == GrokRate.of(early + late).missed == 8
    fresh = rows(*[FAILED] * 90, configuration="late", confirmation=True, **called)
    assert GrokRate.of(late + fresh).missed == 8, "nor do those that confirm it bound what was before"
    pooled = counting.missed_by(rule, early + late, pooled=True)
    assert pooled == pytest.approx(8 * (1 - 0.05 ** (1 / 90))), "of all together the spared ones are a sample"


def test_earlier_measurements_of_a_rung_count_with_their_configuration_alone(monkeypatch):
    monkeypatch.setattr(screen, "MEASURED_RUNGS", {("a", RUNG): (0, 190)})
    seeds = rows(*[SCREENED] * 100, *[FAILED] * 10, configuration="a", screen=RUNG)
    assert counting.missed_by(Rung, seeds) == pytest.approx(100 * (1 - 0.05 ** (1 / 200)))
    rungs = [Rung(5_000, (("token", 0.35, inf),))]
    elsewhere = [replace(row, configuration="b") for row in seeds]
    assert counting.missed_by(Rung, elsewhere) == pytest.approx(100 * (1 - 0.05 ** (1 / 10)))
    said = [counting.describe_rules(Rung, rungs, [key]) for key in "ab"]
    assert said[0].endswith("0 grokked of 190 seeds that it would have ended and that ran on")
    assert said[1].endswith("it was not measured before with this spec and recipe")
    assert "not all was measured" in counting.describe_rules(Rung, rungs, ["a", "b"])


def test_a_study_that_stops_at_a_success_has_the_interval_for_that():
    """Two of twenty, the second one last: the interval of the negative binomial, not Wilson's."""
    seeds = [Seed.of(n) for n in range(1, 41)]
    recorded = rows(*[FAILED] * 5, GROKKED, *[FAILED] * 13, GROKKED)
    rate = GrokRate.of(recorded, (2, seeds))
    assert rate.tries == (2, 20, 20) and rate.interval == stopped(2, 20, 20) != mid_p(2, 20)
    place = "in the file's order 2 of the first 20 seeds grokked"
    assert str(rate) == f"2 of 20 grokked, then it stopped (95 % interval 1.2% to 26.0%: {place})"
    assert GrokRate.of(recorded, (3, seeds)).tries is None, "it went through all its seeds"


def test_earlier_seeds_without_an_outcome_may_have_grokked():
    recorded = rows(FAILED, CENSORED, GROKKED, GIVEN_UP)
    seeds = [Seed.of(n) for n in range(1, 9)]
    assert tries_until(recorded, 1, seeds) == (1, 3, 2)
    assert GrokRate.of(recorded, (1, seeds)).place == "1 of the first 2 to 3 seeds"
    assert GrokRate.of(recorded[2:], (1, seeds[2:])).place == "the first seed"
    assert tries_until(recorded[:1] + recorded[2:], 1, seeds) == (1, 3, 2), "2 was not begun"
    assert tries_until(recorded, 1, [Seed.of(n) for n in (4, 3, 2, 1)]) == (1, 2, 2)


# Stopping rules and cost


def test_spared_seeds_of_a_rule_are_counted_by_what_became_of_them():
    seeds = rows(GROKKED, FAILED, GIVEN_UP, GIVEN_UP, CENSORED, Outcome.RUNNING)
    spared = rows(FAILED, first=10, hopeless_step=24_000)
    counts = StoppingCounts.of(seeds + spared, Hopeless)
    assert counts == StoppingCounts(seeds=5, ended=2, spared=1, spared_grokked=0)
    assert counts.summary(Hopeless) == "given up: 2 of 5; 1 more spared, to check the rule: none grokked"
    assert StoppingCounts.of(rows(GIVEN_UP), Hopeless).summary(Hopeless) == "given up: 1 of 1"
    assert StoppingCounts.of(rows(FAILED), Rung).summary(Rung) == ""
    assert str(counting.PooledRate.of([])) == str(GrokRate.of([])) == "no seed has ended"


def test_mlflow_has_the_rate_of_the_fresh_seeds_apart_and_what_best_sorts_by():
    chosen = rows(*[GROKKED] * 6, *[FAILED] * 2)
    fresh = rows(GROKKED, *[FAILED] * 15, first=101, confirmation=True)
    alone, both = final_metrics(chosen), final_metrics(chosen + fresh)
    assert "confirmation_rate" not in alone and alone["ranked_by"] == mid_p(6, 8)[0]
    assert both["grok_rate"] == alone["grok_rate"] == 6 / 8 and both["confirmation_rate"] == 1 / 16
    assert (both["confirmation_low"], both["confirmation_high"]) == mid_p(1, 16)
    assert both["ranked_by"] == 1 + mid_p(1, 16)[0] > alone["ranked_by"]


def test_all_counted_seeds_pay_for_those_that_grok():
    paid = [(GROKKED, 50_000), (SCREENED, 5_000), (GROKKED, 45_000), (CENSORED, 9_000_000)]
    seeds = [row for outcome, steps in paid for row in rows(outcome, steps=steps, core_s=2.0)]
    cost = Cost.of(seeds)
    assert (cost.seed_steps, cost.per_million, cost.each) == (100_000, 20.0, 3.0)
    assert str(cost) == "20 grokked per million seed-steps; each cost 3 core-seconds here"
    unknown = Cost.of([*seeds, *rows(FAILED, steps=60_000, core_s=None)])
    assert unknown.each is None and str(unknown) == "12.5 grokked per million seed-steps"
    assert str(Cost.of(seeds[1:2])) == "none grokked in 5,000 seed-steps (steps of all seeds together)"
    assert Cost.of([]).per_million is None


def dominates(first, second):
    return first[0] <= second[0] and first[1] >= second[1] and first != second


@given(st.lists(st.tuples(st.integers(46, 52), st.integers(0, 6)), max_size=20))
def test_the_front_is_what_the_definition_says(points):
    expected = [not any(dominates(rival, point) for rival in points) for point in points]
    assert pareto([size for size, _ in points], [score / 6 for _, score in points]) == expected


def test_configurations_that_stop_by_themselves_are_not_taken_for_one():
    both = [*rows(GROKKED, FAILED), *rows(FAILED, GROKKED, configuration="b" * 12)]
    summary = summarise(both, (1, [Seed.of(1), Seed.of(2)]))
    assert (summary["grokked"], summary["counted"], summary["stopped"]) == (2, 4, False)
