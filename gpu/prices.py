"""Expected speeds of GPUs, from measured speeds of presets (lab/2026-11-26-gpu).

Multiprocessors and their shared memory decide the size of a wave, the clock decides the time of a step.
"""

from functools import cache
from typing import NamedTuple

from gpu.driver import Gpu, gpus
from model import Spec
from search.run.speeds import nearest
from trainer.engine.accelerators import Price

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
"""Speed of four banks side by side by MPS, a quarter of a wave each, as a share of the speed of one bank."""
MOST_BANKS = 32
"""Banks on a GPU at once; MPS serves 48 processes."""


class Speed(NamedTuple):
    """Measured speeds of a preset, at batch 256."""

    block: int
    """Bytes of shared memory per block of two seeds, with the kilobyte that each block costs."""
    h100_us: float
    """Microseconds per step on an H100, for any number of seeds up to a wave."""
    h200_us: float
    """Microseconds per step on an H200."""

    def step_us(self, gpu: Gpu) -> float:
        """Return the microseconds per step on a GPU: measured, or expected by its clock."""
        measured = {"H100": self.h100_us, "H200": self.h200_us}
        clock_mhz = gpu.clock_mhz or H100.clock_mhz
        return measured.get(measured_name(gpu)) or self.h100_us * H100.clock_mhz / clock_mhz

    def wave_rate(self, gpu: Gpu) -> float:
        """Return the seed-steps/s of a wave on a GPU."""
        return gpu.wave(self.block) / self.step_us(gpu) * 1e6


SPEEDS = {
    "57p": Speed(52_608, 277.0, 276.7),
    "54p": Speed(49_280, 265.9, 259.3),
    "100p": Speed(50_816, 1_745.8, 1_563.4),
    "170p": Speed(94_336, 2_991.5, 2_694.2),
    "242p": Speed(126_592, 2_351.1, 2_341.9),
    "262p": Speed(111_744, 1_682.2, 1_683.8),
    "62p": Speed(120_448, 1_604.7, 1_603.6),
}


def measured_name(gpu: Gpu) -> str:
    """Return the name of a GPU whose speed was measured, or "" for any other, an H100 of fewer processors too."""
    if gpu.processors != H100.processors:
        return ""
    return next((name for name in MEASURED if name in gpu.name), "")


def describe_cards(preset: str) -> tuple[str, str]:
    """Return lines of a plan on what each GPU is expected to do: its seed-steps/s, and seeds at once."""
    speed = SPEEDS[preset]
    measured, expected = list[str](), list[str]()
    for gpu in CARDS:
        rate = float(f"{speed.wave_rate(gpu):.3g}")
        lines = measured if measured_name(gpu) else expected
        lines.append(f"{gpu.name} {rate:,.0f} ({gpu.wave(speed.block):,})")
    return (
        f"seed-steps/s of {preset} (seeds at once), measured: {', '.join(measured)}",
        f"expected by processors and clock, not measured: {', '.join(expected)}",
    )


def price(spec: Spec | None) -> Price:
    """Return what the first GPU of this machine, or the assumed one, is expected to do with a spec."""
    visible, _ = gpus()
    return price_of(nearest(spec, tuple(SPEEDS)), visible[0] if visible else H100)


@cache
def price_of(preset: str, gpu: Gpu) -> Price:
    """Return what a GPU is expected to do with a measured preset."""
    if name := measured_name(gpu):
        source = f"as measured of {{}} on an {name}"
    else:
        source = f"expected of {{}} on {gpu.name} by an H100's speed, not measured"
    speed = SPEEDS[preset]
    return Price(
        wave=gpu.wave(speed.block),
        step_s=speed.step_us(gpu) / 1e6,
        together=BY_MPS,
        most_together=MOST_BANKS,
        preset=preset,
        source=source,
        cards=describe_cards(preset),
    )
