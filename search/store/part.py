"""A part: what one configuration's seeds of a trial have become. The only format between worker and driver.

A worker leaves a trial's parts in its folder, all of them or none; the driver reads each once, records it in
the ledger and has it written to MLflow, where the same files are artifacts. The other way go a worker's
orders: which trials its bank trains, and what of them is not needed any more.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.study.trial import Configuration, Trial
from trainer import MEASURES, Outcome, Result, Seed

if TYPE_CHECKING:
    import pandas as pd

STATE, PARTS, ERROR, LOCK = "bank.state", "results", "error.txt", "lock"
"""What else may be in a trial's folder: its bank's state, its parts, why it failed, who has it."""
THETA, CURVES, RESULTS = "theta.safetensors", "curves.parquet", "results.json"
CUT, ORDERS = "cut.json", ".orders"
"""Of what was ended from outside, how far it was; beside the folder of a worker's first trial, its orders."""
WHO = ["configuration", "init_seed", "data_seed"]
SeedKey = tuple[str, int, int]
"""A configuration's key, init_seed, data_seed."""
FACTS = (
    "outcome", "steps", "grok_step", "held", "hopeless_step", "best_step", "best_exact", "best_token",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What one configuration's seeds of a trial have become."""

    trial: Trial
    results: list[Result]
    about: dict[str, Any]

    @property
    def configuration(self) -> Configuration:
        return self.trial.configurations[0]

    @cached_property
    def by_seed(self) -> dict[Seed, Result]:
        return {r.pair.seed: r for r in self.results}

    def write(self, folder: Path) -> None:
        """Leave θ's [N, P], curves and facts in a folder."""
        import torch
        from safetensors.torch import save_file

        self.trial.write(folder)
        save_file({"theta": torch.stack([r.theta_P for r in self.results])}, folder / THETA)
        curve_table(self.configuration, self.results).to_parquet(folder / CURVES, index=False)
        seeds = [{name: getattr(r, name) for name in FACTS} for r in self.results]
        for seed, r in zip(seeds, self.results, strict=True):
            seed |= {"configuration": self.configuration.key, **dataclasses.asdict(r.pair.seed)}
        (folder / RESULTS).write_text(json.dumps(self.about | {"seeds": seeds}, indent=2))

    @classmethod
    def read(cls, folder: Path) -> Part:
        import pandas as pd
        import torch
        from safetensors.torch import load_file

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
    import pandas as pd

    tables = []
    for r in results:
        table = pd.DataFrame(r.curve_EM.numpy(), columns=list(MEASURES))
        table.insert(0, "step", (table.index + 1) * configuration.recipe.eval_every)
        table.insert(0, "data_seed", r.pair.seed.data_seed)
        table.insert(0, "init_seed", r.pair.seed.init_seed)
        table.insert(0, "configuration", configuration.key)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def write_parts(folder: Path, parts: Iterable[Part], cut: Mapping[SeedKey, int] | None = None) -> None:
    """Leave a trial's parts in its folder: whole or not at all. cut: steps of the seeds that are in none."""
    fresh = folder / (PARTS + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for part in parts:
        part.write(fresh / part.configuration.key)
    if cut:
        (fresh / CUT).write_text(json.dumps([[*key, steps] for key, steps in cut.items()]))
    fresh.rename(folder / PARTS)


def has_parts(folder: Path) -> bool:
    """Whether a trial has ended by itself."""
    return (folder / PARTS).exists()


def read_parts(folder: Path) -> list[Part]:
    """What `write_parts` left; nothing if the trial has not ended."""
    return [Part.read(f) for f in sorted((folder / PARTS).glob("*/"))]


def read_cut(folder: Path) -> dict[SeedKey, int]:
    """Steps of the seeds that were ended from outside, as `write_parts` left them."""
    file = folder / PARTS / CUT
    listed = json.loads(file.read_text()) if file.exists() else []
    return {(key, init, data): steps for key, init, data, steps in listed}


@dataclass(frozen=True)
class Orders:
    """What a driver wants of a worker: `trials` in its bank, and no more of the configurations in `enough`.

    The worker reads them when it starts and between evaluations, so a trial can follow another one in its
    slots, and a process that was started again knows what its bank has.
    """

    trials: tuple[str, ...]
    enough: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Leave them for the worker whose first trial has this folder."""
        fresh = folder.with_name(folder.name + ORDERS + ".new")
        fresh.write_text(json.dumps(dataclasses.asdict(self)))
        fresh.replace(orders_of(folder))

    @classmethod
    def read(cls, folder: Path) -> Orders:
        """Without any a worker trains its first trial alone."""
        if not orders_of(folder).exists():
            return cls((folder.name,))
        return cls(**{name: tuple(keys) for name, keys in json.loads(orders_of(folder).read_text()).items()})


def orders_of(folder: Path) -> Path:
    """Where the orders are of the worker whose first trial has this folder."""
    return folder.with_name(folder.name + ORDERS)
