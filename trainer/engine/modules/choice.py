"""Which way a spec without C++ of its own is trained: by its tape, or by torch."""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from model.spec import Kernel, Spec
from trainer.engine.build import denormals, library
from trainer.engine.modules.graph import Program
from trainer.engine.modules.recording import record
from trainer.engine.structures import Measures, Seen
from trainer.engine.tape_graph import Work
from trainer.files import durable
from trainer.files.installed import cache_folder, missing_for_compilation

SOURCE = Path(__file__).parent / "kernel.cpp"
MOST_REGISTERS = 100_000
"""Of a tape: beyond it neither the compiler nor the caches of a CPU are fast."""
MOST_TOKENS = 256
MOST_NUMBERS = 8_000
"""Of wide tensors."""
LANES = 16
"""Problems of a block (model/cpp/kernel.h)."""
APART = 1e-3
"""How far logits of tape and torch may be apart, as a share of the largest: some thousand roundings."""


@dataclass(frozen=True)
class Choice:
    """A kernel, or None for torch, and why, in a line."""

    kernel: Kernel | None
    why: str


def choose(spec: Spec, work: Work) -> Choice:
    """Return the kernel that is made of a spec's tape, where that trains faster than torch and answers as torch does.

    work: as `record` takes it. Raise BuildError; ValueError where the cache cannot be trusted.
    """
    return _choose(spec, work, denormals())


@lru_cache(64)
def _choose(spec: Spec, work: Work, denormals: str) -> Choice:
    for count, most, words in ((spec.tokens, MOST_TOKENS, "tokens"), (spec.params, MOST_NUMBERS, "numbers")):
        if count > most:
            return Choice(None, f"torch: it has {count:,} {words}, and tapes are faster up to {most:,}")
    try:
        program = record(spec, work)
        size = f"{program.registers:,} registers"
        if program.registers > MOST_REGISTERS:
            return Choice(None, f"torch: its tape has {size}, and tapes are faster up to {MOST_REGISTERS:,}")
        kernel = _kernel(spec, program)
        if not missing_for_compilation() and not _apart(spec, kernel) < APART:
            return Choice(None, "torch: its tape has other logits")
    except (NotImplementedError, IndexError) as error:
        return Choice(None, f"torch: {error}")
    return Choice(kernel, f"tape: {size}")


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


def _apart(spec: Spec, kernel: Kernel) -> float:
    """Return the largest difference of a kernel's logits from torch's, for random tokens, as a share of the largest."""
    generator = torch.Generator().manual_seed(0)
    length = spec.prompt + spec.answers
    tokens_1TB = torch.randint(spec.tokens, (1, length, LANES), generator=generator, dtype=torch.int32)
    with torch.no_grad():
        wide = spec.expand(spec.initial(0)[None])
        logits = spec.apply(wide, tokens_1TB[:, :-1], spec.prompt - 1)
        logits_AVB = torch.stack([v.expand(1, spec.answers, LANES)[0] for v in logits], dim=1)
    numbers_N = torch.cat([t.flatten() for t in wide.values()]).numpy()
    seen_AVB = np.zeros(logits_AVB.shape, np.float32)
    library(kernel.source, kernel.shape, kernel.folders).kernel_evaluate(
        ctypes.c_void_p(numbers_N.ctypes.data),
        ctypes.c_void_p(tokens_1TB.data_ptr()),
        LANES,
        ctypes.byref(Measures()),
        ctypes.byref(Seen(logits=seen_AVB.ctypes.data, right=None)),
    )
    apart = (logits_AVB - torch.from_numpy(seen_AVB)).abs().max() / logits_AVB.abs().max()
    return float(apart)
