"""What `run` prints at its end and `status` prints of seeds, beyond their rates."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from model.tasks import make_task
from search.cli import render
from search.cli.home import cut_off
from search.run.driver import Ended
from search.run.estimate import estimate
from search.stats.record import ENOUGH, SeedRecord
from search.store.home import Home
from search.study.described import shown
from search.study.file import load_study, parse_study, shipped_studies
from search.study.space import points
from search.study.trial import Configuration
from tests import readable
from tests.commands import says
from tests.unit.test_counting import CENSORED, FAILED, GIVEN_UP, GROKKED, overview, rows
from trainer import Outcome, Recipe
from trainer.recipe.lengths import ends_after

HOME = Home("nowhere")
SOME = rows(FAILED, GROKKED, GIVEN_UP, GIVEN_UP)
SPARED = SOME + rows(FAILED, GROKKED, first=5, hopeless_step=24_000)
CUT = SOME + rows(CENSORED, Outcome.RUNNING, first=7)


def summary(study, ended, made=(), drawn=()):
    """Of a run of which these configurations and proposals are recorded."""
    records = SimpleNamespace(
        home=HOME, list_configurations=lambda: {c.key: c for c in made}, list_proposals=lambda: list(drawn)
    )
    return render.summary(study, study.name, records, ended)


def outputs(recorded, study="57p"):
    """The summary of a run, and the status, of some rows."""
    named = [replace(row, study=study) for row in recorded]
    return summary(load_study(study), Ended(rows=named)), render.status(overview(named), [])


@pytest.mark.parametrize(
    ("recorded", "word", "line"),
    [
        (SPARED, "given up", "given up: 2 of 6; 2 more spared, to check the rule: 1 grokked"),
        (SOME, "have not ended", None),
        (CUT, "have not ended", "2 of 6 seeds have not ended. The first to end are given up or grok early"),
    ],
)
def test_both_say_what_biases_or_bounds_a_rate(recorded, word, line):
    for text in outputs(recorded):
        lines = [row.strip(" (") for row in text.splitlines() if word in row and " seeds (" not in row]
        assert len(lines) == (line is not None) and all(row.startswith(line) for row in lines)


@pytest.mark.parametrize(
    ("recorded", "changes", "is_said"),
    [
        (rows(GROKKED, *[GIVEN_UP] * 7), {}, True),
        (rows(GROKKED, *[FAILED] * 7), {}, False),
        (rows(*[GIVEN_UP] * 8), {"stop": {"hopeless": False}}, False),
        (rows(GROKKED, *[GIVEN_UP] * 7), {"until": {"grokked": 1, "max_seeds": 64}}, False),
    ],
)
def test_where_a_rule_widens_an_interval_the_way_without_it_is_said(recorded, changes, is_said):
    study = load_study("57p-longer")
    study = type(study).model_validate(study.model_dump(by_alias=True) | {"stop": {}, "until": {}} | changes)
    text = summary(study, Ended(rows=[replace(row, study=study.name, configuration="new") for row in recorded]))
    said = [line for line in text.splitlines() if line.startswith("  that makes intervals wide; adder-search run 57p-")]
    assert len(said) == is_said
    assert all(line.endswith(" --fresh --set stop.hopeless=off trains every seed to its end") for line in said)
    assert "--fresh" not in summary(study, Ended(rows=list(recorded), interrupted=True))


@pytest.mark.parametrize("exact", [None, 0.0, 0.25])
def test_an_exact_match_is_shown_where_it_is_known_and_nowhere_else(exact):
    """A seed's is recorded when its bank ends: before, or after Ctrl-C, it is not 0."""
    seeds = rows(CENSORED, Outcome.RUNNING, best_exact=exact, verified=None, verify_calls=0)
    text = render.status(overview(seeds), seeds)
    assert text.count("best exact match 0.") == text.count(f"match {exact or 0:.4f}") == (exact is not None) * 3
    assert "no seed has ended" in text and "verify" not in text
    once = "  verify's problems were asked once, after training: they chose no seed and no step"
    assert once in render.status(overview(rows(FAILED)), []).splitlines()


def test_seeds_of_several_configurations_are_counted_unless_each_is_asked_for():
    seeds = [r for key in "ab" for r in rows(GROKKED, FAILED, FAILED, configuration=key)]
    text = render.status(overview(seeds), seeds, {"a": "lr 1", "b": "lr 2"})
    assert [line for line in text.splitlines() if "lr " in line] == [
        "  lr 1: 1 grokked, 2 not grokked", "  lr 2: 1 grokked, 2 not grokked",
    ]  # fmt: skip
    assert "  seed " not in text and render.status(overview(seeds), seeds, each=True).count("  seed ") == 6


