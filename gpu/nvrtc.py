"""NVRTC, CUDA's compiler as a library, by ctypes. It needs neither a GPU nor its driver."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from functools import cache
from pathlib import Path

from gpu.driver import CudaError, folder_of_libraries, gpus
from trainer.engine.build import denormals

NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
"""Where wheels have it, below a folder of packages."""
# The CPU's roundings: no product and sum fused that are not written so, and exact quotients and roots.
OPTIONS = (
    "-std=c++17",
    "--fmad=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "-default-device",
    "-w",
)
OLDER = "pip install nvidia-cuda-nvrtc-cu12"
NEWER = "pip install -U nvidia-cuda-nvrtc"
STANDARD = {"cstdint": """typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t;
typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT32_MIN (-2147483647 - 1)
"""}  # fmt: skip
"""Standard headers that NVRTC does not have."""


def options() -> tuple[str, ...]:
    """Return those of the compiler that results depend on."""
    return (*OPTIONS, f"--ftz={str(denormals() == '0').lower()}")


@cache
def library() -> ctypes.CDLL:
    """Load the first NVRTC that suits the GPU here, or else the first one.

    It is searched in the folder that ADDER_SEARCH_CUDA names, or else in its wheels, then where the system has it.
    Raise CudaError if it is nowhere.
    """
    folder = folder_of_libraries()
    if folder:
        places = [folder]
    else:
        places = [Path(p) / part for p in sys.path if p for part in FOLDERS]
    files = [place / name for place in places for name in NAMES]
    paths = [str(file) for file in files if file.exists()]
    if not folder:
        paths += NAMES  # which the system's loader looks for

    loaded = list[ctypes.CDLL]()
    for path in paths:
        try:
            # NVRTC loads these by name, and would not find them in a wheel's folder.
            beside = Path(path).parent.glob("libnvrtc-builtins.so.*") if os.sep in path else ()
            for builtins in sorted(beside):
                ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
            loaded.append(ctypes.CDLL(path))
        except OSError:
            continue
        if not unsuited(loaded[-1]):
            return loaded[-1]
    if loaded:
        return loaded[0]
    raise CudaError("CUDA's compiler, NVRTC, is not here (pip install 'adder-search[gpu]')")


def unsuited(nvrtc: ctypes.CDLL) -> str:
    """Return why an NVRTC does not suit the GPU here, with the remedy; "" where it does, or where no GPU is here.

    A driver may refuse the output of a compiler with a later major version.
    """
    for gpu in gpus()[0][:1]:  # the one that is used (card.py)
        found = version(nvrtc)
        known = architectures(nvrtc)
        if int(found.partition(".")[0]) > gpu.cuda:
            return f"NVRTC {found} is newer than the driver (CUDA {gpu.cuda}): {OLDER}, or update the driver"
        if gpu.architecture not in known:
            remedy = OLDER if _number(gpu.architecture) < _number(known[0]) else NEWER
            return f"NVRTC {found} compiles for {known[0]} to {known[-1]}, not for {gpu.architecture}: {remedy}"
    return ""


def version(nvrtc: ctypes.CDLL | None = None) -> str:
    """Return the version of an NVRTC, or of the loaded one. Raise CudaError."""
    major = c_int()
    minor = c_int()
    _check("nvrtcVersion", byref(major), byref(minor), nvrtc=nvrtc)
    return f"{major.value}.{minor.value}"


def architectures(nvrtc: ctypes.CDLL | None = None) -> tuple[str, ...]:
    """Return the architectures of an NVRTC, or of the loaded one: sm_75 and so on, oldest first. Raise CudaError."""
    count = c_int()
    _check("nvrtcGetNumSupportedArchs", byref(count), nvrtc=nvrtc)
    numbers = (c_int * count.value)()
    _check("nvrtcGetSupportedArchs", numbers, nvrtc=nvrtc)
    return tuple(f"sm_{number}" for number in sorted(numbers))


def _number(architecture: str) -> int:
    return int(architecture.removeprefix("sm_"))


def compiled(text: str, headers: Mapping[str, str], architecture: str, result: str = "CUBIN") -> bytes:
    """Compile C++ for an architecture (sm_90) to a CUBIN, to PTX, or to a ProgramLog that says what each function uses.

    Raise CudaError with the first error.
    """
    headers = {**headers, **STANDARD}
    program = c_void_p()
    count = len(headers)
    names = (c_char_p * count)(*map(str.encode, headers))
    texts = (c_char_p * count)(*map(str.encode, headers.values()))
    _check(
        "nvrtcCreateProgram",
        byref(program),
        text.encode(),
        b"engine.cu",
        count,
        texts,
        names,
    )
    try:
        flags = [f"--gpu-architecture={architecture}", *options()]
        flags += ["--ptxas-options=-v"] * (result == "ProgramLog")
        given = (c_char_p * len(flags))(*(flag.encode() for flag in flags))
        if library().nvrtcCompileProgram(program, c_int(len(flags)), given):
            log = _bytes("ProgramLog", program).decode(errors="replace")
            errors = [line for line in log.splitlines() if "error" in line]
            error, *_ = errors or [log.strip()[:300]]
            raise CudaError(f"NVRTC: {error}")
        return _bytes(result, program)
    finally:
        library().nvrtcDestroyProgram(byref(program))


def _bytes(name: str, program: c_void_p) -> bytes:
    size = c_size_t()
    _check(f"nvrtcGet{name}Size", program, byref(size))
    to = create_string_buffer(size.value)
    _check(f"nvrtcGet{name}", program, to)
    return to.raw


def _check(name: str, *arguments: object, nvrtc: ctypes.CDLL | None = None) -> None:
    code = getattr(nvrtc or library(), name)(*arguments)
    if code:
        raise CudaError(f"{name} failed with {code}")
