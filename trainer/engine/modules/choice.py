"""Which way a spec without C++ of its own is trained: by its tape, or by torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from model.spec import Kernel, Spec
from trainer.engine.build import denormals
from trainer.engine.modules.graph import Program
from trainer.engine.modules.recording import record
from trainer.engine.tape_graph import Work
from trainer.files import durable
from trainer.files.installed import cache_folder

SOURCE = Path(__file__).parent / "kernel.cpp"
MOST_REGISTERS = 100_000
"""Of a tape: beyond it neither the compiler nor the caches of a CPU are fast."""
MOST_TOKENS = 64


@dataclass(frozen=True)
class Choice:
    """A kernel, or None for torch, and why, in a line."""

    kernel: Kernel | None
    why: str


def choose(spec: Spec, work: Work) -> Choice:
    """Return the kernel that is made of a spec's tape, where that trains faster than torch.

    work: as `record` takes it. Raise ValueError where the cache cannot be trusted.
    """
    return _choose(spec, work, denormals())


@lru_cache(64)
def _choose(spec: Spec, work: Work, denormals: str) -> Choice:
    if spec.tokens > MOST_TOKENS:
        return Choice(None, f"torch: {spec.tokens} tokens, and tapes are faster up to {MOST_TOKENS}")
    try:
        program = record(spec, work)
    except NotImplementedError as error:
        return Choice(None, f"torch: {error}")
    size = f"{program.registers:,} registers"
    if program.registers > MOST_REGISTERS:
        return Choice(None, f"torch: its tape has {size}, and tapes are faster up to {MOST_REGISTERS:,}")
    return Choice(_kernel(spec, program), f"tape: {size}")


def _kernel(spec: Spec, program: Program) -> Kernel:
    """Return the kernel of a program, whose text is kept in a folder of the cache."""
    text = program.text.encode()
    folder = cache_folder() / "recorded" / hashlib.sha256(text).hexdigest()[:24]
    file = folder / "recording.h"
    if not file.exists() or file.read_bytes() != text:
        durable.make_folder(folder)
        durable.write(file, text)
    shape = {
        "ANSWERS": spec.answers,
        "VOCABULARY": spec.tokens,
        "PROMPT_TOKENS": spec.prompt,
        "COUNTED": spec.task.answers,
    }
    return Kernel(SOURCE, shape, (folder,))