INTERRUPTED = rows(CENSORED, CENSORED, first=20, reason="interrupted")
CUT_OFF = rows(CENSORED, first=30, reason=ENOUGH)
FRESH = rows(GROKKED, GROKKED, FAILED, first=90001, confirmation=True)


def of(key, seeds):
    return [replace(row, configuration=key) for row in seeds]


@pytest.mark.parametrize(
    ("seeds", "said", "unsaid"),
    [
        (SOME + INTERRUPTED, ["2 interrupted)", "2 of 6 seeds have not ended"], "cut off"),
        (SOME + CUT_OFF, ["1 cut off)"], "interrupted"),
        (of("a", SOME + INTERRUPTED) + of("b", SOME + INTERRUPTED), ["4 of 12 runs have not ended"], "12 seeds"),
        (SOME + FRESH, ["s: 4 seeds (1 grokked", "1 of 4 gr", "seeds (2 grokked, 1 not grokked): 2 of 3"], "3 of 7"),
        (of("a", SOME + FRESH) + of("b", SOME), ["  a: 1 ", "  a, confirmation: 2 ", "2 of 8 grokked over"], "(3 grok"),
    ],
)  # fmt: skip
def test_status_says_what_goes_on_and_keeps_a_confirmation_apart(seeds, said, unsaid):
    first = {row["configuration"] for row in seeds}
    seeds = [replace(row, verify_calls=0) for row in seeds]
    text = render.status(overview(seeds), seeds, {key: key for key in first})
    assert all(line in text for line in said) and unsaid not in text, text


@pytest.mark.parametrize(
    ("lines", "recorded", "left"),
    [
        ("", of("a", rows(FAILED, FAILED)), None),
        ("", of("a", rows(FAILED, GROKKED)) + of("b", rows(FAILED, GROKKED)), None),
        ("", of("a", rows(FAILED, GROKKED)) + of("b", rows(GROKKED, GROKKED)), 4),
        ("", of("a", rows(GROKKED, FAILED, FAILED, GROKKED)), 0),
        ("", of("a", rows(FAILED, GROKKED) + rows(GROKKED, first=90, confirmation=True)), None),
        ("space: {recipe.lr: {float: [0.01, 0.02]}}", of("a", rows(FAILED, GROKKED)), None),
        ("space: {recipe.lr: {float: [0.01, 0.02]}}", of("a", rows(GROKKED)) + of("b", rows(GROKKED)), 6),
    ],
)
def test_a_rate_is_too_high_only_where_it_stopped_at_a_success(lines, recorded, left):
    """A list does where a configuration has enough, a search where all of them together have.

    left: seeds that never began; None where it did not stop.
    """
    text = f"name: any\nmodel: 57p\nseeds: {{first: 1, count: 4}}\nuntil: {{grokked: 2, max_seeds: 8}}\n{lines}"
    said = summary(parse_study(text, "any"), Ended(rows=recorded))
    is_stopped = left is not None
    assert ("\n  it stopped at a success, so this rate is too high on average\n" in said) == is_stopped
    assert ("never began" in said) == bool(left) == (f"\n  not counted: {left} that never began\n" in said)


def test_compiling_is_said_where_it_took_a_second():
    study, ended = parse_study(LIST, ""), Ended(rows=rows(FAILED), compile_s=0.2)
    assert "compil" not in summary(study, ended)
    ended.compile_s = 61.0
    assert "\n  compiling took 61 s\n" in summary(study, ended)


def listed_summary(text, *outcomes, fresh=()):
    """The summary of a list's run. outcomes: of each configuration's seeds. fresh: of those that confirm the first."""
    study = parse_study(text, "")
    listed = [Configuration(*c) for c in study.listed]
    recorded = [r for c, ended in zip(listed, outcomes, strict=False) for r in rows(*ended, configuration=c.key)]
    recorded += rows(*fresh, first=101, configuration=listed[0].key, confirmation=True)
    return summary(study, Ended(rows=recorded), listed)


def test_the_summary_says_which_of_equal_rates_was_confirmed():
    text, half = LIST + "confirm: {configurations: 1, seeds: {first: 101, count: 2}}\n", (GROKKED, FAILED)
    tie = "  (chosen by the search's highest grok_rate, of equal ones the highest token accuracy)\n"
    assert tie in listed_summary(text, half, half, fresh=half)
    assert tie not in listed_summary(text, half, half)


