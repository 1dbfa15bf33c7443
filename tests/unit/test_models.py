"""`adder-search models`."""

import dataclasses
import json

import pytest

from model import PRESETS, preset
from model.spec import FAMILIES
from tests.commands import call, fails_with_one

LADDER = (242, 226, 214, 203, 187, 170, 141, 133, 100, 90, 80, 78, 75, 74, 67, 57, 54, 47, 46)


def test_the_json_has_every_rung_with_its_budget():
    rungs = {r["name"]: r for r in json.loads(call("models", "--json").output)}
    assert {f"{n}p" for n in LADDER} <= set(rungs) and set(PRESETS) <= set(rungs)
    for name, r in rungs.items():
        assert sum(r["budget"].values()) == r["params"]
        if name in PRESETS:
            assert (r["params"], r["family"]) == (PRESETS[name].params, PRESETS[name].family)
    assert rungs["57p"]["budget"] == {
        "arc": 3, "z_hi": 3, "equals": 3, "phase": 1, "q_proj": 12, "out_A": 5, "out_B": 5, "fc1": 10,
        "head": 10, "norm": 5,
    }  # fmt: skip
    assert rungs["57p"]["constraints"]["qk_dim"] == {"value": 4, "saves": 3}
    assert json.loads(call("models", "67p", "--json").output) == [rungs["67p"]]


def test_a_rung_is_itemised():
    text = call("models", "57p").output
    assert text.startswith("57p: split_subspace, 57 parameters\n")
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert lines["q_proj"].split()[:5] == ["q_proj", "4", "x", "3", "12"]
    assert lines["total"].split() == ["total", "57"]
    assert lines["tie_fc2_head"].split()[:2] == ["tie_fc2_head", "10"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_rung_can_be_shown_and_every_slice_has_a_role(name):
    assert f"{PRESETS[name].params} parameters" in call("models", name).output
    assert set(preset(name).layout.names) <= set(PRESETS[name].roles)


def test_the_listing_names_families_constraints_and_rungs():
    text = call("models").output
    for family, cls in FAMILIES.items():
        assert f"{family}: {cls.about}" in text
        assert all(f"  {field.name} " in text for field in dataclasses.fields(cls))
    assert all(name in text for name in PRESETS)
    assert "needs arc" in text and "excludes rank1_out" in text


def test_two_rungs_are_compared():
    text = call("models", "57p", "--diff", "67p").output.splitlines()
    assert text[0].split() == ["57p", "67p"]
    assert [line.split() for line in text[1:]] == [
        ["tie_fc2_head", "yes", "no"], ["parameters"], ["fc2", "0", "10"], ["total", "57", "67"],
    ]  # fmt: skip
    found = json.loads(call("models", "57p", "--diff", "67p", "--json").output)
    assert found == {
        "params": [57, 67],
        "fields": {"tie_fc2_head": [True, False]},
        "budget": {"fc2": [0, 10]},
    }


def test_wrong_use(here):
    assert fails_with_one(2, "models", "56p").startswith("unknown preset '56p'; did you mean ")
    assert fails_with_one(2, "models", "57p", "--diff", "56p").startswith("unknown preset '56p'")
    assert fails_with_one(2, "models", "--diff", "57p") == (
        "--diff compares two presets: adder-search models PRESET --diff PRESET"
    )
