"""A kind of study is one class: two that are written here alone are read from files, planned, run and reported."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pydantic import Field

from search import plugins
from search.errors import UserError
from search.study import file
from search.study.file import every_key, parse_study
from search.study.kind import Kind
from search.study.schema import Study
from search.study.space import Strict, error_at
from search.study.spelling import recipe_of, validated_pair
from search.study.trial import Configuration
from tests.commands import done
from tests.homes import quickly
from tests.in_process import without_ray

BEGIN = "name: w\nmodel: 57p\nrecipe: {steps: 200, eval_every: 100}\nresources: {slots: 2}\nseeds: {count: 2}\n"


class RatesKeys(Strict):
    rates: list[float] = Field(default_factory=list, description="learning rates, each trained with all the seeds")


class Rates(Kind):
    """The file's model at several learning rates."""

    asked_by = ("rates",)
    keys = RatesKeys

    def check_alone(self):
        if self.study.start:
            raise error_at("start", "does not go with rates")

    @property
    def spelled_out(self):
        study = self.study
        recipes = [recipe_of(study.recipe | {"lr": lr}, "rates", {}) for lr in study.rates]
        return [validated_pair(study.base_spec, recipe, "rates") for recipe in recipes]

    listed = spelled_out

    def name_of(self, configuration):
        return f"at {configuration.recipe.lr:g}"

    def describe_count(self, known):
        return f"{self.planned} learning rates"


class WalkKeys(Strict):
    walk: int | None = Field(None, description="steps of a walk, each to twice the learning rate")


class Walk(Kind):
    """A walk that goes on from what became of the step before."""

    asked_by = ("walk",)
    keys = WalkKeys
    proposes = True
    is_compared = False
    round_size = 1
    planned = property(lambda self: self.study.walk)

    def propose(self, parents, records):
        return Steps(self.study, records)

    def plan_round(self, recorded):
        return [f"  walk            {self.planned} steps"]

    def summary(self, records):
        return [f"walked {len(records.list_configurations())} steps"]


class Steps:
    """Proposals of a walk: twice the learning rate, once all that was proposed has ended."""

    def __init__(self, study, records):
        self.study, self.records = study, records
        self.made, self.ended = len(records.list_configurations()), 0

    @property
    def exhausted(self):
        return self.made >= self.study.walk

    def proposed(self):
        return list(self.records.list_configurations().values())

    def ask(self):
        if self.ended < self.made:
            return None
        values = {"recipe.lr": 0.001 * 2**self.made}
        configuration = Configuration(*self.study.configuration(values))
        self.records.create_configurations([configuration])
        self.made += 1
        return configuration

    def tell(self, configuration, rows):
        self.ended += 1


@pytest.fixture
def registered(monkeypatch):
    """Both kinds, as a package's entry points bring them."""
    ours = {cls.asked_by[0]: EntryPoint(cls.asked_by[0], f"{__name__}:{cls.__name__}", "") for cls in (Rates, Walk)}
    added = plugins.added
    monkeypatch.setattr(plugins, "added", lambda group: ours if group == plugins.KINDS else added(group))
    with_both = type("Study", (RatesKeys, WalkKeys, Study), {"__doc__": "As a process reads files that begins now."})
    monkeypatch.setattr(file, "Study", with_both)


@pytest.mark.usefixtures("registered")
def test_the_keys_of_a_kind_are_keys_of_study_files():
    assert {"rates", "walk"} <= {key.path for key in every_key()}
    assert {type(parse_study(BEGIN + line, "f").kind) for line in ("rates: [0.1]", "walk: 1")} == {Rates, Walk}
    wrong = {
        "rates: [0.1]\nwalk: 3": "f: walk: rates proposes the configurations of this study",
        "rates: [-1]": "f: rates.lr: must be 0.0 or more, got -1.0",
        "rates: x": "f: rates: must be a list, got 'x'",
        "rates: [0.1]\nstart: {study: y}": "f: start: does not go with rates",
        "walk: 1\nspace: {recipe.lr: {float: [0, 1]}}": "f: space: walk proposes the configurations of this study",
    }
    for line, expected in wrong.items():
        with pytest.raises(UserError) as error:
            parse_study(BEGIN + line, "f")
        assert str(error.value) == expected


def planned_and_run(lines):
    """What a plan and a run of a study print."""
    Path("w.yaml").write_text(BEGIN + lines)
    with quickly(), without_ray():
        return done("run", "w.yaml", "--dry-run"), done("run", "w.yaml")


@pytest.mark.usefixtures("registered", "here")
def test_a_kind_is_planned_run_and_reported():
    plan, summary = planned_and_run("rates: [0.01, 0.02]\nstop: {hopeless: off}\n")
    assert "  configurations  2 learning rates\n" in plan and "  seeds           2 of each, 4 in all, " in plan
    assert "w: 2 configurations\n  at 0.01  0 of 2 " in summary and "  at 0.02  0 of 2 " in summary
    assert "  at 0.02: 2 not grokked\n" in done("status", "w") + "\n"
    done("report", "w", "-o", "w.html")
    page = Path("w.html").read_text()
    assert "at 0.01" in page and "rates:\n- 0.01\n- 0.02" in page, "names, and the file as it was"


@pytest.mark.usefixtures("registered", "here")
def test_a_kind_that_proposes_is_told_of_each_step_before_the_next():
    plan, summary = planned_and_run("walk: 3\n")
    assert "  walk            3 steps\n" in plan and " a round at " in plan
    assert "walked 3 steps\n" in summary and " of 6 " not in summary, "their rates are not compared"
    assert "57p" in done("status", "w")
