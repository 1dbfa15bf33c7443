"""Changed training code reproduces the stored curves, to the bit and on every kind of CPU; what is meant to
differ makes them anew.
"""

import pytest

from tests import needs_compiler
from tests.golden.make_golden import CASES, curve, stored

pytestmark = needs_compiler
STORED = stored("curves")


def test_every_case_is_stored():
    assert STORED.keys() == CASES.keys()


@pytest.mark.parametrize("name", STORED)
def test_the_golden_curve(name):
    assert curve(name) == STORED[name]
