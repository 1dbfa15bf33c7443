"""A part: what one configuration's seeds of a trial have become. The only format between worker and driver.

A worker leaves a trial's parts in its folder, on disk, all of them or none; the driver reads each once,
records it in the ledger and has it written to MLflow, where the same files are artifacts. One that cannot be
read is set aside, and its seeds are trained again. The other way go a worker's orders: which trials its bank
trains, and what of them is not needed any more.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.errors import Failure
from search.study.trial import TRIAL_FILE, Configuration, Trial
from trainer import MEASURES, Outcome, Result, Seed, durable
from trainer.screen import BEST, reached

if TYPE_CHECKING:
    import pandas as pd

    from search.study.sampler import Share

STATE, PARTS, ERROR, LOCK = "bank.state", "results", "error.txt", "lock"
"""What else may be in a trial's folder: its bank's state, its parts, why it failed, who has it."""
THETA, CURVES, RESULTS = "theta.safetensors", "curves.parquet", "results.json"
REASON = "reason.txt"
"""Beside parts that were set aside: why."""
CUT, ORDERS = "cut.json", ".orders"
"""Of what was ended from outside, how far it was; beside the folder of a worker's first trial, its orders."""
WHO = ["configuration", "init_seed", "data_seed"]
SeedKey = tuple[str, int, int]
"""A configuration's key, init_seed, data_seed."""
FACTS = (
    "outcome", "steps", "grok_step", "held", "hopeless_step", "screen", "best_step", "best_exact",
    "best_token",
)  # fmt: skip


