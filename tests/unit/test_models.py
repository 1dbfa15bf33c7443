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
