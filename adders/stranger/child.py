"""Run a stranger's AdderBoard submission: what a child process does, which locks itself before it reads the file.

    python -I child.py SUBMISSION FD BYTES SECONDS

reads pairs from stdin, "a b" a line, and writes lines to the file descriptor FD: what it could not lock, then the
parameters that the model counts, then each answer, "-" where it is none. It imports nothing of this package.

The lock is a filter of system calls (seccomp), which needs no privilege and which threads and children inherit.
It refuses sockets, files opened for writing and what else changes files, signals, other processes' priority and
memory, programs and namespaces. It is a list of what is refused, no jail: what the file can read, it may read.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import platform
import resource
import struct
import sys
from typing import Any

# Numbers of Linux's interface, which never change: asm-generic/errno.h,
EPERM = 1
ENOSYS = 38
# linux/prctl.h, with arguments,
NO_NEW_PRIVILEGES = 38
SECCOMP = 22
FILTER = 2
DIES_WITH_PARENT = 1
SIGKILL = 9
# linux/bpf_common.h: instructions of a filter,
LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
ANY_OF = 0x45
RETURN = 0x06
# linux/seccomp.h: what a filter returns.
ALLOW = 0x7FFF0000
REFUSE = 0x00050000
KILL = 0x80000000
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
NAMESPACES = 0x7E020080
"""Flags of clone that make a namespace: time, mounts, cgroups, names, messages, users, processes, network."""
FOREIGN_ABI = 0x40000000
"""Bit of system calls of the x32 interface, which have other numbers than those that are refused here."""
OWNS = 8
"""Bit of those commands of fcntl that say who gets a file's signals, and which one."""
OTHERS = 0xFFFFFFFF
"""All bits of a process's number: 0 is the caller's own."""
ASKS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Commands of ioctl that are allowed (asm-generic/ioctls.h). Others change files by descriptors that only read.

