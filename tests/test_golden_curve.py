"""Changed training code reproduces the stored curve; what is meant to differ makes it anew."""

import json

import pytest

from tests import make_golden_curve


@pytest.mark.usefixtures("few_selection_problems")  # the curve is the training loss's
def test_the_golden_curve():
    stored = json.loads(make_golden_curve.FILE.read_text())
    for seed, curve in make_golden_curve.curves().items():
        assert curve == pytest.approx(stored[seed], rel=1e-4)
        assert len(curve) == 30 and curve[-1] < 0.97 * curve[0]
