"""A home that real runs left (tests/golden/recorded_home.py): later programs say the same of it, and go on with it.

All is asked by commands and by the files that they write, so that it does not matter how a home is kept.
"""

import json

import pytest

from tests import by_tier, needs_compiler, needs_plugins
from tests.golden import recorded_home
from tests.golden.recorded_home import (
    NAMES,
    UNFINISHED,
    Asked,
    about_home,
    about_study,
    by_its_user,
    gone_on,
    the_first,
    unpacked,
)

ANSWERS = json.loads(recorded_home.ANSWERS.read_text("utf-8"))


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The home, unpacked at another place."""
    folder = tmp_path_factory.mktemp("recorded")
    return Asked(unpacked(folder), folder)


@pytest.fixture(scope="module")
def asked_on(tmp_path_factory):
    """The same for those who go on with it."""
    folder = tmp_path_factory.mktemp("gone-on")
    return Asked(unpacked(folder), folder)


@pytest.fixture(autouse=True, scope="module")
def its_user():
    with by_its_user():
        yield


def plain(answers):
    return json.loads(json.dumps(answers))


def as_then(answer, then):
    """An answer without fields and columns that there were not then."""
    if isinstance(answer, dict) and isinstance(then, dict):
        return {name: as_then(value, then[name]) for name, value in answer.items() if name in then}
    if isinstance(answer, list) and isinstance(then, list):
        if all(isinstance(name, str) for name in then):
            return [name for name in answer if name in then]
        return [as_then(*pair) for pair in zip(answer, then, strict=True)]
    return answer


@needs_plugins
def test_commands_say_the_same_of_the_whole_home(asked):
    answers = plain(about_home(asked))
    assert answers.keys() == ANSWERS["home"].keys()
    for name, answer in answers.items():
        assert as_then(answer, ANSWERS["home"][name]) == ANSWERS["home"][name], name


@pytest.mark.parametrize("of", by_tier([the_first, list], [the_first]))
@pytest.mark.parametrize("study", [pytest.param(n, marks=needs_plugins if n == "descent" else ()) for n in NAMES])
def test_a_study_has_the_same_rows_curves_and_thetas(study, of, asked):
    """Of a killed run, whose folders have more than was recorded, others may find more curves."""
    answers, wanted = plain(about_study(asked, study, of)), ANSWERS[study]
    for name in ("status", "configurations", "seeds"):
        assert as_then(answers[name], wanted[name]) == wanted[name], name
    assert answers["curves"] | wanted["curves"] == answers["curves"]
    thetas = {seed: theta for seed, theta in wanted["thetas"].items() if seed in answers["thetas"] or of is list}
    assert answers["thetas"] | thetas == answers["thetas"] and bool(thetas) == bool(wanted["thetas"])


@needs_compiler
@pytest.mark.parametrize("study", by_tier(UNFINISHED, ["killed"]))
@pytest.mark.usefixtures("no_ray", "quick")
def test_an_unfinished_study_ends_as_it_did_then(study, asked_on):
    then = ANSWERS[f"{study}, gone on with"]
    assert as_then(plain(gone_on(asked_on, study)), then) == then
