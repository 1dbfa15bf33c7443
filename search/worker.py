"""What runs inside a Ray trial: one bank, from its saved state to its last seed.

The driver leaves trial.json in the trial's folder; the worker keeps the bank's state there and leaves
theta.safetensors and curves.parquet for the driver to record.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import platform
import shutil
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file

from search.plan import Configuration, Trial
from trainer import MEASURES, RULE, Bank, Outcome, Result
from trainer.checkpoint import code_version

STATE, PARTS, ERROR, LOCK = "bank.state", "results", "error.txt", "lock"
LOCK_WAIT_S = 60.0  # for a worker whose driver or node has died, and which has not noticed yet
THETA, CURVES, RESULTS = "theta.safetensors", "curves.parquet", "results.json"
WHO = ["configuration", "init_seed", "data_seed"]
FACTS = (
    "outcome", "steps", "grok_step", "held", "hopeless_step", "best_step", "best_exact", "best_token",
)  # fmt: skip


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


def run_trial(folder: Path):  # type: ignore[no-untyped-def]
    """Train a trial's bank, yielding a progress report after each evaluation; the last one is `done`."""
    if has_results(folder):  # it died between its results and its end
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
    write_results(folder, trial, bank, environment_of(trial, bank))
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
        "tile": bank.tile,
        "compiled": trial.resources.compiled,
    }


def write_results(folder: Path, trial: Trial, bank: Bank, environment: dict[str, Any]) -> None:
    """A part for each configuration: every seed's best θ [N, P], its curve, and what became of it."""
    results = [bank.result(n) for n in range(len(bank.pairs))]
    about = {
        "environment": environment,
        "seed_steps_per_s": bank.seed_steps_per_s,
        "compile_s": bank.programs.compile_s,
        "cache_misses": bank.programs.cache_misses,
    }
    fresh = folder / (PARTS + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for configuration in trial.configurations:
        mine = [r for (c, _), r in zip(trial.work, results, strict=True) if c == configuration]
        Part(trial.part(configuration), mine, about).write(fresh / configuration.key)
    fresh.rename(folder / PARTS)  # whole or not at all


@dataclass(frozen=True)
class Part:
    """What one configuration's seeds of a trial have become."""

    trial: Trial
    results: list[Result]
    about: dict[str, Any]

    @property
    def configuration(self) -> Configuration:
        return self.trial.configurations[0]

    def write(self, folder: Path) -> None:
        self.trial.write(folder)
        save_file({"theta": torch.stack([r.theta_P for r in self.results])}, folder / THETA)
        curve_table(self.configuration, self.results).to_parquet(folder / CURVES, index=False)
        seeds = [{name: getattr(r, name) for name in FACTS} for r in self.results]
        for seed, r in zip(seeds, self.results, strict=True):
            seed |= {"configuration": self.configuration.key, **dataclasses.asdict(r.pair.seed)}
        (folder / RESULTS).write_text(json.dumps(self.about | {"seeds": seeds}, indent=2))

    @classmethod
    def read(cls, folder: Path) -> Part:
        trial = Trial.read(folder)
        about = json.loads((folder / RESULTS).read_text())
        theta = load_file(folder / THETA)["theta"].clone()  # not a view of a file that may change
        curves = {
            who: torch.tensor(table[list(MEASURES)].to_numpy(), dtype=torch.float32)
            for who, table in pd.read_parquet(folder / CURVES).groupby(WHO)
        }
        results = []
        for n, (pair, seed) in enumerate(zip(trial.pairs, about.pop("seeds"), strict=True)):
            who = tuple(seed[name] for name in WHO)
            facts = {name: seed[name] for name in FACTS} | {"outcome": Outcome(seed["outcome"])}
            results.append(Result(pair=pair, theta_P=theta[n], curve_EM=curves[who], **facts))
        return cls(trial, results, about)


def curve_table(configuration: Configuration, results: list[Result]) -> pd.DataFrame:
    """One row an evaluation of a seed: configuration, init_seed, data_seed, step and MEASURES."""
    tables = []
    for r in results:
        table = pd.DataFrame(r.curve_EM.numpy(), columns=list(MEASURES))
        table.insert(0, "step", (table.index + 1) * configuration.recipe.eval_every)
        table.insert(0, "data_seed", r.pair.seed.data_seed)
        table.insert(0, "init_seed", r.pair.seed.init_seed)
        table.insert(0, "configuration", configuration.key)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def has_results(folder: Path) -> bool:
    """Whether a trial has ended by itself."""
    return (folder / PARTS).exists()


def read_results(folder: Path) -> list[Part]:
    """What `write_results` left; nothing if the trial has not ended."""
    return [Part.read(f) for f in sorted((folder / PARTS).iterdir())] if has_results(folder) else []
