"""What runs inside a Ray trial: one bank, from its saved state to its last seed.

The driver leaves trial.json in the trial's folder; the worker keeps the bank's state there and leaves its
parts for the driver to record (search/store/part.py).
"""

from __future__ import annotations

import json
import logging
import platform
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from search.store.part import ERROR, LOCK, STATE, Part, has_parts, write_parts
from search.study.trial import Trial
from trainer import RULE, Bank
from trainer.checkpoint import code_version

LOCK_WAIT_S = 60.0  # for a worker whose driver or node has died, and which has not noticed yet


def train(config: dict[str, Any]) -> None:
    """Ray Tune's trainable. `config["folder"]`: where the trial is described."""
    from ray import tune  # the worker's process; `run_trial` itself needs no Ray

    folder = Path(config["folder"])
    (folder / ERROR).unlink(missing_ok=True)  # of an earlier attempt
    try:
        with FileLock(folder / LOCK, timeout=LOCK_WAIT_S):
            for progress in run_trial(folder):
                tune.report(progress)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        (folder / ERROR).write_text(f"{type(error).__name__}: {first}\n\n{traceback.format_exc()}")
        raise


def run_trial(folder: Path) -> Iterator[dict[str, Any]]:
    """Train a trial's bank, yielding a progress report after each evaluation; the last one is `done`."""
    if has_parts(folder):  # it died between its results and its end
        return
    trial = Trial.read(folder)
    torch.set_num_threads(trial.resources.cpu)
    device = "cuda" if torch.cuda.is_available() and trial.resources.gpu != 0 else "cpu"
    yield {"payload": json.dumps({"trial": trial.key, "phase": "compiling"})}
    bank = Bank(
        trial.spec,
        trial.pairs,
        slots=trial.slots,
        device=device,
        compiled=trial.resources.compiled,
        hopeless=RULE if trial.stop.hopeless else None,
    )
    bank.load(folder / STATE)
    evaluations = 0
    while bank.advance():
        evaluations += 1
        if evaluations % trial.resources.save_every == 0:
            _save(bank, folder / STATE)
        yield {"payload": json.dumps(_progress(trial, bank))}
    write_parts(folder, parts_of(trial, bank))
    yield {"payload": json.dumps({**_progress(trial, bank), "phase": "done"})}


def _save(bank: Bank, path: Path) -> None:
    """A disk that is full for a while costs a state, not the trial: the one before is still there."""
    try:
        bank.save(path)
    except OSError as error:
        logging.getLogger(__name__).warning("%s: state not saved (%s)", path, error.strerror)


def _progress(trial: Trial, bank: Bank) -> dict[str, Any]:
    """A row a seed: its number, state, step, grok step and its newest and best measures."""
    seeds = [
        row | {"configuration": c.key, "seed": [s.init_seed, s.data_seed]}
        for (c, s), row in zip(trial.work, bank.judge.newest(), strict=True)
    ]
    return {
        "trial": trial.key,
        "phase": "training",
        "seeds": seeds,
        "seed_steps_per_s": bank.seed_steps_per_s,
        "seed_steps": bank.seed_steps,
        "train_s": bank.train_s,
        "compile_s": bank.programs.compile_s,
    }


def environment_of(trial: Trial, bank: Bank) -> dict[str, Any]:
    """What a θ depends on beside configuration and seed."""
    return {
        "code": code_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name() if bank.device == "cuda" else platform.machine(),
        "threads": trial.resources.cpu,
        "slots": trial.slots,
        "engine": type(bank.programs).__name__.lower(),
        "compiled": trial.resources.compiled,
    }


def parts_of(trial: Trial, bank: Bank) -> list[Part]:
    """A part for each configuration: every seed's best θ, its curve, and what became of it."""
    results = [bank.result(n) for n in range(len(bank.pairs))]
    about = {
        "environment": environment_of(trial, bank),
        "seed_steps_per_s": bank.seed_steps_per_s,
        "compile_s": bank.programs.compile_s,
        "cache_misses": bank.programs.cache_misses,
    }
    return [
        Part(trial.part(mine), [r for (c, _), r in zip(trial.work, results, strict=True) if c == mine], about)
        for mine in trial.configurations
    ]
