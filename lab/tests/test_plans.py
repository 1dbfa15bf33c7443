"""The plans of experiments: what they were written to train."""

import pytest

from lab.plans import LAB, load_plan, toggled
from model import preset
from search.study.file import shipped_studies
from search.study.trial import Configuration
from tests.golden.make_golden import study_files
from trainer.stopping.hopeless import CONFIGURATIONS

PLANS = sorted(path.stem for path in LAB.glob("2*/*.yaml"))


def test_a_plan_is_a_study_of_its_files_name_and_says_what_it_is_about():
    """What it trains is stored, and no study is in two files (tests/golden)."""
    files = study_files()
    for name in PLANS:
        assert files[name].name == f"{name}.yaml" and "\nabout: " in files[name].read_text("utf-8"), name


@pytest.mark.parametrize(("name", "constraint"), [("170p", "qk_dim=4"), ("141p", "qk_dim=5")])
def test_with_a_constraint_that_is_toggled_there_are_fewer_numbers(name, constraint):
    said = f"{constraint} is no constraint of {name}: with it there are no fewer numbers"
    with pytest.raises(ValueError, match=said):
        toggled(preset(name), constraint)
    assert toggled(preset("100p"), "qk_dim=4").params < 100 and toggled(preset("67p"), "qk_dim=4").params > 67


def test_the_rule_for_hopeless_seeds_was_measured_where_none_was_given_up():
    plans = [load_plan(name) for name in PLANS if name.endswith("-rate")]
    assert not any(plan.stop.hopeless for plan in plans)
    known = {Configuration(*listed).key for plan in plans for listed in plan.listed}
    assert known <= CONFIGURATIONS and len(CONFIGURATIONS) == 13


def test_no_shipped_study_begins_with_seeds_that_confirmed_a_recipe():
    """Someone who runs a shipped study gets fresh evidence."""
    studies = [load_plan(name) for name in (*shipped_studies(), "confirm-1", "half-2-128", "long-57p", "longer-fresh")]
    confirming = {seed for study in studies[-4:] for seed in study.first_seeds}
    confirming |= {seed for study in studies for seed in study.confirm_seeds}
    assert len(confirming) == 64 + 128 + 128 + 128
    assert [s.name for s in studies[:-4] if confirming.intersection(s.first_seeds)] == []
