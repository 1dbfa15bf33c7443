"""What a study survives, killed for real: drivers, workers, nodes, checkpoints, trials that go wrong.

Every record is compared with training that nothing interrupted. Minutes long: `make test-faults`.
"""

import os
import random
import signal
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from search.store.record import is_final
from tests.commands import adder_search, running
from tests.reference import (
    QUICK,
    check_whole,
    expected,
    rows_of,
    states,
    wait_for_progress,
    write_study,
)
from trainer import Outcome

pytestmark = pytest.mark.faults

STEPS_200 = QUICK["recipe"] | {"steps": 200}
SWEEP = QUICK | {
    "name": "sweep",
    "seeds": {"first": 5, "count": 12},
    "recipe": STEPS_200,
    "faults": {"max_failures": 5},
}
GRID = QUICK | {
    "name": "grid",
    "recipe": STEPS_200,
    "seeds": [5, 6],
    "space": {"recipe.lr": {"choice": [0.01, 0.02]}, "recipe.clip": {"choice": [0.5, 1.0, 2.0]}},
    "sampler": {"name": "grid"},
    "faults": {"max_failures": 5},
}
LONG = QUICK | {"name": "long", "recipe": QUICK["recipe"] | {"steps": 600}, "faults": {"max_failures": 10}}
FAULTY = Path(__file__).parents[1] / "faulty.py"


@cache
def long_wanted():
    return expected(LONG)


@cache
def grid_wanted():
    return expected(GRID)


def wait_for_both_banks(command, home):
    command.wait_for(lambda: len({f.parent for f, _ in states(home)}) >= 2, "two banks saved no states")


def trial_processes(command):
    """The processes of its own that train trials now."""
    found = []
    for pid in command.descendants():
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::") and b"Dashboard" not in title and b"RuntimeEnv" not in title:
            found += [pid] if b"IDLE" not in title else []
    return found


# ---- the driver


@pytest.mark.parametrize("study", [SWEEP, GRID])
def test_a_driver_killed_at_random_instants(study, tmp_path):
    """At 20 in all, of the time that an undisturbed run takes here. A study that ends before its instant is
    checked and begun again in another home.
    """
    draw, killed, kills, homes, wanted = random.Random(57), 0, 10, 0, expected(study)
    file = write_study(tmp_path, study)
    whole = adder_search("run", file, "--home", "undisturbed", cwd=tmp_path)
    assert whole.code == 0, whole
    while killed < kills:
        homes += 1
        home, ended = tmp_path / f"home-{homes}", False
        while killed < kills and not ended:
            with running("run", file, "--home", str(home), cwd=tmp_path) as command:
                instant = command.started + draw.uniform(0, whole.seconds)
                while time.monotonic() < instant and command.process.poll() is None:
                    time.sleep(0.05)
                ended = command.process.poll() is not None
                if not ended:
                    os.kill(command.process.pid, signal.SIGKILL)
                    killed += 1
                assert command.wait(20).code == (0 if ended else -signal.SIGKILL), command.wait()
        said = adder_search("run", file, "--home", str(home), cwd=tmp_path)
        assert said.code == 0, said
        check_whole(home, study, tmp_path, wanted)


# ---- workers and nodes


def test_killed_workers_are_replaced(tmp_path):
    home = tmp_path / "home"
    with running("run", write_study(tmp_path, LONG), "--home", str(home), cwd=tmp_path) as command:
        for _ in range(3):
            wait_for_progress(command, home)
            victims = trial_processes(command)
            assert victims
            os.kill(victims[0], signal.SIGKILL)
        said = command.wait()
    assert said.code == 0, said
    check_whole(home, LONG, tmp_path, long_wanted())


# ---- checkpoints


def test_torn_states_cost_steps_and_no_result(tmp_path):
    home, file = tmp_path / "home", write_study(tmp_path, LONG)
    with running("run", file, "--home", str(home), cwd=tmp_path) as command:
        wait_for_both_banks(command, home)
        for _ in range(3):
            wait_for_progress(command, home)
        os.kill(command.process.pid, signal.SIGKILL)
        command.wait(20)
        assert command.gone(killed=True)
    one, *_, other = sorted(f for f, _ in states(home))
    one.write_bytes(one.read_bytes()[:-100])  # its predecessor is whole
    for torn in other.parent.glob("bank.state*"):
        torn.write_bytes(b"")
    said = adder_search("run", file, "--home", str(home), cwd=tmp_path)
    assert said.code == 0, said
    check_whole(home, LONG, tmp_path, long_wanted())


# ---- trials that go wrong


def faulty(how, times):
    return {"program": (sys.executable, "-P", str(FAULTY), how, str(times))}


@pytest.mark.parametrize("how", ["raise", "memory", "hang", "freeze"])
def test_a_trial_that_goes_wrong_is_started_again(how, tmp_path):
    study = QUICK | {"name": how, "faults": {"max_failures": 2, "stall_s": 45}}
    home, file = tmp_path / "home", write_study(tmp_path, study)
    said = adder_search("run", file, "--home", str(home), cwd=tmp_path, **faulty(how, 1))
    if how == "memory" and "no control group" in said.err:
        pytest.skip(said.err.strip())
    assert said.code == 0, said
    check_whole(home, study, tmp_path, expected(study))


@pytest.mark.parametrize(
    ("how", "reason"),
    [("raise", "RuntimeError: no luck"), ("memory", "its process died"), ("hang", "stalled: nothing was")],
)
def test_a_trial_that_goes_on_going_wrong_is_recorded_with_its_reason(how, reason, tmp_path):
    study = QUICK | {"name": how, "faults": {"max_failures": 1, "stall_s": 45}}
    home, file = tmp_path / "home", write_study(tmp_path, study)
    said = adder_search("run", file, "--home", str(home), cwd=tmp_path, **faulty(how, 99))
    if how == "memory" and "no control group" in said.err:
        pytest.skip(said.err.strip())
    assert said.code == 1, said
    assert reason in said.out and "To go on:" in said.out, said.out
    rows = rows_of(home, how)
    assert len(rows) == 4
    failed = [r for r in rows if not is_final(r)]
    assert failed and all(r["outcome"] == Outcome.CENSORED and reason in r["reason"] for r in failed)
    assert all(r["outcome"] == Outcome.FAILED for r in rows if is_final(r)), "the others went on"
    said = adder_search("run", file, "--home", str(home), cwd=tmp_path)
    assert said.code == 0, said
    check_whole(home, study, tmp_path, expected(study))
