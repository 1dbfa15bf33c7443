"""Descents are the recorded ones, set by set."""

import json
from functools import partial

import pytest

from tests import by_tier, needs_compiler
from tests.compress import golden as descents

DESCENTS = json.loads(descents.DATA.read_text())


RECORDERS = {**descents.RECORDERS, "local, gone on with after each round": partial(descents.local_descent, most=1)}


@needs_compiler
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("parent", by_tier(list(descents.PARENTS), ["6p"]))
@pytest.mark.parametrize("kind", RECORDERS)
def test_a_descent_is_the_recorded_one(kind, parent):
    assert json.loads(json.dumps(RECORDERS[kind](parent))) == DESCENTS[kind.partition(",")[0]][parent]
