"""A real Ray cluster whose nodes come, are drained and go, and one whose nodes see no folder of the driver's.
`make test-full`.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.commands import COMMAND
from tests.machines import machines
from tests.reference import (
    QUICK,
    check_whole,
    environment,
    expected,
    rows_of,
    running_study,
    states,
    wait_for_progress,
)
from tests.services import need_services, ray_cluster

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]

LONG = QUICK | {
    "name": "elastic",
    "recipe": QUICK["recipe"] | {"steps": 500},
    "seeds": {"first": 5, "count": 4},
    "resources": QUICK["resources"] | {"accelerator_type": "T4"},
    "faults": {"max_failures": 0},
}
"""A seed whose worker fails once has failed for good."""


def test_nodes_come_are_drained_and_go(tmp_path):
    """With none the run waits and says so, also beside one of another kind; then it is used as it comes. The
    node that is drained and taken away costs its trials no failure, of which they may have none.
    """
    need_services()
    home = tmp_path / "home"
    with ray_cluster(workers=0) as cluster, running_study(LONG, tmp_path, environment=cluster.environment()) as command:
        nobody = "waiting for a node that has room (there is no node)"
        command.wait_for(lambda: nobody in command.printed(), "it does not say that it waits")
        cluster.wait_for(cluster.add(cpus=2))
        others = "waiting for a node that has room (resources.accelerator_type: no node has T4)"
        command.wait_for(lambda: others in command.printed(), "it does not say for what")
        cluster.wait_for(leaving := cluster.add(cpus=1, kind="T4"))
        wait_for_progress(command, home)
        cluster.drain(leaving, 2)
        cluster.wait_for(cluster.add(cpus=2, kind="T4"))
        leaving.end()
        command.done()
    with environment({}):
        check_whole(home, LONG, expected(LONG))
        reasons = {r["reason"] for r in rows_of(home, "elastic")}
    assert reasons == {None}


def test_an_autoscaler_starts_the_nodes_that_a_run_needs(tmp_path):
    """None is there when the run begins. Four seeds get two or more of the four that it may start."""
    need_services()
    study = LONG | {"name": "grows", "resources": QUICK["resources"] | {"slots": 1}}
    home, most = tmp_path / "home", set()
    with (
        ray_cluster(workers=0, cpus=1, grows_to=4) as cluster,
        running_study(study, tmp_path, environment=cluster.environment()) as command,
    ):
        while command.process.poll() is None:
            most |= {node["id"] for node in cluster.known() if node["has"].get("CPU")}
            time.sleep(1)
        ended = command.done()
    assert "waiting for a node that has room" in ended.out, ended
    assert len(most) >= 2
    with environment({}):
        check_whole(home, study, expected(study))


# ---- no folder in common


def test_five_machines_without_a_common_folder_lose_two_and_the_driver(tmp_path):
    """Each has a network, a home folder and temporary folders of its own. One dies while it trains, then the driver,
    then the cable of a second one is pulled: its seeds go on on the three that are left.
    """
    need_services()
    (home := tmp_path / "home").mkdir()
    study = LONG | {"name": "apart", "seeds": {"first": 5, "count": 10}, "faults": {"max_failures": 2}}
    study |= {"resources": QUICK["resources"]}
    with machines(6) as (head, *others), ray_cluster(workers=0, machine=head) as cluster:
        nodes = [cluster.add(cpus=1, machine=machine, hidden=home) for machine in others]
        cluster.wait_for(*nodes)
        places = [Path(f"/proc/{node.process.pid}") for node in nodes]
        assert len({(place / "ns/net").readlink() for place in places}) == 5

        def see_nothing(places):
            assert list(home.iterdir()) and not any(list(Path(f"{place}/root{home}").iterdir()) for place in places)

        known = {"environment": cluster.environment(), "program": (*head.inside, COMMAND)}
        with running_study(study, tmp_path, **known) as command:
            command.wait_for(lambda: len(states(home)) >= 5, "five workers were never at work at once")
            see_nothing(places)
            nodes[0].end()
            wait_for_progress(command, home)
            os.kill(command.process.pid, signal.SIGKILL)
            assert command.wait(20).code == -signal.SIGKILL
        before = [row for row in rows_of(home, "apart") if row.is_final]
        assert len(before) < 10, "nothing was left to train"
        with running_study(study, tmp_path, **known) as command:
            wait_for_progress(command, home)
            others[1].cut_off()
            command.done()
        see_nothing(places[2:])  # who is cut off ends
        with environment({}):
            check_whole(home, study, expected(study))
