"""Descents are the recorded ones, set by set."""

import json

import pytest

from tests import needs_compiler
from tests.compress import golden as descents

DESCENTS = json.loads(descents.DATA.read_text())


@needs_compiler
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "parent", [pytest.param(p, marks=[] if p == "6p" else pytest.mark.full) for p in descents.PARENTS]
)
@pytest.mark.parametrize("kind", descents.RECORDERS)
def test_a_descent_is_the_recorded_one(kind, parent):
    assert json.loads(json.dumps(descents.RECORDERS[kind](parent))) == DESCENTS[kind][parent]
