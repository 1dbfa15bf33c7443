"""Studies that list several configurations: parsed, planned, estimated and summed up."""

from types import SimpleNamespace

import pytest

from search.cli import render
from search.errors import UserError
from search.run.driver import Ended
from search.run.planner import Planner
from search.store.home import Home
from search.study.file import parse_study
from search.study.trial import Configuration
from tests.commands import says
from tests.planners import drain, rows_of
from trainer import Outcome

LIST = """
name: list
model: 57p
recipe: {steps: 1000, lr: 0.01}
configurations:
  - {}
  - {model: {tie_fc2_head: false}}
  - {model: 74p, recipe: {steps: 2000}}
seeds: {first: 1, count: 2}
resources: {seeds_per_trial: 2}
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("model: 57p", "about: x", "configurations.0.model: missing, and the study has none"),
        ("{steps: 2000}", "{step: 2000}", "configurations.2.recipe.step: unknown key; did you mean*steps*"),
        ("{tie_fc2_head: false}", "{arc: false}", "configurations.1.model: circular needs arc"),
        ("  - {}", "  - {model: 67p}", "configurations.1: the same as configurations.0"),
        ("resources:", "space: {recipe.lr: {float: [0.1, 0.2]}}\nresources:", "configurations: *not both"),
    ],
)
def test_errors_name_the_entry(old, new, expected):
    with pytest.raises(UserError) as error:
        parse_study(LIST.replace(old, new, 1), "x.yaml")
    lines = [line.removeprefix("x.yaml: ") for line in str(error.value).splitlines()]
    assert any(says(line, expected) for line in lines), lines


def test_the_summary_tells_the_models_apart(tmp_path, monkeypatch):
    study, rows = parse_study(LIST, ""), []
    for trial in drain(Planner(study, [])):
        ended = rows_of(trial, Outcome.GROKKED if trial.spec.params == 67 else Outcome.FAILED)
        rows += [{**r, "grok_step": 500, "held": True, "hopeless_step": None, "reason": None, "steps": 1_000}
                 for r in ended]  # fmt: skip
    listed = {c.key: c for c in map(Configuration, *zip(*study.listed, strict=True))}
    records = SimpleNamespace(home=Home(tmp_path), list_configurations=lambda: listed)
    text = render.summary(study, "list.yaml", records, Ended(rows=rows))
    assert "list: 3 configurations\n  57p, steps 1,000  0 of 2 grokked" in text, "its recipe is not 74p's"
    assert "  seed 1 of 67p, steps 1,000 grokked at step 500 and held" in text
    assert "\n  74p, steps 2,000  0 of 2 grokked" in text
