"""The cores that this process may use, which can be fewer than the machine has. Without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

SLURM = "SLURM_CPUS_PER_TASK"


def usable_cores(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores by affinity, by the CPU quotas of cgroups, and by Slurm's task: the least, at least 1.

    A quota of one and a half cores is one. root: where /proc and /sys are.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    limits = [len(affinity(0)) if affinity else os.cpu_count() or 1, *_quotas(root)]
    if (task := environment.get(SLURM, "")).isdecimal():
        limits.append(int(task))
    return max(1, min(limits))


def _quotas(root: Path) -> Iterator[int]:
    """Yield the quota of each cgroup that this process is in, and of those around it; unit: cores."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        # Version 2 has one tree; in a container its files may be at the root, whatever the place is called.
        for mount in (controllers, "cpu") if controllers else ("", "unified"):
            folder = root / "sys/fs/cgroup" / mount
            inner = folder / place.strip("/")
            # A group's quota holds for all groups inside it.
            for group in (inner, *inner.parents):
                if group.is_relative_to(folder) and (cores := _quota(group)) is not None:
                    yield cores


def _quota(group: Path) -> int | None:
    """Return the quota of a cgroup in whole cores, or None if it has none; unit: cores."""
    try:
        if (file := group / "cpu.max").exists():
            quota, period = file.read_text("utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text("utf-8")
            period = (group / "cpu.cfs_period_us").read_text("utf-8")
        cores = int(quota) // int(period)
        return cores if int(quota) > 0 else None  # version 1 writes -1 where there is no limit
    except (OSError, ValueError, ZeroDivisionError):  # version 2 writes "max"
        return None
