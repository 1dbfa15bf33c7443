"""Which way a spec without C++ of its own is trained: by its tape, or by torch."""

from __future__ import annotations

import hashlib
import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from model.doors import first_line
from model.spec import Choice, Kernel, Spec
from own_modules.tapes.graph import Program
from own_modules.tapes.recording import record
from trainer.data.problems import selection
from trainer.engine.build import BuildError, GivenUp, denormals
from trainer.engine.kernel import KernelLoss
from trainer.engine.native import constant_fold
from trainer.engine.structures import LANES
from trainer.files import durable
from trainer.files.installed import NoCache, cache_folder, missing_for_compilation
from trainer.step import step

SOURCE = Path(__file__).parent / "kernel.cpp"
MOST_TOKENS = 256
"""Logits of a block lie on a thread's stack."""
MOST_REGISTERS = 50_000
"""No longer tape was tried."""
MOST_NUMBERS = 30_000
"""Of θ. No larger net was tried."""
MOST_RARE = 10_000
"""Of θ where there are fewer products of a problem than numbers: their slopes are moved more than computed. An MLP of
7,905 numbers trains 1.4 times as fast as by torch (benchmarks/modules.py); one of 13,601 was slower."""
APART = 1e-3
"""How far logits and slopes of tape and torch may be apart, as a share of the largest: some thousand roundings."""
SMALL = 100
"""A tensor whose slopes are this many times smaller than the largest is measured by that share of it."""
NONE = 1e-30
"""The largest slope is at least this, where all are 0."""
JITTER = 0.1
"""By which share first values are moved before slopes are compared once more."""
log = logging.getLogger("trainer.tapes")  # of which workers report warnings


def by_tape(spec: Spec) -> Choice:
    """Return the kernel that is made of a spec's tape, where that trains faster than torch and answers as torch does.

    None where the compiler does not end. Raise BuildError; ValueError where the cache cannot be trusted.
    """
    return _choose(spec, denormals())


# By the fate of denormals too: constants on a tape are the engine's results, and `rerun` may ask for either.
@lru_cache(64)
def _choose(spec: Spec, denormals: str) -> Choice:
    # By its sizes first: recording works entry by entry, in Python.
    too_large = _excess((spec.logits, MOST_TOKENS, "logits"), (spec.params, MOST_NUMBERS, "numbers"))
    if too_large:
        return Choice(None, too_large)

    try:
        program = record(spec, constant_fold)
        # Numbers of θ that few products read; 0 where most are read twice or more.
        rare = spec.params if program.products < spec.params else 0
        too_large = _excess(
            (program.registers, MOST_REGISTERS, "intermediate results"),
            (rare, MOST_RARE, "numbers, of which few are read twice"),
        )
        if too_large:
            return Choice(None, too_large)

        kernel = _kernel(spec, program)
        other = "" if missing_for_compilation() else _other(spec, kernel)
        if other:
            return Choice(None, f"torch: the engine has other {other}")
    except GivenUp as error:
        log.warning("%s: %s goes by torch", error, spec.label)  # of which no plan knows
        return Choice(None, f"torch: {error}")
    except (BuildError, NoCache, OSError):
        raise
    except Exception as error:  # of tensors without numbers a net may ask anything
        return Choice(None, f"torch: {first_line(error).removeprefix('NotImplementedError: ')}")
    return Choice(kernel, "the C++ engine")


def _excess(*limits: tuple[int, int, str]) -> str:
    """Return the first count that is above its limit, in words, or ""."""
    for count, most, words in limits:
        if count > most:
            return f"torch: {count:,} {words}; the engine is faster up to {most:,}"
    return ""


def _kernel(spec: Spec, program: Program) -> Kernel:
    """Return the kernel of a program, whose text is kept in a folder of the cache."""
    text = program.text.encode()
    # A folder of its own for each text: kernel.cpp includes the file by one name.
    folder = cache_folder() / "recorded" / hashlib.sha256(text).hexdigest()[:24]
    file = folder / "recording.h"
    if not file.exists() or file.read_bytes() != text:
        durable.make_folder(folder)
        durable.write(file, text)
    shape = {
        "ANSWERS": spec.answers,
        "VOCABULARY": spec.logits,
        "PROMPT_TOKENS": spec.prompt,
        "COUNTED": spec.task.answers,
    }
    return Kernel(SOURCE, shape, (folder,))


def _other(spec: Spec, kernel: Kernel) -> str:
    """Return what a kernel has otherwise than torch, "logits" or "gradients"; "" for nothing.

    Both are asked selection problems: a net need not have a row for each token at each position.
    """
    a, b = selection(spec.task)
    places = torch.linspace(0, a.shape[1] - 1, LANES).long()
    tokens = spec.tokens_of(a[:, places], b[:, places])
    tokens_1TB = torch.stack([token.int() for token in tokens], dim=1)
    problems = KernelLoss(spec, tokens_1TB, kernel)
    theta_P = spec.initial(0)
    with torch.no_grad():
        logits = spec.forward(theta_P[None], tokens_1TB[:, :-1], spec.prompt - 1)
        logits_AVB = torch.stack([v.expand(1, spec.answers, LANES)[0] for v in logits], dim=1)
    # `not <` and not `>=`: logits that are no numbers are not torch's either.
    if not _apart(problems.logits(theta_P.numpy()), logits_AVB) < APART:
        return "logits"

    # And beside the first values: where a net begins with zeros, all below them has the slope 0.
    noise_P = JITTER * torch.randn(spec.params, generator=torch.Generator().manual_seed(0))
    beside_P = torch.where(theta_P == 0, noise_P, theta_P * (1 + noise_P))
    for at_P in (theta_P, beside_P):
        exact_P = grad(lambda theta_P: step.loss(spec, theta_P[None], tokens_1TB).sum())(at_P)
        _, slope_P = problems.slope(at_P.numpy())
        # Tensor by tensor: slopes of the first layer may be small beside the last one's.
        ours, theirs = (spec.layout.split(torch.as_tensor(t)[None]).values() for t in (slope_P, exact_P))
        least = (exact_P.abs().max() / SMALL).clamp(min=NONE)
        if not all(_apart(*pair, least) < APART for pair in zip(ours, theirs, strict=True)):
            return "gradients"
    return ""


def _apart(ours: Any, exact: Tensor, least: Any = 0) -> float:
    """Return the largest difference of two tensors as a share of the largest exact number, or of `least`.

    Masked with -∞ in both they do not differ.
    """
    ours = torch.as_tensor(ours)
    largest = torch.where(exact.isinf(), 0, exact).abs().max().clamp(min=least)
    return float(torch.where(exact == ours, 0, exact - ours).abs().max() / largest)
