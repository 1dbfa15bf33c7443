"""Expected speeds of GPUs and cores, from measured speeds of presets (lab/2026-11-26-gpu).

A GPU trains a wave of seeds at once, in the time that one seed alone takes. So a few seeds train faster on a CPU.
Multiprocessors and their shared memory decide the size of a wave, the clock decides the time of a step.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from model import Spec, preset
from model.tied import Tied
from trainer.engine.cuda.driver import Gpu, gpus

BATCH = 256
H100 = Gpu("H100", "sm_90", 132, 227 << 10, 1_980, "")
"""The GPU assumed by a plan where none is present."""
CARDS = (
    Gpu("T4", "sm_75", 40, 64 << 10, 1_590, ""),
    Gpu("L4", "sm_89", 58, 99 << 10, 2_040, ""),
    Gpu("A100", "sm_80", 108, 163 << 10, 1_410, ""),
    Gpu("RTX 3090", "sm_86", 82, 99 << 10, 1_695, ""),
    Gpu("RTX 4090", "sm_89", 128, 99 << 10, 2_520, ""),
    Gpu("RTX 5090", "sm_120", 170, 99 << 10, 2_407, ""),
    H100,
    Gpu("H200", "sm_90", 132, 227 << 10, 1_980, ""),
)
"""GPUs that a plan compares. Multiprocessors and clocks are those of published tables of cards. The shared memory of a
block is that of the architecture: 227 KB was seen on an H100 and an H200, the rest is not checked."""
MEASURED = ("H100", "H200")
"""Measured GPUs, by words within the names that drivers give them."""
BY_MPS = 0.58
"""PresetSpeed of four banks side by side by MPS, a quarter of a wave each, as a share of the speed of one bank."""
MOST_BANKS = 32
"""Banks on a GPU at once; MPS serves 48 processes."""


class PresetSpeed(NamedTuple):
    """Measured speeds of a preset, at batch 256."""

    preset: str
    block: int
    """Bytes of shared memory per block of two seeds, with the kilobyte that each block costs."""
    h100_us: float
    """Microseconds per step on an H100, for any number of seeds up to a wave."""
    h200_us: float
    """Microseconds per step on an H200."""
    core: float
    """Seed-steps/s per core of a Xeon with AVX-512 whose other cores are busy."""

    @property
    def wave(self) -> int:
        """Number of seeds that the GPU here trains at once."""
        return gpu_here().wave(self.block)

    def step_us(self, gpu: Gpu) -> float:
        """Return the microseconds per step on a GPU: measured, or expected by its clock."""
        measured = {"H100": self.h100_us, "H200": self.h200_us}
        clock_mhz = gpu.clock_mhz or H100.clock_mhz
        return measured.get(measured_name(gpu)) or self.h100_us * H100.clock_mhz / clock_mhz

    def wave_rate(self, gpu: Gpu) -> float:
        """Return the seed-steps/s of a wave on a GPU."""
        return gpu.wave(self.block) / self.step_us(gpu) * 1e6

    def slots(self, share: float) -> int:
        """Return how many seeds a share of a GPU trains at once."""
        return max(1, round(self.wave * min(share, 1)))

    def step_s(self, seeds: int) -> float:
        """Return the seconds per step of `seeds` on the GPU here, which trains them wave by wave."""
        waves = -(-seeds // self.wave)
        return waves * self.step_us(gpu_here()) / 1e6

    def gpu_rate(self, seeds: int, share: float = 1, by_mps: bool = False) -> float:
        """Return expected seed-steps/s of a bank of `seeds` with a `share` of a GPU, beside other banks."""
        whole = seeds / self.step_s(seeds)
        if share >= 1:
            return whole
        return whole * (BY_MPS if by_mps else share)  # without MPS they take turns

    def fewest_for_gpu(self, cores: float) -> int:
        """Return the least number of seeds that train faster on a GPU than on so many cores."""
        return int(cores * self.core * self.step_s(1)) + 1


SPEEDS = (
    PresetSpeed("57p", 52_608, 277.0, 276.7, 17_334),
    PresetSpeed("54p", 49_280, 265.9, 259.3, 18_433),
    PresetSpeed("100p", 50_816, 1_745.8, 1_563.4, 8_320),
    PresetSpeed("170p", 94_336, 2_991.5, 2_694.2, 5_681),
    PresetSpeed("242p", 126_592, 2_351.1, 2_341.9, 4_203),
    PresetSpeed("262p", 111_744, 1_682.2, 1_683.8, 6_875),
    PresetSpeed("62p", 120_448, 1_604.7, 1_603.6, 7_933),
)


def gpu_here() -> Gpu:
    """Return the first GPU of this machine, or the assumed one."""
    visible, _ = gpus()
    return visible[0] if visible else H100


def measured_name(gpu: Gpu) -> str:
    """Return the name of a GPU whose speed was measured, or "" for any other, an H100 of fewer processors too."""
    if gpu.processors != H100.processors:
        return ""
    return next((name for name in MEASURED if name in gpu.name), "")


def describe_cards(speed: PresetSpeed) -> list[str]:
    """Return lines of a plan on what each GPU is expected to do: its seed-steps/s, and seeds at once."""
    measured, expected = list[str](), list[str]()
    for gpu in CARDS:
        rate = float(f"{speed.wave_rate(gpu):.3g}")
        lines = measured if measured_name(gpu) else expected
        lines.append(f"{gpu.name} {rate:,.0f} ({gpu.wave(speed.block):,})")
    return [
        f"seed-steps/s of {speed.preset} (seeds at once), measured: {', '.join(measured)}",
        f"expected by processors and clock, not measured: {', '.join(expected)}",
    ]


@cache
def speed_of(spec: Spec | None) -> PresetSpeed:
    """Return the speed of the measured preset that is most like a spec; of 57p where none is known."""
    if spec is None:
        return SPEEDS[0]
    base = spec.base if isinstance(spec, Tied) else spec

    def distance(speed: PresetSpeed) -> tuple[bool, bool, int]:  # family and circle decide which loops a kernel has
        other = preset(speed.preset)
        is_circle = getattr(other, "circular", None) == getattr(base, "circular", None)
        return other.family != base.family, not is_circle, abs(other.params - base.params)

    return min(SPEEDS, key=distance)


def fastest_share(
    programs: Sequence[tuple[Spec | None, int]],
    cpu: float,
    nodes: Sequence[Mapping[str, float]],
    by_mps: bool,
) -> float:
    """Return the share of a GPU for each bank of a study with which it is expected to end first; 0: none.

    programs: each program's spec and first seeds. by_mps: banks with shares of a GPU train side by side.
    """
    cores = max((node.get("CPU", 0) for node in nodes), default=0)
    cards = max((node.get("GPU", 0) for node in nodes), default=0)
    speeds = [(speed_of(spec), seeds) for spec, seeds in programs if seeds]
    if not speeds or not cards:
        return float(cards > 0)

    # The cards share the programs, but no program ends sooner than its own steps take.
    steps_s = [speed.step_s(seeds) for speed, seeds in speeds]
    cores_s = sum(seeds / speed.core for speed, seeds in speeds) / max(cores, 1)
    seconds = {0.0: cores_s, 1.0: max(sum(steps_s) / cards, *steps_s)}
    """Seconds for a step of every seed, by each bank's share of a GPU."""

    side = _side_by_side(speeds, cores, cards, cpu) if by_mps else 1
    if side > 1:
        share = int(1e4 / side) / 1e4  # Ray counts in ten-thousandths; rounded down, so many fit
        seconds[share] = max(sum(steps_s) / cards / side, *steps_s) / BY_MPS
    return min(seconds, key=lambda share: seconds[share])


def _side_by_side(speeds: Sequence[tuple[PresetSpeed, int]], cores: float, cards: float, cpu: float) -> int:
    """Return how many banks, one per program, can share a GPU. cpu: cores of a bank."""
    banks = -(-len(speeds) // cards)  # rounded up
    room = min(speed.wave // min(seeds, speed.wave) for speed, seeds in speeds)
    return int(min(banks, cores // (cpu * cards), room, MOST_BANKS))