What a terminal is, by two names, and its size; how much can be read; whether a read waits, and who inherits a file.
"""
LARGEST = 10**15
"""Beyond any sum, so that an answer is a short line."""
SPARE = 5  # seconds of a core more than the clock allows, by which this program is judged first

# Numbers of system calls (asm/unistd_64.h; asm-generic/unistd.h): of sockets, files, signals and processes, memory and
# messages that processes share, the system.
REFUSED = {
    "x86_64": [
        *(41, 53, 425),
        *(76, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 132, 133, 188, 189, 190, 197, 198, 199, 235, 258, 259),
        *(260, 261, 263, 264, 265, 266, 268, 280, 304, 316, 437, 452, 463, 466),
        *(59, 62, 101, 109, 112, 200, 234, 311, 322, 424, 438, 129, 297, 141, 142, 144, 251, 314),
        *(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241),
        *(155, 161, 164, 165, 166, 167, 169, 170, 175, 176, 227, 246, 248, 249, 250, 272, 298, 308, 313, 320, 321),
        *(428, 429, 430, 432, 433, 442),
    ],
    "aarch64": [
        *(198, 199, 425),
        *(5, 6, 7, 14, 15, 16, 33, 34, 35, 36, 37, 38, 45, 52, 53, 54, 55, 88, 265, 276, 437, 452, 463, 466),
        *(221, 129, 117, 154, 157, 130, 131, 271, 281, 424, 438, 138, 240, 140, 118, 119, 30, 274),
        *(194, 195, 196, 190, 191, 192, 193, 186, 187, 188, 189, 180, 181),
        *(41, 51, 170, 40, 39, 224, 142, 161, 105, 106, 112, 104, 217, 218, 219, 97, 241, 268, 273, 294, 280),
        *(428, 429, 430, 432, 433, 442),
    ],
}  # fmt: skip
# Architecture's name in a filter; calls with a flag that is refused: number, argument, flags.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FLAGS = {
    "x86_64": [
        *((2, 1, WRITES), (257, 2, WRITES), (56, 0, NAMESPACES)),
        *((72, 1, OWNS), (203, 0, OTHERS), (302, 0, OTHERS)),
    ],
    "aarch64": [
        *((56, 2, WRITES), (220, 0, NAMESPACES)),
        *((25, 1, OWNS), (122, 0, OTHERS), (261, 0, OTHERS)),
    ],
}
IOCTL = {"x86_64": 16, "aarch64": 29}
CLONE3 = 435
"""Its flags are in memory, which no filter reads; libraries that miss it call clone."""


def program(machine: str) -> bytes:
    """Return the filter of a kind of machine, as the kernel reads it. Raises KeyError for another kind."""

    def step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_so, if_not, value)

    refuse = step(RETURN, REFUSE | EPERM)
    # struct seccomp_data: the call's number at 0, the architecture at 4, arguments of 8 bytes from 16 on
    number = step(LOAD, 0)
    steps = [step(LOAD, 4), step(EQUAL, ARCHITECTURES[machine], 1, 0), step(RETURN, KILL)]
    steps += [number, step(AT_LEAST, FOREIGN_ABI, 0, 1), refuse]
    steps += [step(EQUAL, CLONE3, 0, 1), step(RETURN, REFUSE | ENOSYS)]
    for call in REFUSED[machine]:
        steps += [step(EQUAL, call, 0, 1), refuse]
    for call, argument, flags in FLAGS[machine]:
        place = 16 + 8 * argument
        # jumps count the steps that are left out: another call goes on behind the five
        steps += [step(EQUAL, call, 0, 4), step(LOAD, place), step(ANY_OF, flags, 0, 1), refuse, number]
    # another call goes on behind the refusal, and so does each command that is allowed
    steps += [step(EQUAL, IOCTL[machine], 0, len(ASKS) + 2), step(LOAD, 24)]
    steps += [step(EQUAL, command, len(ASKS) - n, 0) for n, command in enumerate(ASKS)]
    steps += [refuse, step(RETURN, ALLOW)]
    return b"".join(steps)


def lock(memory: int, seconds: int) -> list[str]:
    """Give up what a submission does not need, and more than so many bytes and seconds of a core in each process.

    Return what could not be locked.
    """
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
    }
    open_ways = []
    for kind, value in limits.items():
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            open_ways.append("memory" if kind == resource.RLIMIT_AS else "time")
    try:
        filtered = program(platform.machine())
        library = ctypes.CDLL(None, use_errno=True)
        body = ctypes.create_string_buffer(filtered, len(filtered))
        head = struct.pack("HL", len(filtered) // 8, ctypes.addressof(body))
        library.prctl(DIES_WITH_PARENT, SIGKILL, 0, 0, 0)
        # without the first, the kernel takes filters of privileged processes alone
        wrong = library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or library.prctl(SECCOMP, FILTER, head, 0, 0)
    except (KeyError, OSError, AttributeError):
        # another kind of machine, or a system that is not Linux
        wrong = True
    if wrong:
        open_ways += ["network", "files", "other processes"]
    return open_ways


def answer(submission: Any, model: Any, a: int, b: int) -> str:
    """Return what a submission adds two numbers to, or - where it raises or gives no such number."""
    try:
        value = submission.add(model, a, b)
    except Exception:
        return "-"
    # `type is`: an int's subclass could write what it likes
    if type(value) is int and abs(value) < LARGEST:
        return str(value)
    return "-"


def counted(model: Any) -> int:
    """Return how many numbers a model's parameters have, each counted once; -1 where it does not say."""
    try:
        sizes = {id(parameter): int(parameter.numel()) for parameter in model.parameters()}
        return sum(sizes.values())
    except Exception:
        return -1


def main(path: str, out: int, memory: int, seconds: int) -> None:
    """Lock this process, run the submission at `path`, and write to the descriptor `out`."""
    pairs = [tuple(map(int, line.split())) for line in sys.stdin]
    open_ways = lock(memory, seconds + SPARE)

    def say(text: str) -> None:
        os.write(out, f"{text}\n".encode(errors="replace"))

    say(",".join(open_ways))
    try:
        found = importlib.util.spec_from_file_location("submission", path)
        assert found is not None and found.loader is not None
        submission = importlib.util.module_from_spec(found)
        found.loader.exec_module(submission)
        built = submission.build_model()
        model = built[0] if isinstance(built, tuple) else built
    except BaseException as error:  # SystemExit too: a submission may call exit
        say(f"! {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        raise SystemExit(1) from None
    say(str(counted(model)))
    for a, b in pairs:
        say(answer(submission, model, a, b))
    with contextlib.suppress(OSError):
        os.close(out)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