@pytest.mark.parametrize("grokked", [0, 1, 2])
def test_the_summary_says_why_fewer_were_confirmed_than_were_asked_for(grokked):
    text = LIST + "confirm: {configurations: 2, seeds: {first: 101, count: 2}}\n"
    lines = listed_summary(text, *[[GROKKED]] * grokked, *[[FAILED]] * (3 - grokked)).splitlines()
    said = [line.strip() for line in lines if "were to be confirmed" in line]
    assert said == [f"(2 were to be confirmed, but {grokked} of 3 configurations grokked)"] * (grokked < 2)


FLAGS = "model.one_unit: {choice: [true, false]}, model.tie_fc2_head: {choice: [on, off]}"
WHEN_LION = (
    "recipe.optimiser: {choice: [lion, sgd]}, model.tie_fc2_head: {choice: [off], when: {recipe.optimiser: lion}}"
)
FADE = "recipe.fade_start: {int: [5000, %d]}"
BOTH = f"{FADE % 10_000}, recipe.fade_end: {{int: [5000, 10000]}}"
GRID, SEARCH, UNTIL = ("sampler: {name: grid}", "sampler: {configurations: 4}", "until: {grokked: 1, max_seeds: 9}")
BEYOND, ADVICE, OFF = "beyond the budget", "  for a rate set stop", "stop: {hopeless: off}"
CONFIRM, FRESH_3 = "confirm: {seeds: [90001]%s}", "then            up to 3 of the best confirmed on 1 fresh seeds, "
IMPOSSIBLE = "4, proposed by grid; 1 of 4 points is impossible (model: one_unit excludes tie_fc2_head)"


@pytest.mark.parametrize(
    ("lines", "said", "unsaid"),
    [
        ([f"space: {{{FLAGS}}}", GRID], [IMPOSSIBLE, "one_unit: one of on; off", "8 of each, 24 in all"], BEYOND),
        ([f"space: {{{FLAGS}}}", SEARCH], ["split_subspace, 57 to 67 parameters\n"], BEYOND),
        ([f"space: {{{WHEN_LION}}}", SEARCH], ["split_subspace, 57 to 67 parameters\n"], IMPOSSIBLE),
        ([f"space: {{{FADE % 10_001}}}", SEARCH], ["; 10,001 is beyond the budget, 10,000 steps"], IMPOSSIBLE),
        ([f"space: {{{BOTH}}}", SEARCH], ["of 200 random points are impossible (recipe.fade_end: must be"], BEYOND),
        ([f"space: {{{BOTH}}}", SEARCH, CONFIRM % ""], [f"{FRESH_3}each trained to its end\n"], "some given up"),
        ([f"space: {{{BOTH}}}", SEARCH, CONFIRM % ", hopeless: on"], [f"{FRESH_3}some given up\n"], "to its end"),
        (["recipe: {lr: 0.03}", OFF], ["if 4 of 8 seeds grok: 18% to 82%"], "rules end"),
        (["toggle: [rank2_out]"], ["  rank2_out is not toggled at 57p: it would take no parameter away\n"], BEYOND),
        (["recipe: {steps: 60000}"], ["if 4 of 8 seeds grok: 18% to 82%\n"], ADVICE),
        (["recipe: {lr: 0.03}", UNTIL], ["its interval is that of the seeds up to the last one needed"], "intervals"),
    ],
)
def test_a_plan_says_what_will_be_impossible_or_worth_little(lines, said, unsaid):
    recipe = [] if lines[0].startswith("recipe") else ["recipe: {steps: 10000}"]
    text = "\n".join(["name: any", "model: 57p", "seeds: {first: 0, count: 8}", *recipe, *lines])
    plan = estimate(parse_study(text, "any"), HOME) + "\n"
    assert all(line in plan for line in said) and unsaid not in plan, plan


