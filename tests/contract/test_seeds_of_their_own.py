"""Whatever a recipe switches on: a seed is the same in any company and slot, and after an interruption."""

import pytest

from model.tied import constrained
from tests.banks import EVERY, SPEC, assert_all_same, finish, make, pair, results
from tests.contract.test_optimisers import VARIANTS
from trainer import Pair
from trainer.files.installed import missing_for_compilation

pytestmark = pytest.mark.usefixtures("few_selection_problems")
TIES = constrained(SPEC, ["norm[0,1] = -norm[0,0]"])
FEATURES = {
    **VARIANTS,
    "restarts": {"again_at": EVERY, "again_unless": [["token", 1]], "again_most": 2},
    "recycling": {"recycle_every": EVERY, "recycle_from": EVERY, "recycle_unless": [["switches", 2]]},
    "carry by kind": {"carry_shares": ((0, 0.1, 0.2, 0.3, 0.0), (9, 0.3, 0.0, 0.1, 0.4))},
    "ramp": {"ramp": EVERY, "ramp_start": EVERY},
}


def pairs_of(fields):
    """Five seeds of different budgets and rates."""
    changes = ({}, {"lr": 0.05}, {"steps": 4 * EVERY}, {"carry_mix": 0.0}, {"weight_decay": 0.5})
    pairs = [pair(n, **{**fields, "steps": 3 * EVERY, **c}) for n, c in enumerate(changes)]
    return [Pair(p.recipe, p.seed, ties=TIES) for p in pairs] if "ramp" in fields else pairs


QUICK = ("all wrappers",)  # torch's programs are slow; `make test-full` tries all by them
CASES = [
    pytest.param(name, compiled, marks=[] if compiled or name in QUICK else pytest.mark.full)
    for name in FEATURES
    for compiled in (False, True)
]


@pytest.mark.parametrize(("name", "compiled"), CASES)
def test_a_seed_depends_on_itself_alone(name, compiled):
    if compiled and missing_for_compilation():
        pytest.skip(f"needs {missing_for_compilation()}")
    pairs = pairs_of(FEATURES[name])
    first = make(pairs, 3, compiled=compiled)
    first.advance()
    saved = first.save_all(range(len(pairs)))
    expected = results(finish(first))
    assert len({tuple(r.theta_P.tolist()) for r in expected.values()}) == len(pairs)
    again = make(pairs, 3, compiled=compiled)
    assert again.restore_all(dict(enumerate(saved))) == list(range(len(pairs)))
    assert_all_same(results(finish(again)), expected)
    arrangements = [(pairs[::-1], 2), (pairs[2:3], 1)] if compiled else [(pairs[::-1], 3)]
    for others, slots in arrangements:  # torch rounds by the number of slots
        assert_all_same(results(finish(make(others, slots, compiled=compiled))), expected)
