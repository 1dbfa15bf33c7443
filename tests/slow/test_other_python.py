"""A home that was begun under one Python goes on under another, to the bit."""

import signal

import pytest

from tests import by_tier
from tests.commands import COMMAND
from tests.pythons import WHY_NONE, find_others
from tests.reference import QUICK, ends_whole, running_study, wait_for_progress

OTHERS = find_others()
STUDY = QUICK | {
    "name": "moved",
    "recipe": QUICK["recipe"] | {"steps": 20_000, "eval_every": 200},
    "resources": QUICK["resources"] | {"compiled": True},
}
"""Long enough to be interrupted."""

pytestmark = [pytest.mark.end_to_end, pytest.mark.compiled, pytest.mark.skipif(not OTHERS, reason=WHY_NONE)]


@pytest.mark.parametrize("begins_here", by_tier([False, True], [False]))
@pytest.mark.parametrize("version", OTHERS)
def test_a_home_goes_on_under_another_python(version, begins_here, tmp_path):
    """Rows, curves and θ are those of training that nobody interrupted, whichever Python comes first."""
    commands = [OTHERS[version] / "bin/adder-search", COMMAND]
    first, second = reversed(commands) if begins_here else commands
    with running_study(STUDY, tmp_path, program=[first]) as command:
        wait_for_progress(command, tmp_path / "home")
        command.process.send_signal(signal.SIGINT)
        said = command.wait()
    assert said.code == 130, said
    ends_whole(STUDY, tmp_path, tmp_path / "home", program=[second])
