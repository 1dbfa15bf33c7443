"""A model of what a GPU is good for, by what was measured of 57p on an H200 (docs/performance.md).

A GPU trains a wave of seeds at once, in the time that one alone takes. So few seeds train faster on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping

from search.study.resources import Resources

STEP_S = 277e-6
"""Seconds of a step of 57p at batch 256, for any number of seeds up to a wave."""
CORE_RATE = 20_000
"""Seed-steps/s of 57p at batch 256 on a CPU's core."""
BATCH = 256


def gpu_rate(seeds: int, wave: int, batch: int = BATCH) -> float:
    """Return expected seed-steps/s of so many seeds at once, in waves."""
    return seeds / (-(-seeds // wave) * STEP_S * batch / BATCH)


def fewest_for_gpu(cores: float) -> int:
    """Return the number of seeds from which on a GPU is faster than so many cores."""
    return int(cores * CORE_RATE * STEP_S) + 1


def resources_for(resources: Resources, seeds: int, *nodes: Mapping[str, float]) -> Resources:
    """Decide `gpu: auto`: none where a bank of so many seeds trains faster on the CPUs."""
    cores = max((node.get("CPU", 0) for node in nodes), default=0)
    is_small = resources.gpu == "auto" and seeds < fewest_for_gpu(cores)
    return resources.model_copy(update={"gpu": 0.0}) if is_small else resources
