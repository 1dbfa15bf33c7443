"""A plan and a run count the cores that the job may use, not those of the machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from search.run import packing
from search.run.packing import local_resources
from trainer.engine.accelerators import MISSING
from trainer.files import cores
from trainer.files.cores import usable_cores

REPOSITORY = Path(__file__).parents[2]
MANY = 64
V1 = {"cpu.cfs_period_us": "100000\n"}
UNLIMITED = V1 | {"cpu.cfs_quota_us": "-1\n"}


def tree(root, cgroup, **folders):
    """A made-up /proc and /sys. folders: each one's files."""
    files = {"proc/self": {"cgroup": cgroup}, **{f"sys/fs/cgroup/{f}": content for f, content in folders.items()}}
    for folder, content in files.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, text in content.items():
            (root / folder / name).write_text(text)
    return root


@pytest.fixture(autouse=True)
def a_large_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(MANY)))
    monkeypatch.delenv(cores.SLURM, raising=False)


V2, V1_LINE = "0::/job/step\n", "5:memory:/job\n3:cpu,cpuacct:/job/step\n"


@pytest.mark.parametrize(
    ("cgroup", "folders", "expected"),
    [
        (V2, {"job/step": {"cpu.max": "400000 100000\n"}}, 4),
        (V2, {"job/step": {"cpu.max": "max 100000\n"}, "job": {"cpu.max": "250000 100000\n"}}, 2),
        (V2, {"job/step": {"cpu.max": "800000 100000\n"}, "job": {"cpu.max": "300000 100000\n"}}, 3),
        (V2, {"job/step": {"cpu.max": "50000 100000\n"}}, 1),
        (V2, {"job/step": {"cpu.max": "max 100000\n"}}, MANY),
        (V2, {"job/step": {"cpu.max": "nonsense\n"}}, MANY),
        (V2, {".": {"cpu.max": "200000 100000\n"}}, 2),  # a container, in which the place is another one
        ("0::/../../outside\n", {".": {"cpu.max": "200000 100000\n"}}, 2),
        ("0::/job\n", {"unified/job": {"cpu.max": "200000 100000\n"}}, 2),
        (V1_LINE, {"cpu,cpuacct/job/step": V1 | {"cpu.cfs_quota_us": "300000\n"}}, 3),
        (V1_LINE, {"cpu/job": V1 | {"cpu.cfs_quota_us": "150000\n"}}, 1),
        (V1_LINE, {"cpu,cpuacct/job/step": UNLIMITED, "cpu,cpuacct": V1 | {"cpu.cfs_quota_us": "700000\n"}}, 7),
        (V1_LINE, {"cpu,cpuacct/job/step": UNLIMITED}, MANY),
        ("", {}, MANY),
    ],
)
def test_the_quota_of_a_cgroup_counts(tmp_path, cgroup, folders, expected):
    assert usable_cores(tree(tmp_path, cgroup, **folders)) == expected


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
    assert subprocess.check_output([sys.executable, "-S", "-c", code], cwd=REPOSITORY, text=True) == "1\n"


def test_nobody_else_counts_the_machines_cores():
    sources = subprocess.check_output(["git", "ls-files", "*.py", "Makefile", "*.sh"], cwd=REPOSITORY, text=True)
    by_machine = ("cpu_count" + "(", "nproc" + " ", "SC_NPROCESSORS" + "_ONLN")
    files = [f for f in sources.split() if (REPOSITORY / f).exists() and f != "trainer/files/cores.py"]
    assert len(files) > 100
    assert [f for f in files if any(word in (REPOSITORY / f).read_text("utf-8") for word in by_machine)] == []