class Damaged(Failure):
    """Results that cannot be read: cut off, empty, changed or gone."""


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

    def reaches(self, result: Result, share: Share) -> bool:
        """Whether a seed had what a search's objective asks for, at its step or where it ended before."""
        seen = min(-(-share.when // result.pair.recipe.eval_every), len(result.curve_EM))
        if not seen:
            return False
        best = result.curve_EM[:seen, : len(BEST)].nan_to_num(-1.0).amax(0).tolist()
        read = result.probes_ER[seen - 1].tolist()
        values = [*zip(BEST, best, strict=True), *zip(self.trial.spec.probes(), read, strict=True)]
        return reached(share.keep, dict(values))

    def write(self, folder: Path) -> None:
        """Leave θ's [N, P], curves and facts in a folder."""
        import torch
        from safetensors.torch import save

        self.trial.write(folder)
        seeds = [{name: getattr(r, name) for name in FACTS} for r in self.results]
        for seed, r in zip(seeds, self.results, strict=True):
            seed |= {"configuration": self.configuration.key, **dataclasses.asdict(r.pair.seed)}
        files = {
            THETA: save({"theta": torch.stack([r.theta_P for r in self.results])}),
            CURVES: curve_table(self.configuration, self.results).to_parquet(index=False),
        }
        facts = self.about | {"seeds": seeds, "sha256": {name: _digest(files[name]) for name in files}}
        for name, data in (files | {RESULTS: json.dumps(facts, indent=2).encode()}).items():
            durable.write(folder / name, data)

    @classmethod
    def read(cls, folder: Path) -> Part:
        """What `write` left. Raises Damaged, whatever keeps it from being read."""
        with _readable(folder):
            return cls._read(folder)

    @classmethod
    def _read(cls, folder: Path) -> Part:
        import torch
        from safetensors.torch import load

        trial = Trial.read(folder)
        about = json.loads((folder / RESULTS).read_text())
        files = {name: (folder / name).read_bytes() for name in (THETA, CURVES)}
        for name, digest in about.pop("sha256", {}).items():  # parts of before have none
            if _digest(files[name]) != digest:
                raise ValueError(f"{name} is not what was written")
        theta = load(files[THETA])["theta"]
        curves = dict(list(_table(files[CURVES]).groupby(WHO)))
        probes = [name for name in trial.spec.probes() if all(name in table for table in curves.values())]
        results = []
        for n, (pair, seed) in enumerate(zip(trial.pairs, about.pop("seeds"), strict=True)):
            who = tuple(seed[name] for name in WHO)
            facts = {
                "screen": None,
                **{name: seed[name] for name in FACTS if name != "screen" or name in seed},
            }
            facts["outcome"] = Outcome(seed["outcome"])
            curve_EM, probes_ER = (
                torch.tensor(curves[who][names].to_numpy(), dtype=torch.float32)
                for names in (list(MEASURES), probes)
            )
            results.append(
                Result(pair=pair, theta_P=theta[n], curve_EM=curve_EM, probes_ER=probes_ER, **facts)
            )
        return cls(trial, results, about)


def read_curves(folder: Path) -> pd.DataFrame:
    """The curves of a part, as `curve_table` has them. Raises Damaged."""
    with _readable(folder):
        return _table((folder / CURVES).read_bytes())


def _table(data: bytes) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(io.BytesIO(data))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Whatever a block raises of files that are damaged, in any of three formats, is Damaged."""
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise Damaged(f"results in {folder} cannot be read ({type(error).__name__}: {said})") from None


def curve_table(configuration: Configuration, results: list[Result]) -> pd.DataFrame:
    """One row an evaluation of a seed: configuration, init_seed, data_seed, step, MEASURES, and what the
    spec's probes read, each by its name.
    """
    import pandas as pd

    tables = []
    for r in results:
        table = pd.DataFrame(r.curve_EM.numpy(), columns=list(MEASURES))
        for name, read in zip(configuration.spec.probes(), r.probes_ER.T.numpy(), strict=False):
            table[name] = read
        table.insert(0, "step", (table.index + 1) * configuration.recipe.eval_every)
        table.insert(0, "data_seed", r.pair.seed.data_seed)
        table.insert(0, "init_seed", r.pair.seed.init_seed)
        table.insert(0, "configuration", configuration.key)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def write_parts(folder: Path, parts: Iterable[Part], cut: Mapping[SeedKey, int] | None = None) -> None:
    """Leave a trial's parts in its folder, on disk: whole or not at all. cut: steps of the seeds in none."""
    fresh = folder / (PARTS + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for part in parts:
        part.write(fresh / part.configuration.key)
    if cut:
        durable.write(fresh / CUT, json.dumps([[*key, steps] for key, steps in cut.items()]).encode())
    durable.move_in(fresh, folder / PARTS)


def has_parts(folder: Path) -> bool:
    """Whether a trial has ended by itself."""
    return (folder / PARTS).exists()


def read_parts(folder: Path) -> list[Part]:
    """What `write_parts` left; nothing if the trial has not ended. Raises Damaged if one is lost or cut."""
    if not has_parts(folder):
        return []
    with _readable(folder):
        trial, cut = Trial.read(folder), read_cut(folder)
        ended = dict.fromkeys(c for c, s in trial.work if (c.key, s.init_seed, s.data_seed) not in cut)
    return [Part.read(folder / PARTS / c.key) for c in ended]


def read_cut(folder: Path) -> dict[SeedKey, int]:
    """Steps of the seeds that were ended from outside, as `write_parts` left them."""
    file = folder / PARTS / CUT
    listed = json.loads(file.read_text()) if file.exists() else []
    return {(key, init, data): steps for key, init, data, steps in listed}


def set_aside(folder: Path, place: Path, reason: str) -> Path:
    """Move a trial's parts out of its folder to `place`, or to one like it that is free, with the reason."""
    free = next(p for n in count(1) if not (p := place.with_name(f"{place.name}-{n}")).exists())
    durable.make_folder(free)
    durable.write(free / REASON, f"{reason}\n".encode())
    if (folder / TRIAL_FILE).exists():
        durable.write(free / TRIAL_FILE, (folder / TRIAL_FILE).read_bytes())
    durable.rename(folder / PARTS, free / PARTS)
    return free


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
        durable.write(orders_of(folder), json.dumps(dataclasses.asdict(self)).encode())

    @classmethod
    def read(cls, folder: Path) -> Orders:
        """Without any a worker trains its first trial alone."""
        if not orders_of(folder).exists():
            return cls((folder.name,))
        return cls(**{name: tuple(keys) for name, keys in json.loads(orders_of(folder).read_text()).items()})


def orders_of(folder: Path) -> Path:
    """Where the orders are of the worker whose first trial has this folder."""
    return folder.with_name(folder.name + ORDERS)
