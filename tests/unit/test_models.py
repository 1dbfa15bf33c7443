"""`adder-search models`."""

import json

import pytest

from model import PRESETS
from tests.commands import call


def test_the_json_has_every_preset_with_its_budget():
    presets = {r["name"]: r for r in json.loads(call("models", "--json").output)}
    for name, spec in PRESETS.items():
        assert (presets[name]["params"], presets[name]["family"]) == (spec.params, spec.family)
        assert presets[name]["budget"] == spec.layout.budget()
    assert presets["57p"]["constraints"]["qk_dim"] == {"value": 4, "saves": 3}
    assert json.loads(call("models", "67p", "--json").output) == [presets["67p"]]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_itemised(name):
    text = call("models", name).output
    assert text.startswith(f"{name}: {PRESETS[name].family}, {PRESETS[name].params} parameters\n")
    rows = {line.split()[0].partition("=")[0]: line.split() for line in text.splitlines() if line[:2] == "  "}
    assert rows.keys() >= PRESETS[name].layout.budget().keys() | PRESETS[name].applied().keys()
    assert rows["total"] == ["total", str(PRESETS[name].params)]


def test_two_presets_are_compared():
    text = call("models", "57p", "--diff", "67p").output.splitlines()
    assert [line.split() for line in text] == [
        ["57p", "67p"], ["tie_fc2_head", "yes", "no"], ["parameters"], ["fc2", "0", "10"], ["total", "57", "67"],
    ]  # fmt: skip
    assert json.loads(call("models", "57p", "--diff", "67p", "--json").output) == {
        "params": [57, 67], "fields": {"tie_fc2_head": [True, False]}, "budget": {"fc2": [0, 10]},
    }  # fmt: skip