RECYCLED = "recycle_every: 1000, recycle_unless: [[switches, 0.9]]"
LATE = {
    "recipe: {steps: 40000}": "fade_end 45,000: after the last step, 40,000",
    "recipe: {steps: 45000}": "",
    "recipe: {steps: 40000, carry_mix: 0}": "",
    "recipe: {steps: 40000, carry_shares: [[0, 0.8], [50000, 0]]}": "carry_shares 50,000: after the last step, 40,000",
    "recipe: {warmup: 70000}": "warmup 70,000: after the last step, 60,000",
    "recipe: {hold: 60001}": "hold 60,001: after the last step, 60,000",
    "recipe: {hold: 60000}": "",
    "recipe: {curriculum: [[3, 50000], [6, 20000]]}": "curriculum 70,000: after the last step, 60,000",
    "recipe: {steps: 5000}": "curriculum 7,000, fade_end 45,000: after the last step, 5,000",
    "recipe: {wd_schedule: drops, wd_drops: [[90000, 0.5]]}": "wd_drops 90,000: after the last step, 60,000",
    "recipe: {wd_schedule: warmup, wd_warmup: 90000}": "wd_warmup 90,000: after the last step, 60,000",
    "recipe: {wd_schedule: cyclical, wd_period: 90000}": "wd_period 90,000: after the last step, 60,000",
    "recipe: {wd_schedule: constant, wd_period: 10000}": "",
    "recipe: {l1_lambda: 0.1, l1_entries: [fc1], l1_start: 50000, l1_rise: 20000}":
        "l1_rise 70,000: after the last step, 60,000",
    "recipe: {freeze: [[90000, arc], [10, fc1]]}": "freeze 90,000: after the last step, 60,000",
    f"recipe: {{{RECYCLED}, recycle_from: 61000, recycle_until: 61000}}":
        "recycle_from 61,000: after the last step, 60,000",
    "configurations: [{}, {recipe: {steps: 40000}}, {recipe: {steps: 30000}}]":
        "*40,000 (1 of 3 configurations); others in 1 more",
    "recipe: {steps: 40000}\nspace: {recipe.fade_end: {int: [16000, 60000]}}": "",
    "space: {recipe.steps: {int: [20000, 60000], step: 10000}}": "",
    "space: {recipe.steps: {int: [20000, 40000], step: 10000}}": "fade_end 45,000: after the last step, 40,000",
    "model: 262p\ntask: copy\nrecipe: {steps: 5000}": "curriculum 7,000: after the last step, 5,000",
}  # fmt: skip


@pytest.mark.parametrize(("lines", "expected"), LATE.items())
def test_a_schedule_that_outlasts_the_budget_is_said(lines, expected):
    """Of lists and searches too. A plan says it as it says what cannot be learnt (test_tasks.py)."""
    model = "" if "model: " in lines else "model: 57p\n"
    said = parse_study(f"name: any\n{model}seeds: [1]\n{lines}\n", "any").kind.too_long()
    assert says(said, expected), said


@pytest.mark.parametrize(
    ("task", "recipe", "late"),
    [
        ("modular", {}, []),
        ("modular", {"wd_schedule": "warmup"}, ["wd_warmup"]),
        ("copy", {"freeze": [[5_001, "arc"]]}, ["curriculum", "freeze"]),
    ],
)
def test_a_task_has_the_schedules_that_mean_something_for_it(task, recipe, late):
    assert list(ends_after(Recipe(**recipe), 5_000, make_task(task))) == late


def test_schedules_of_stages_that_outlast_their_budgets():
    wide = "{name: wide, model: {preset: 67p, hidden: 8}, recipe: {carry_mix: 0}}"
    two = "{name: two, keep: {units: 2}, recipe: {steps: 24000, ramp: 9}, longer: {steps: 45000}}"
    tied = "{name: tied, into: 57p, recipe: {steps: 24000, ramp: 9, fade_end: 20000}}"
    recipe = f"{{steps: 60000, stages: [{wide}, {two}, {tied}]}}"
    study = parse_study(f"name: any\nmodel: 57p\nseeds: [1]\nrecipe: {recipe}\n", "any")
    assert study.kind.too_long() == "stage two: fade_end 45,000: after the last step, 24,000"
    recipe = recipe.replace("longer: {steps: 45000}", "longer: {}").replace("recipe: {steps: 24000, ", "recipe: {", 1)
    recipe = recipe.replace("{steps: 60000, ", "{steps: 24000, ").replace("fade_end: 20000", "fade_end: 30000")
    searched = "space: {recipe.steps: {int: [30000, 60000], step: 10000}}"
    study = parse_study(f"name: any\nmodel: 57p\nseeds: [1]\nrecipe: {recipe}\n{searched}", "any")
    said = "stage tied: fade_end 30,000: after the last step, 24,000"
    assert study.kind.too_long() == said, "a stage without steps of its own has those that are searched"


@pytest.mark.full
def test_no_shipped_study_has_a_schedule_that_outlasts_its_budget():
    assert {name: line for name in readable(shipped_studies()) if (line := load_study(name).kind.too_long())} == {}


