"""Changed training code reproduces the stored curves, to the bit and on every kind of CPU; what is
meant to differ makes them anew.
"""

import json

import pytest

from tests import make_golden_curve
from trainer.files.installed import missing_for_compilation


@pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
@pytest.mark.usefixtures("few_selection_problems")  # the curve is the training loss's
@pytest.mark.parametrize("name", make_golden_curve.RUNGS)
def test_the_golden_curve(name):
    stored = json.loads(make_golden_curve.FILE.read_text())[name]
    for seed, curve in make_golden_curve.curves(name).items():
        assert curve == stored[seed]
        assert len(curve) == 30 and curve[-1] < 0.97 * curve[0]
