"""`adder-search models`."""

import json

from model import PRESETS
from tests.commands import call


def test_the_json_has_every_preset_with_its_budget():
    presets = {r["name"]: r for r in json.loads(call("models", "--json").output)}
    for name, spec in PRESETS.items():
        assert (presets[name]["params"], presets[name]["family"]) == (spec.params, spec.family)
        assert presets[name]["budget"] == spec.layout.budget()
    assert presets["57p"]["constraints"]["qk_dim"] == {"value": 4, "saves": 3}
    assert json.loads(call("models", "67p", "--json").output) == [presets["67p"]]