def test_a_search_over_flags_says_sizes_and_what_was_impossible():
    text = f"name: any\nmodel: 57p\nseeds: [1]\nspace: {{{FLAGS}}}\n{GRID}\n"
    study = parse_study(text, "any")
    drawn = [{"numbers": numbers, "configuration": None} for numbers in points(study.space)]
    made = [Configuration(*study.configuration(d["numbers"])) for d in drawn[1:]]
    for proposal, configuration in zip(drawn[1:], made, strict=True):
        proposal["configuration"] = configuration.key
    earlier = {"numbers": {"model.tie_fc2_head": True}, "configuration": made[0].key}  # before a field was added
    recorded = [row for c in made for row in rows(FAILED, configuration=c.key)]
    said = summary(study, Ended(rows=recorded), made, [*drawn, earlier])
    assert "  1 of 5 proposals is impossible (model: one_unit excludes tie_fc2_head)\n" in said
    assert "  1 of 5 proposals came to an earlier one's configuration\n" in said
    assert "  one_unit off, tie_fc2_head off, 67 parameters  0 of 1 grokked" in said


def test_what_is_impossible_is_counted_by_todays_space():
    """Not all of its fields are asked of what is impossible, and an earlier space had other proposals."""
    clip = "recipe.clip: {choice: [2, 3], when: {model.one_unit: false}}"
    study = parse_study(f"name: any\nmodel: 57p\nseeds: [1]\nspace: {{{FLAGS}, {clip}}}\n{GRID}\n", "any")
    impossible = {"model.one_unit": True, "model.tie_fc2_head": True}
    earlier = {"model.one_unit": True}
    drawn = [{"numbers": numbers, "configuration": None} for numbers in (impossible, earlier)]
    said = summary(study, Ended(), drawn=drawn)
    assert "  1 of 2 proposals is impossible (model: one_unit excludes tie_fc2_head)\n" in said
    assert study.kind.impossible([earlier, impossible]) == ["model: one_unit excludes tie_fc2_head"]


LIST = """
name: list
model: 57p
recipe: {steps: 1000, lr: 0.01}
configurations: [{}, {model: {tie_fc2_head: false}}, {model: 74p, recipe: {steps: 2000}}]
seeds: {first: 1, count: 2}
"""


def test_the_summary_tells_the_models_apart():
    text = listed_summary(LIST, [FAILED] * 2, [GROKKED] * 2, [FAILED] * 2)
    assert "list: 3 configurations\n  57p, steps 1,000  0 of 2 grokked" in text, "its recipe is not 74p's"
    assert "  seed 1 of 67p, steps 1,000 grokked at step 400, too late to hold for 10,000 steps\n" in text
    assert "\n  74p, steps 2,000  0 of 2 grokked" in text


@pytest.mark.parametrize(
    ("ended", "lacks"),
    [
        (Ended(), ""),
        (Ended(unwritten=1, interrupted=True), ""),
        (Ended(unwritten=1), "not all of it is in MLflow yet: adder-search sync list --home HOME writes what is left"),
    ],
)
def test_the_summary_says_what_mlflow_lacks(ended, lacks):
    said = summary(parse_study(LIST, ""), ended).splitlines()
    found = [re.sub(r"--home \S+", "--home HOME", line.strip()) for line in said if "MLflow" in line]
    assert found == ([lacks] if lacks else [])


@pytest.mark.parametrize(
    ("hold", "stability"), [(0, ""), (500, " and did not hold"), (700, ", too late to hold for 700 steps")]
)
def test_the_summary_lists_ten_grokked_seeds_and_says_how_many_more(hold, stability):
    study = parse_study(LIST.replace("lr: 0.01", f"hold: {hold}").replace("[{}, ", "[").replace("2}\n", "16}\n"), "")
    first = Configuration(*study.listed[0])

    def said(n):
        return summary(study, Ended(rows=rows(*[GROKKED] * n, configuration=first.key)), [first])

    assert said(10).count(f" grokked at step 400{stability}\n") == 10 and "more" not in said(10)
    assert f" grokked at step 400{stability}\n  and 2 more\n" in said(12)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (((3, 2_000), (6, 5)), "3 for 2,000, 6 for 5"), (((0, 0.8), (50_000, 0)), "0 0.8, 50,000 0"),
        ((("fc1", 0.5),), "fc1 0.5"), (("fc1", "ec"), "fc1, ec"), ((8, 16), "8, 16"), ((), "none"),
        (({"name": "wide"}, {"name": "two"}), "wide, two"),
    ],
)  # fmt: skip
def test_a_list_is_shown_by_its_entries_and_only_a_curriculums_last_for_so_long(value, words):
    assert shown(value).replace("\N{NO-BREAK SPACE}", " ") == words


def test_seeds_of_a_run_that_was_killed_are_cut_off():
    seeds = [cut_off(SeedRecord(outcome=outcome)) for outcome in ("running", "grokked")]
    assert [(r["outcome"], r["reason"]) for r in seeds] == [("censored", "its run was killed"), ("grokked", None)]
