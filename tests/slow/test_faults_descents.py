"""A study of descents whose driver is killed for real: the same sets accepted, to the bit, and no seed twice.

Minutes long: `make test-faults`. A representative with an untrained bank is in tests/scenarios/test_compress.py.
"""

import os
import random
import signal
import time

import pytest

from search.store.candidates import DatabaseCandidates
from search.store.record import is_final
from tests import CERTIFICATES, needs_compiler
from tests.commands import adder_search, running
from tests.homes import records_of
from tests.reference import QUICK, recorded, rows_of, write_study

pytestmark = [pytest.mark.faults, needs_compiler]
STUDY = {
    "name": "descents",
    "start": {"checkpoint": str(CERTIFICATES / "46p")},
    "compress": {"proposals": 4, "beam": 2, "rounds": 3, "reach": "values", "accept": {"exact": 0.9}},
    "recipe": {"steps": 300, "ramp": 150, "eval_every": 50},
    "seeds": {"count": 2},
    "resources": QUICK["resources"] | {"compiled": True, "slots": 4, "seeds_per_trial": 4},
}
KILLS = 3


def said(home):
    sets = DatabaseCandidates(records_of(home, "descents")).read()
    return [
        (t.number, t.ties, t.configuration, t.parent, t.reached, t.start and t.start.digest) for t in sets
    ]


def test_a_driver_killed_in_its_rounds(tmp_path):
    draw, killed = random.Random(18), 0
    file = write_study(tmp_path, STUDY)
    whole = adder_search("run", file, "--home", "undisturbed", cwd=tmp_path)
    assert whole.code == 0, whole
    wanted, seeds = said(tmp_path / "undisturbed"), recorded(tmp_path / "undisturbed", "descents", tmp_path)
    assert sum(kept is not None for *_, kept in wanted) > 1, "something was kept"
    home, ended = tmp_path / "home", False
    while killed < KILLS and not ended:
        with running("run", file, "--home", str(home), cwd=tmp_path) as command:
            instant = command.started + draw.uniform(0.3, 1) * whole.seconds
            while time.monotonic() < instant and command.process.poll() is None:
                time.sleep(0.05)
            ended = command.process.poll() is not None
            if not ended:
                os.kill(command.process.pid, signal.SIGKILL)
                killed += 1
            assert command.wait(20).code == (0 if ended else -signal.SIGKILL), command.wait()
    last = adder_search("run", file, "--home", str(home), cwd=tmp_path)
    assert last.code == 0 and killed, last
    assert said(home) == wanted
    rows = rows_of(home, "descents")
    keys = [(r["configuration"], r["init_seed"], r["data_seed"]) for r in rows]
    assert len(keys) == len(set(keys)) == 2 * (len(wanted) - 1)
    assert all(is_final(r) and r["published"] and r["owner"] is None for r in rows)
    assert recorded(home, "descents", tmp_path) == seeds
