"""CUDA's driver by ctypes: the GPUs that are there, and the calls that the engine needs. Without torch.

As a program it prints the GPUs that are there: a driver that hangs or crashes does so to a child process (`gpus`).
ADDER_SEARCH_CUDA names a folder with libcuda.so.1 and libnvrtc.so.13; "off": no GPU is looked for.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from ctypes import byref, c_int, c_void_p, create_string_buffer
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from trainer.files.installed import own_module

SWITCH = "ADDER_SEARCH_CUDA"
VISIBLE = "CUDA_VISIBLE_DEVICES"
MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
DEVICES = Path("/dev")
DEVICE_FILES = ("nvidia[0-9]*", "dxg")
"""Patterns of files of NVIDIA's driver, and of Windows' driver below Linux."""
DRIVER_VERSION = Path("/proc/driver/nvidia/version")
ANSWER_S = 30.0
"""Seconds that a driver gets to list its GPUs."""
TEAMS = 2
"""Seeds of a block of threads, where they fit into its shared memory."""
# Numbers of a device's attributes, as `cuDeviceGetAttribute` takes them.
CLOCK = 13
PROCESSORS = 16
MAJOR = 75  # of the architecture
MINOR = 76
MOST_SHARED = 97  # bytes of shared memory that a block can have

BLOCKING_SYNC = 4
"""A context's flag: a thread that waits for the GPU sleeps, so that its core is free for others."""


class CudaError(RuntimeError):
    """The GPU, its driver or its compiler failed. The message names the call."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, as its driver describes it."""

    name: str
    architecture: str
    """As NVRTC names it: sm_90."""
    processors: int
    shared: int
    """Most bytes of shared memory that a block can have."""
    clock_mhz: int
    """The highest clock of its processors."""
    driver: str

    @property
    def cuda(self) -> int:
        """The major version of CUDA that its driver has."""
        return int(self.driver.removeprefix("CUDA ").partition(".")[0])

    def wave(self, block: int) -> int:
        """Return the number of seeds that it trains at once.

        block: bytes of shared memory of a block of TEAMS seeds. Where none fits, a block has one seed (card.py).
        """
        pairs = self.shared // block
        singles = self.shared // -(-block // TEAMS)
        return self.processors * max(1, TEAMS * pairs or singles)


def folder_of_libraries() -> Path | None:
    """Return the folder that ADDER_SEARCH_CUDA names, if any."""
    value = os.environ.get(SWITCH, "")
    return None if value in ("", "off") else Path(value)


def is_declared() -> bool:
    """True if this machine has files of a GPU's driver, or libraries are named."""
    # An empty CUDA_VISIBLE_DEVICES hides all GPUs, as -1 does; Slurm sets NoDevFiles for a job without GPUs.
    is_hidden = os.environ.get(VISIBLE) in ("", "-1", "NoDevFiles")
    if is_hidden or os.environ.get(SWITCH) == "off":
        return False
    return folder_of_libraries() is not None or any(any(DEVICES.glob(name)) for name in DEVICE_FILES)


# Asked once in a process: each answer is a child process, and does not change.
@cache
def gpus() -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs that this process may use, and why there are none where some are declared."""
    return visible_with({}) if is_declared() else ((), "")


def visible_with(variables: dict[str, str]) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs that a child process with these variables may use, and why there are none."""
    try:
        child = subprocess.run(
            own_module("gpu.driver"),
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
        answer = json.loads(child.stdout)
    except subprocess.TimeoutExpired:
        return (), f"CUDA's driver did not answer in {ANSWER_S:.0f} s"
    except ValueError:
        return (), f"CUDA's driver ended its process (code {child.returncode})"
    return tuple(Gpu(**gpu) for gpu in answer["gpus"]), answer["why"]


class Driver:
    """libcuda, with the first visible GPU's context. Each call raises CudaError by its name."""

    def __init__(self) -> None:
        folder = folder_of_libraries()
        path = str(folder / "libcuda.so.1") if folder else "libcuda.so.1"
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise CudaError(f"CUDA's driver cannot be loaded ({error})") from None
        self.call("cuInit", 0)
        self.context = c_void_p()

    def call(self, name: str, *arguments: object) -> None:
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise CudaError(f"CUDA's driver has no {name}") from None
        if code := function(*arguments):
            text = ctypes.c_char_p()
            # Old drivers, and those that stand in for one in tests, have no names of errors.
            known = hasattr(self.library, "cuGetErrorName") and not self.library.cuGetErrorName(code, byref(text))
            raise CudaError(f"{name} failed ({text.value.decode() if known and text.value else code})")

    def gpu(self, number: int = 0) -> Gpu:
        """Return the GPU of a number."""
        device = c_int()
        text = create_string_buffer(256)
        version = c_int()
        self.call("cuDeviceGet", byref(device), number)
        self.call("cuDeviceGetName", text, 256, device)
        self.call("cuDriverGetVersion", byref(version))
        values = []
        for attribute in (MAJOR, MINOR, PROCESSORS, MOST_SHARED, CLOCK):
            value = c_int()
            self.call("cuDeviceGetAttribute", byref(value), attribute, device)
            values.append(value.value)
        major, minor, processors, shared, clock_khz = values
        # With the kernel module's version: CUDA's alone does not tell two drivers apart.
        installed = list[str]()
        if DRIVER_VERSION.exists():
            installed = DRIVER_VERSION.read_text(encoding="utf-8").splitlines()[:1]
        number, rest = divmod(version.value, 1000)  # 13010 is 13.1
        driver = " ".join([f"CUDA {number}.{rest // 10}", *installed])
        name = text.value.decode(errors="replace")
        return Gpu(name, f"sm_{major}{minor}", processors, shared, clock_khz // 1_000, driver)

    def enter(self) -> None:
        """Make the first GPU's context the calling thread's."""
        if not self.context:
            device = c_int()
            self.call("cuDeviceGet", byref(device), 0)
            self.call("cuDevicePrimaryCtxSetFlags_v2", device, BLOCKING_SYNC)
            self.call("cuDevicePrimaryCtxRetain", byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)


def main() -> None:
    rows = []
    why = ""
    try:
        driver = Driver()
        count = c_int()
        driver.call("cuDeviceGetCount", byref(count))
        if MPS_PIPES in os.environ:  # whose server is asked for a context alone
            driver.enter()
        rows = [asdict(driver.gpu(n)) for n in range(count.value)]
    except CudaError as error:
        why = str(error)
    print(json.dumps({"gpus": rows, "why": why}))


if __name__ == "__main__":
    main()
