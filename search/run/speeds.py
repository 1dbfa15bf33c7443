"""Expected speeds of cores, from measured speeds of presets (lab/2026-11-26-gpu), and whether a GPU is faster.

What a GPU does, its kind says (`Price` in trainer/engine/accelerators.py). A few seeds train faster on a CPU.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from model import Spec, preset
from model.tied import Tied, ties_of
from trainer.engine.accelerators import MISSING, Price, accelerator

BATCH = 256
"""Problems of a step whose speed was measured."""
CORES = {"57p": 17_334, "54p": 18_433, "100p": 8_320, "170p": 5_681, "242p": 4_203, "262p": 6_875, "62p": 7_933}
"""Preset -> seed-steps/s per core of a Xeon with AVX-512 whose other cores are busy."""
Amounts = dict[str, float]
"""What a node has, or a worker reserves, by the names that Ray gives resources: CPU, GPU, accelerator_type:NAME."""


@cache
def nearest(spec: Spec | None, presets: Sequence[str]) -> str:
    """Return the preset that is most like a spec; the first one where the spec is not known."""
    if spec is None:
        return presets[0]
    base = spec.base if isinstance(spec, Tied) else spec

    def distance(name: str) -> tuple[bool, bool, int]:  # family and circle decide which loops a kernel has
        other = preset(name)
        is_circle = getattr(other, "circular", None) == getattr(base, "circular", None)
        return other.family != base.family, not is_circle, abs(other.params - base.params)

    return min(presets, key=distance)


def has_cpp(spec: Spec | None) -> bool:
    """True if a spec's family comes with C++ of its own, whose speed was measured; or if it is not known."""
    if spec is None:
        return True
    family = ties_of(spec)[0].family
    return files("model.families").joinpath(family, "kernel.cpp").is_file()  # `kernel` would import torch


def measured_on_cores(spec: Spec | None) -> str:
    """Return the preset most like a spec of those whose speed on a core was measured."""
    return nearest(spec, tuple(CORES))


def core_rate(spec: Spec | None) -> int:
    """Return the expected seed-steps/s of a spec on a core."""
    return CORES[measured_on_cores(spec)]


def fewest_for_gpu(spec: Spec | None, cores: float) -> int:
    """Return the least number of seeds that train faster on a GPU than on so many cores."""
    return int(cores * core_rate(spec) * accelerator().price(spec).step_s) + 1


def fastest_share(
    programs: Sequence[tuple[Spec | None, int]],
    cpu: float,
    nodes: Sequence[Amounts],
    side_by_side: bool,
) -> float:
    """Return the share of a GPU for each bank of a study with which it is expected to end first; 0: none.

    Modules have none: what is made of a spec is for CPUs.

    programs: each program's spec and first seeds. side_by_side: banks with shares of a GPU train side by side.
    """
    cores = max((node.get("CPU", 0) for node in nodes), default=0)
    cards = max((node.get("GPU", 0) for node in nodes), default=0)
    programs = [(spec, seeds) for spec, seeds in programs if seeds]
    if not all(has_cpp(spec) for spec, _ in programs):
        return 0.0
    if not programs or not cards:
        return float(cards > 0 and accelerator() is not MISSING)

    # The cards share the programs, but no program ends sooner than its own steps take.
    kind = accelerator()
    prices = [(kind.price(spec), seeds) for spec, seeds in programs]
    steps_s = [price.time_s(seeds) for price, seeds in prices]
    cores_s = sum(seeds / core_rate(spec) for spec, seeds in programs) / max(cores, 1)
    seconds = {0.0: cores_s, 1.0: max(sum(steps_s) / cards, *steps_s)}
    """Seconds for a step of every seed, by each bank's share of a GPU."""

    side = _most_together(prices, cores, cards, cpu) if side_by_side else 1
    if side > 1:
        share = int(1e4 / side) / 1e4  # Ray counts in ten-thousandths; rounded down, so many fit
        seconds[share] = max(sum(steps_s) / cards / side, *steps_s) / prices[0][0].together
    return min(seconds, key=lambda share: seconds[share])


def _most_together(prices: Sequence[tuple[Price, int]], cores: float, cards: float, cpu: float) -> int:
    """Return how many banks, one per program, can share a GPU. cpu: cores of a bank."""
    banks = -(-len(prices) // cards)  # rounded up
    room = min(price.wave // min(seeds, price.wave) for price, seeds in prices)
    return int(min(banks, cores // (cpu * cards), room, prices[0][0].most_together))
