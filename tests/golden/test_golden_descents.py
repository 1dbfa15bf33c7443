"""Recorded descents are replayed: the same sets proposed in the same order, the same ones accepted."""

import json

import pytest

from tests.golden.descents import DATA, PARENTS, RECORDERS
from trainer.files.installed import missing_for_compilation

RECORDED = json.loads(DATA.read_text())
pytestmark = [
    pytest.mark.skipif(bool(missing_for_compilation()), reason="needs a compiler"),
    pytest.mark.usefixtures("here"),
]


@pytest.mark.parametrize(
    "parent", [pytest.param(p, marks=[] if p == "6p" else pytest.mark.full) for p in PARENTS]
)
@pytest.mark.parametrize("kind", RECORDERS)
def test_a_descent_is_the_recorded_one(kind, parent):
    assert json.loads(json.dumps(RECORDERS[kind](parent))) == RECORDED[kind][parent]
