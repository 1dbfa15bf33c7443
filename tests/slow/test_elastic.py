"""A real Ray cluster whose nodes come, are drained and go, and one whose nodes see no folder of the driver's.
`make test-full`.
"""

import subprocess
import time
from pathlib import Path

import pytest

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
        ended = command.wait()
    assert ended.code == 0, ended
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
        ended = command.wait()
    assert ended.code == 0 and "waiting for a node that has room" in ended.out, ended
    assert len(most) >= 2
    with environment({}):
        check_whole(home, study, expected(study))


# ---- no folder in common


def test_workers_that_see_nothing_of_the_home_train_as_any_others(tmp_path):
    """Two nodes in name spaces where the home is an empty folder. One of them dies while it trains; its seeds go on on
    the other from their saved states.
    """
    need_services()
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("folders can be hidden from a process by root alone")
    (home := tmp_path / "home").mkdir()
    study = LONG | {"name": "apart", "faults": {"max_failures": 2}, "resources": QUICK["resources"]}
    with ray_cluster(workers=0) as cluster:
        nodes = [cluster.add(cpus=1, hidden=home) for _ in range(2)]
        cluster.wait_for(*nodes)
        with running_study(study, tmp_path, environment=cluster.environment()) as command:
            command.wait_for(lambda: len(states(home)) >= 2, "no states were saved")
            seen = Path(f"/proc/{nodes[1].popen.pid}/root{home}")
            assert list(home.iterdir()) and not list(seen.iterdir())
            nodes[0].end()
            ended = command.wait()
            assert not list(seen.iterdir()), "a worker wrote into the driver's folder"
        assert ended.code == 0, ended
        with environment({}):
            check_whole(home, study, expected(study))
