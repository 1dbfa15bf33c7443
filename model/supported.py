"""Where adder-search does not run, said in one line before anything else fails.

Importing it, or running it, is the check: `make`, setup.py and `import model` do. Python 3.6 can read it.
"""

import platform
import struct
import sys

OLDEST = (3, 11)


MACHINES = {"Linux": ("x86_64", "aarch64"), "Darwin": ("arm64",)}
"""System -> its machines, as `platform.machine()` names them, of those that PyTorch has builds for."""


def reason_against(
    version: "tuple[int, int]",
    system: str,
    bits: int,
    libc: str,
    machine: str,
    python: str,
) -> "str | None":
    """Return why a machine cannot run adder-search, with what to do about it, or None.

    version: of Python, as (3, 12). system, machine, python: as `platform` names them. bits: of a pointer. libc: as
    `platform.libc_ver()` names it; empty for musl.
    """
    if version < OLDEST:
        found, oldest = ("{}.{}".format(*v) for v in (version, OLDEST))
        return f"needs Python {oldest} or newer, and this is {found}: make demo PYTHON=python{oldest}"
    if system == "Windows":
        return "needs Linux: on Windows, run it inside WSL (wsl --install)"
    if system not in MACHINES:
        return f"needs Linux or macOS, and this is {system or 'another system'}: PyTorch has no builds for it"
    if bits != 64:
        return f"needs a 64-bit Python, and this one has {bits} bits: PyTorch has no other"
    if machine not in MACHINES[system]:
        names = " or ".join(MACHINES[system])
        return f"needs a CPU that {system} calls {names}, and this is {machine}: PyTorch has no builds for it"
    if system == "Linux" and libc != "glibc":
        return "needs a Linux with glibc: PyTorch has no builds for musl (Alpine); use a Debian or Ubuntu image"
    if python != "CPython":
        return f"needs CPython, and this is {python}: PyTorch has no builds for it"
    return None


def refuse_elsewhere() -> None:
    """Raise SystemExit, with one line, on a machine that cannot run adder-search."""
    bits = 8 * struct.calcsize("P")
    libc, _ = platform.libc_ver()
    kinds = (platform.machine(), platform.python_implementation())
    reason = reason_against(sys.version_info[:2], platform.system(), bits, libc, *kinds)
    if reason:
        raise SystemExit(f"error: adder-search {reason}")


refuse_elsewhere()
