"""The rope family: itemised counts of published models, and the record from outside."""

from dataclasses import replace

import pytest

from model import PRESETS, verify
from model.adderboard import failures, official_pairs
from model.families.rope import Rope
from model.tied import count
from tests.outside import WRONG, hyra

# AdderBoard's entries: table, Q, K, V, O, norms of queries and keys, MLP, norms.
BUDGETS = {
    "228p": (40, 32, 16, 16, 32, 8, 72, 12), "200p": (30, 24, 12, 12, 24, 8, 81, 9),
    "173p": (30, 24, 12, 12, 24, 8, 54, 9), "155p": (30, 24, 12, 12, 24, 8, 36, 9),
    "146p": (30, 24, 12, 12, 24, 8, 27, 9), "137p": (30, 24, 12, 12, 24, 8, 18, 9),
    "122p": (30, 12, 12, 12, 12, 8, 27, 9), "113p": (30, 12, 12, 12, 12, 8, 18, 9),
    "101p": (30, 12, 12, 12, 0, 8, 18, 9), "96p": (30, 12, 12, 0, 7, 8, 18, 9),
    "95p": (3, 12, 12, 12, 12, 8, 27, 9), "89p": (30, 12, 12, 0, 0, 8, 18, 9),
    "86p": (30, 12, 12, 0, 0, 8, 18, 6), "83p": (30, 12, 12, 0, 0, 8, 18, 3),
    "62p": (3, 12, 12, 0, 0, 8, 18, 9), "58p": (3, 12, 1, 12, 0, 8, 13, 9),
    "58p-kv": (3, 12, 12, 0, 0, 4, 18, 9), "55p": (3, 12, 1, 12, 0, 8, 13, 6),
    "52p": (3, 12, 12, 0, 0, 4, 18, 3), "52p-gate": (3, 12, 12, 0, 0, 4, 12, 9),
    "49p": (3, 12, 12, 0, 0, 4, 12, 6), "45p": (3, 12, 1, 0, 0, 8, 18, 3), "44p": (3, 12, 0, 0, 0, 8, 18, 3),
    "41p": (3, 12, 1, 0, 0, 4, 18, 3), "36p": (3, 12, 1, 0, 0, 4, 13, 3),
}  # fmt: skip
PARTS = (
    ("tokens", "arc"), ("q",), ("k", "kv", "k_scale", "k_angle"), ("v",), ("o", "o_A", "o_B"),
    ("q_norm", "k_norm", "qk_norm"), ("gate", "gate_scale", "up", "down", "down_angle"),
    ("norm", "norm12", "norm1", "norm2", "norm3"),
)  # fmt: skip


def test_presets_have_the_published_budgets():
    rope = {name: spec for name, spec in PRESETS.items() if isinstance(spec, Rope)}
    assert rope.keys() == BUDGETS.keys()
    for name, spec in rope.items():
        budget = spec.layout.budget()
        assert tuple(sum(budget.get(n, 0) for n in part) for part in PARTS) == BUDGETS[name], name
        assert spec.params == sum(BUDGETS[name]) == int(name.partition("p")[0])


def test_the_record_from_outside_is_wrong_where_it_was_found_to_be():
    spec, theta_P = hyra()
    counted = count(spec)
    assert (counted.across, counted.inside, counted.constants) == (15, 20, 21)
    pairs = [(a, b) for a, b, _ in WRONG]
    others = [pair for pair in official_pairs()[:200] if pair not in pairs]
    assert failures(spec, theta_P, [*pairs, *others]) == WRONG


@pytest.mark.full
def test_the_record_from_outside_has_10005_of_10010():
    spec, theta_P = hyra()
    for precision in (theta_P, theta_P.double()):
        result = verify(spec, precision)
        assert result.correct == 10_005 and sorted(result.failures) == sorted(WRONG)


def test_what_cannot_be_is_refused():
    for fields, message in (
        ({"turned_down": True, "ffn": 1}, "no pair of units"),
        ({"arc": True, "sine_input": True, "width": 2}, "needs a third dimension"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(Rope(), **fields)
