"""A plan and a run count the cores that the job may use, not those of the machine."""

import os
import subprocess
import sys

import pytest

from search.run import packing
from search.run.packing import local_resources
from tests import ROOT
from trainer.engine.accelerators import MISSING
from trainer.files import cores
from trainer.files.cores import usable_cores

MANY = 64


def tree(root, cgroup, quotas):
    """A made-up /proc and /sys. quotas: of folders, as version 2 of cgroups has them; of version 1 without periods."""
    files = {"proc/self/cgroup": cgroup}
    for folder, quota in quotas.items():
        place = f"sys/fs/cgroup/{folder}"
        if quota.lstrip("-").isdecimal():
            files |= {f"{place}/cpu.cfs_quota_us": quota, f"{place}/cpu.cfs_period_us": "100000"}
        else:
            files[f"{place}/cpu.max"] = quota
    for place, text in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    return root


@pytest.fixture(autouse=True)
def a_large_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(MANY)))
    monkeypatch.delenv(cores.SLURM, raising=False)


V2, V1 = "0::/job/step\n", "5:memory:/job\n3:cpu,cpuacct:/job/step\n"


@pytest.mark.parametrize(
    ("cgroup", "quotas", "expected"),
    [
        (V2, {"job/step": "max 100000\n", "job": "250000 100000\n"}, 2),
        (V2, {"job/step": "800000 100000\n", "job": "300000 100000\n"}, 3),
        (V2, {"job/step": "50000 100000\n"}, 1),
        (V2, {"job/step": "nonsense\n"}, MANY),
        (V2, {".": "200000 100000\n"}, 2),  # a container, in which the place is another one
        ("0::/../../outside\n", {".": "200000 100000\n"}, 2),
        ("0::/job\n", {"unified/job": "200000 100000\n"}, 2),
        (V1, {"cpu,cpuacct/job/step": "300000"}, 3),
        (V1, {"cpu/job": "150000"}, 1),
        (V1, {"cpu,cpuacct/job/step": "-1", "cpu,cpuacct": "700000"}, 7),
        (V1, {"cpu,cpuacct/job/step": "-1"}, MANY),
        ("", {}, MANY),
    ],
)
def test_the_quota_of_a_cgroup_counts(tmp_path, cgroup, quotas, expected):
    assert usable_cores(tree(tmp_path, cgroup, quotas)) == expected


@pytest.mark.parametrize(("task", "expected"), [("3", 3), ("1000", MANY), ("0", 1), ("", MANY), ("2(x4)", MANY)])
def test_a_task_of_slurm_counts(tmp_path, task, expected):
    assert usable_cores(tmp_path, {cores.SLURM: task}) == expected


def test_what_a_plan_counts_on_is_what_the_job_has(monkeypatch):
    monkeypatch.setenv(cores.SLURM, "1")
    monkeypatch.setattr(packing, "accelerator", lambda: MISSING)
    assert local_resources() == {"CPU": 1, "GPU": 0}


def test_affinity_counts_as_of_a_process_that_is_pinned():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from trainer.files.cores import usable_cores; print(usable_cores())"
    assert subprocess.check_output([sys.executable, "-S", "-c", code], cwd=ROOT, text=True) == "1\n"


def test_nobody_else_counts_the_machines_cores():
    sources = subprocess.check_output(["git", "ls-files", "*.py", "Makefile", "*.sh"], cwd=ROOT, text=True)
    by_machine = ("cpu_count" + "(", "nproc" + " ", "SC_NPROCESSORS" + "_ONLN")
    files = [f for f in sources.split() if (ROOT / f).exists() and f != "trainer/files/cores.py"]
    assert len(files) > 100
    assert [f for f in files if any(word in (ROOT / f).read_text("utf-8") for word in by_machine)] == []
