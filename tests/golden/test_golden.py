"""What is stored is made again: keys and fields of all studies, curves to the bit, answers of commands, reports.

Descents: tests/compress/test_golden.py.

A key digests what differs from the defaults, so a changed default would keep a key and change its meaning. What is
meant to differ is made anew (tests/golden/make_golden.py).
"""

import json

import pytest

from tests import ROOT, by_tier, needs_compiler, needs_plugins
from tests.golden.make_golden import (
    CASES,
    checkpoints,
    curve,
    defaults,
    keys_of,
    listings,
    messages,
    plain,
    reports,
    stored,
    study_files,
)

CURVES, DEFAULTS, KEYS = (stored(name) for name in ("curves", "defaults", "keys"))
LISTINGS = stored("listings")


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_stay(kind):
    assert json.loads(json.dumps(defaults()[kind])) == DEFAULTS[kind]


def package_of(name):
    """The package that a stored study needs."""
    if any(each["spec"] and each["spec"]["family"] == "module" for each in KEYS[name]):
        return "own_modules"
    return "compress" if name.startswith("compress-") else "search"


@pytest.mark.parametrize("name", [n for n in KEYS if (ROOT / package_of(n)).exists()])
def test_a_study_asks_for_the_same_configurations(name):
    assert name in study_files(), "the study is in no file; if that is meant, take it out of keys.json"
    assert json.loads(json.dumps(keys_of(study_files()[name]))) == KEYS[name]


def test_every_study_and_case_is_stored():
    assert study_files().keys() <= KEYS.keys(), "python -m tests.golden.make_golden keys"
    assert CURVES.keys() == CASES.keys()


@needs_compiler
@pytest.mark.parametrize("name", CURVES)
def test_the_curve_is_the_stored_one_on_every_kind_of_cpu(name):
    assert curve(name) == CURVES[name]


@needs_plugins
@pytest.mark.parametrize("kind", LISTINGS)
def test_commands_list_the_same(kind):
    assert json.loads(json.dumps(listings()[kind])) == LISTINGS[kind]


@needs_compiler
@pytest.mark.full
def test_commands_say_the_same_of_certificates():
    assert json.loads(json.dumps(checkpoints())) == stored("checkpoints")


@needs_compiler
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("study", by_tier(["a sweep", "a search"], ["a sweep"]))
def test_runs_print_the_same(study):
    expected = {name: lines for name, lines in stored("messages").items() if name.startswith(study)}
    assert messages([study]) == expected


@needs_plugins
def test_reports_say_the_same():
    answers, expected = reports(), stored("reports")
    assert answers.keys() == expected.keys()
    for name, answer in answers.items():
        assert answer == plain(expected[name]), name
