"""Recorded descents are replayed: the same sets proposed in the same order, the same ones accepted."""

import json

import pytest

from tests import needs_compiler
from tests.golden.descents import DATA, PARENTS, RECORDERS

RECORDED = json.loads(DATA.read_text())
pytestmark = [needs_compiler, pytest.mark.usefixtures("here")]


@pytest.mark.parametrize(
    "parent", [pytest.param(p, marks=[] if p == "6p" else pytest.mark.full) for p in PARENTS]
)
@pytest.mark.parametrize("kind", RECORDERS)
def test_a_descent_is_the_recorded_one(kind, parent):
    assert json.loads(json.dumps(RECORDERS[kind](parent))) == RECORDED[kind][parent]
