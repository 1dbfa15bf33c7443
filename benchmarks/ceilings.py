"""What the machine can do at best, measured: the ceilings that a bank's speed is compared with.

    a product of two large matrices    GFLOP/s, 2n³ operations; on CUDA also in TF32 and in bfloat16
    a copy of a large array            GB/s, read and written bytes both counted
    exponentials within the caches     10⁹ a second, torch's vectorised exp
    the engine's vectors, on a CPU     GFLOP/s of fused multiply-adds (two operations each) and 10⁹ of its own
                                       exponentials a second, from registers and the first cache

Each is the best of several attempts, in the process that calls, with the threads it has.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer.engine.build import library
from trainer.engine.native import pointer
from trainer.files.installed import missing_for_compilation

LANES = Path(__file__).with_name("lanes.cpp")
ATTEMPTS, EXP_CALLS = 7, 50
EXP_NUMBERS = 1 << 12  # 16 KiB
PRODUCTS_AN_EXP = 8  # about as long
NUMBER = 4  # bytes of a float32


@dataclass(frozen=True)
class Sizes:
    """Rows of the square matrices, numbers that are copied, numbers whose exponentials are taken, fused
    multiply-adds of the engine's vectors.
    """

    matrix: int
    copied: int
    exponentials: int
    products: int = 1 << 27  # two milliseconds

    @classmethod
    def of(cls, device: str, threads: int) -> Sizes:
        """Matrices and copies far larger than the caches; 256 KiB of numbers a thread, or 16 MiB on a GPU."""
        if device == "cuda":
            return cls(8192, 1 << 28, 1 << 22)
        return cls(2048, 1 << 26, threads << 16)


def ceilings(device: str, sizes: Sizes | None = None, wait: Callable[[], object] = int) -> dict[str, float]:
    """All ceilings of a device. `wait` is called before each, so that processes measure the same at once."""
    sizes = sizes or Sizes.of(device, torch.get_num_threads())
    found = {}
    for name, dtype, tf32 in _products(device):
        wait()
        with _tf32(tf32):
            found[name] = _product(device, sizes.matrix, dtype)
    wait()
    found["gbytes_per_s"] = _copy(device, sizes.copied)
    wait()
    found["gexps_per_s"] = _exponentials(device, sizes.exponentials)
    if device == "cpu" and not missing_for_compilation():
        wait()
        found |= _lanes(sizes.products)
    return found


def _products(device: str) -> list[tuple[str, torch.dtype, bool]]:
    """Name, type, and whether TF32 is allowed."""
    products = [("gflops_per_s", torch.float32, False)]
    if device == "cuda":
        products += [("gflops_per_s_tf32", torch.float32, True), ("gflops_per_s_bf16", torch.bfloat16, False)]
    return products


def _product(device: str, n: int, dtype: torch.dtype) -> float:
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * n**3 / _best(device, lambda: torch.mm(a, b, out=out)) / 1e9


def _copy(device: str, numbers: int) -> float:
    source, target = torch.zeros(numbers, device=device), torch.ones(numbers, device=device)
    return 2 * NUMBER * numbers / _best(device, lambda: target.copy_(source)) / 1e9


def _exponentials(device: str, numbers: int) -> float:
    x = torch.linspace(-5, 0, numbers, device=device)
    out = torch.empty_like(x)

    def calls() -> None:
        for _ in range(EXP_CALLS):
            torch.exp(x, out=out)

    return EXP_CALLS * numbers / _best(device, calls) / 1e9


def _lanes(products: int) -> dict[str, float]:
    """What lanes.cpp does on as many threads as torch has."""
    made, threads = library(LANES, {"ANSWERS": 1}), torch.get_num_threads()
    rows = np.full((threads, EXP_NUMBERS), 0.5, np.float32)
    rounds = products // made.fma_of_a_round()
    exp_rounds = max(products // PRODUCTS_AN_EXP // EXP_NUMBERS, 1)

    def on_all(call: Callable[[ctypes.c_void_p], object]) -> float:
        """Calls a second. Each thread times itself: to start it takes as long as many exponentials do."""

        def timed(row: np.ndarray[Any, Any]) -> float:
            start = time.perf_counter()
            call(pointer(row))
            return time.perf_counter() - start

        with ThreadPoolExecutor(threads) as pool:
            return threads / min(max(pool.map(timed, rows)) for _ in range(ATTEMPTS + 1))

    fused = on_all(lambda row: made.lanes_fma(row, rounds)) * rounds * made.fma_of_a_round()
    exps = on_all(lambda row: made.lanes_exponentials(row, EXP_NUMBERS, exp_rounds)) * exp_rounds
    exps *= EXP_NUMBERS
    return {"lane_gflops_per_s": 2 * fused / 1e9, "lane_gexps_per_s": exps / 1e9}


def _best(device: str, call: Callable[[], object]) -> float:
    """Seconds of the fastest attempt, after one that is not counted."""
    seconds = []
    for _ in range(ATTEMPTS + 1):
        synchronize(device)
        start = time.perf_counter()
        call()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


def synchronize(device: str) -> None:
    """Wait until the device has done all it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
