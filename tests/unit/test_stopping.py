"""A stopping rule is one file: a stranger's is read from a study, asked, spared from, counted and named as ours are."""

import json
import re
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pandas as pd
import pytest
import yaml
from pydantic import ValidationError

from search import plugins
from search.cli.render import status
from search.stats.counting import GrokRate
from search.stats.metrics import final_metrics
from search.study.stopping import section_of
from tests import ROOT
from tests.commands import declare, python
from tests.reference import QUICK
from tests.unit.test_counting import FAILED, RUNG, SCREENED, overview, rows
from tests.unit.test_outcomes import facts, ruled, scripted
from trainer import Outcome

RISING = (ROOT / "docs/extending.md").read_text("utf-8").partition("# adder_rising.py\n")[2].partition("```")[0]
"""The rule of the documentation: it ends a seed whose loss rises `times` times in a row."""
SCRIPT = """
import json, sys
sys.path.insert(0, "site")
from tests.commands import call
from tests.homes import quickly
from tests.in_process import without_ray
with without_ray(), quickly():
    said = [call(*words.split()) for words in sys.argv[1:]]
from search.analysis.frames import records
records("falls", "seeds", home="home").to_csv("seeds.csv")
print(json.dumps([[result.exit_code, result.output] for result in said]))
"""
RECIPE = {"steps": 24, "batch": 8, "eval_every": 4, "warmup": 0, "curriculum": [], "lr": 0.05}
RECIPE |= {"fade_start": 8, "fade_end": 20}
STUDY = QUICK | {
    "name": "falls",
    "recipe": RECIPE,
    "seeds": {"first": 1, "count": 40},
    "resources": QUICK["resources"] | {"slots": 40, "seeds_per_trial": 40},
    "stop": {"hopeless": False, "rising": {"times": 2}},
}
WRONG = STUDY | {"stop": {"rising": {"times": 0}}}


def commands(*words):
    """Exit codes and outputs of commands, in a process that has the package."""
    declare("site", "adder-rising", 1, "[adder_search.stopping]\nrising = adder_rising:Rising\n")
    Path("site/adder_rising.py").write_text(RISING)
    return json.loads(python("-c", SCRIPT, *words, PYTHONPATH=ROOT).splitlines()[-1])


@pytest.fixture
def rising(monkeypatch):
    """The rule's class, which a package brings."""
    module = {"__name__": "adder_rising"}
    monkeypatch.setitem(sys.modules, "adder_rising", type(sys)("adder_rising"))
    exec(RISING, module)
    points = {"rising": EntryPoint("rising", "adder_rising:Rising", plugins.STOPPING)}
    monkeypatch.setattr(plugins, "added", lambda group: points if group == plugins.STOPPING else {})
    monkeypatch.setattr(EntryPoint, "load", lambda point: module["Rising"])
    plugins.rules.cache_clear()
    yield module["Rising"]
    plugins.rules.cache_clear()


@pytest.mark.parametrize(
    ("loss", "is_spared", "expected"),
    [
        ([3.0, 2.0, 2.5, 2.6, 1.0, 1.0], False, (Outcome.SCREENED, 20, "rising: times 2")),
        ([3.0, 2.0, 2.5, 2.6, 1.0, 1.0], True, (Outcome.FAILED, 30, "rising: times 2")),
        ([3.0, 2.0, 2.5, 2.4, 2.6, 1.0], False, (Outcome.FAILED, 30, None)),
        ([3.0, 2.0, 2.0, 2.6, 1.0, 1.0], False, (Outcome.FAILED, 30, None)),
    ],
)
@pytest.mark.usefixtures("few_selection_problems")
def test_a_bank_ends_what_any_rule_calls_by_its_curve(loss, is_spared, expected, rising):
    (pair,) = ruled(rising(2))
    bank, _ = scripted([0.0] * 6, loss=loss, pairs=[replace(pair, spared=is_spared)])
    assert facts(bank) == expected


def test_the_options_of_a_rule_are_the_keys_of_its_section(rising):
    section = section_of(rising)
    assert section.model_validate({"times": 2}).rule() == rising(2) and section().rule() == rising(3)
    assert section.model_fields["times"].description.endswith("; unit: evaluations")
    for wrong in ({"times": 0}, {"tims": 2}, {"times": 2.5}):
        with pytest.raises(ValidationError):
            section.model_validate(wrong)


def test_a_rule_of_another_package_is_counted_and_named_apart_from_screens(rising):
    """Each is bounded by what was spared of its own."""
    called = {"screen": "rising: times 2", "configuration": "a"}
    seeds = rows(*[SCREENED] * 4, *[FAILED] * 6, **called)
    seeds += rows(*[SCREENED] * 3, first=50, configuration="a", screen=RUNG)
    wrongly = 4 * (1 - 0.05 ** (1 / 6)) + 3
    assert GrokRate.of(seeds).missed == pytest.approx(wrongly)
    metrics = final_metrics(seeds)
    assert metrics["rising_wrongly"] == pytest.approx(wrongly - 3) and metrics["screened_wrongly"] == 3
    (summary,) = overview(seeds)
    names = ("given_up", "screened", "screen_spared", "rising", "rising_spared", "rising_spared_grokked")
    assert [summary[name] for name in names] == [0, 3, 0, 4, 6, 0]
    lines = status([summary], []).splitlines()
    assert "  rising: 4 of 13; 6 more spared, to check the rule: none grokked" in lines
    assert "  screened: 3 of 13" in lines


@pytest.mark.full
def test_a_strangers_rule_does_all_that_ours_do(here):
    for name, study in {"falls": STUDY, "wrong": WRONG}.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(study))
    keys, wrong, plan, run, shown, status, report = commands(
        "keys stop",
        "run wrong.yaml --dry-run",
        "run falls.yaml --dry-run",
        "run falls.yaml --home home",
        "status falls --home home",
        "status falls --json --home home",
        "report falls -o falls.html --home home",
    )
    assert "stop.rising.times  how often in a row; unit: evaluations [3]" in keys[1]
    assert wrong == [2, "error: wrong.yaml: stop.rising.times: must be greater than or equal to 1, got 0\n"]
    says = "ends seeds whose loss rises (rising: times 2); a random tenth spared. How many of the ended ones would"
    why = "it was not measured before with this spec and recipe"
    assert f"  rising rule     {says} have grokked, these spared ones tell: {why}\n" in plan[1]
    assert run[0] == shown[0] == status[0] == report[0] == 0, run[1]

    # what it ended and what it spared: which those are, test_a_bank_ends_what_any_rule_calls_by_its_curve tells
    seeds = pd.read_csv("seeds.csv")
    ended = int((seeds["outcome"] == "screened").sum())
    spared = int((seeds["screen"] == "rising: times 2").sum()) - ended
    assert ended and spared and 4 < ended + spared < 40 and set(seeds["steps"][seeds["outcome"] != "screened"]) == {24}

    # how it is counted and named
    (of_study,) = json.loads(status[1])["studies"]
    counts = {name: of_study[name] for name in ("rising", "rising_spared", "rising_spared_grokked", "screened")}
    assert counts == {"rising": ended, "rising_spared": spared, "rising_spared_grokked": 0, "screened": 0}
    line = f"rising: {ended} of 40; {spared} more spared, to check the rule: none grokked"
    assert line in run[1] and line in shown[1]
    assert f"The rising rule ended {ended} of 40 seeds." in re.sub("<[^>]*>", "", Path("falls.html").read_text())
