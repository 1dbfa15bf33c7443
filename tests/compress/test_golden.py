"""Descents are the recorded ones, set by set."""

import json
from functools import partial
from itertools import product

import pytest

from tests import needs_compiler
from tests.compress import golden as descents

DESCENTS = json.loads(descents.DATA.read_text())
GONE_ON_WITH = "local, gone on with after each round"
RECORDERS = {**descents.RECORDERS, GONE_ON_WITH: partial(descents.local_descent, most=1)}
QUICK = [(GONE_ON_WITH, "6p")]
"""`make test` has a study's descent in tests/compress/test_compress.py."""
ALL = [
    pytest.param(*each, marks=() if each in QUICK else pytest.mark.full)
    for each in product(RECORDERS, descents.PARENTS)
]


@needs_compiler
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("kind", "parent"), ALL)
def test_a_descent_is_the_recorded_one(kind, parent):
    assert json.loads(json.dumps(RECORDERS[kind](parent))) == DESCENTS[kind.partition(",")[0]][parent]
