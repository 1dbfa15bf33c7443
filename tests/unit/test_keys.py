"""`adder-search keys`: defaults, sections, names that are near. All that it lists: tests/golden/data/listings.json."""

import json

import pytest

from search.study.file import every_key, parse_study
from tests.commands import call, done, fails

LISTED = {k.path: k for k in every_key()}
OFF = {p for p in LISTED if p.partition(".")[0] in ("allocation", "confirm", "space", "start", "compress", "seeds")}
"""Keys of sections that are on once one of them is given."""
SMALL = {"name": "x", "model": "57p", "seeds": [1]}


@pytest.mark.parametrize("path", [p for p, k in LISTED.items() if k.default is not None and p not in OFF])
def test_a_default_is_what_the_file_would_say(path):
    *sections, last = path.split(".")
    given, without = {last: LISTED[path].default}, {}
    for name in reversed(sections):
        given, without = ([given], [without]) if name == "N" else ({name: given}, {name: without})
    parsed = [parse_study(json.dumps(SMALL | more), "") for more in (given, without)]
    assert parsed[0].listed == parsed[1].listed
    assert parsed[0].model_copy(update={"recipe": {}}) == parsed[1]


def test_a_section_is_listed_alone():
    listed = done("keys", "until")
    assert "until.max_seeds" in listed and "recipe" not in listed
    paths = [k["path"].removeprefix("stop.") for k in json.loads(call("keys", "stop", "--json").output)]
    assert paths == ["stop", "hopeless", "screen", "screen.at", "screen.keep", "spare"]
    (line,) = call("keys", "recipe.lr").output.splitlines()
    assert line.split()[0] == "recipe.lr"


def test_a_bare_name_and_a_beginning_are_found():
    start, tie = "recipe.fade_start", "model.tie_vo"
    for asked, found in {"fade_start": start, "recipe.fade_s": start, "tie_vo": tie, "model.tie_vo": tie}.items():
        assert [k["path"] for k in json.loads(call("keys", asked, "--json").output)] == [found]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("wrong", "near"), [("util", "until"), ("recipe.weightdecay", "recipe.weight_decay")])
def test_a_wrong_key_names_the_nearest(wrong, near):
    assert fails(2, "keys", wrong)[0].startswith(f"no key '{wrong}'; did you mean {near}")
