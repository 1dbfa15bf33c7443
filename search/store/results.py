"""The files between worker and driver: results of a trial one way, a worker's assignment the other way.

The results of one configuration's seeds of a trial are a part. A worker leaves a trial's parts in its folder,
on disk, all of them or none. The driver reads each once and records it in the ledger; then the folder goes. A part
that cannot be read is set aside, and its seeds are trained again.
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

from search.errors import Failure, one_line
from search.store.record import MEASURED, SeedKey
from search.study.trial import TRIAL_FILE, Configuration, Trial
from trainer import MEASURES, Outcome, Result, Seed
from trainer.files import durable

if TYPE_CHECKING:
    import pandas as pd

STATE, PARTS, ERROR, LOCK = "bank.state", "results", "error.txt", "lock"
"""Names in a trial's folder: its bank's state, its parts, the reason of its failure, its worker's lock."""
THETA, CURVES, RESULTS = "theta.safetensors", "curves.parquet", "results.json"
REASON = "reason.txt"
"""Name of the file beside parts that were set aside, with the reason."""
CUT, ASSIGNMENT = "cut.json", ".assignment"
"""Name of the file with the steps of seeds that were cut; suffix of a worker's assignment."""
WHO = ["configuration", "init_seed", "data_seed"]
FACTS = ("outcome", *MEASURED)


class Damaged(Failure):
    """Results that cannot be read: cut off, empty, changed or gone."""


@dataclass(frozen=True)
class ConfigurationResults:
    """The results of one configuration's seeds of a trial: a part."""

    trial: Trial
    results: list[Result]
    about: dict[str, Any]

    @property
    def configuration(self) -> Configuration:
        return self.trial.configurations[0]

    @cached_property
    def by_seed(self) -> dict[Seed, Result]:
        return {r.pair.seed: r for r in self.results}

    def columns(self) -> Iterator[tuple[Result, dict[str, Any]]]:
        """Yield each result with the ledger's columns of what became of its seed."""
        rate, environment = self.about["seed_steps_per_s"], self.about["environment"]
        threads = environment.get("threads", 1) if environment.get("engine") == "native" else None
        for r in self.results:
            yield (
                r,
                {
                    **{name: getattr(r, name) for name in MEASURED},
                    "outcome": r.outcome.value,
                    # None unless the C++ engine trained it
                    "core_s": r.steps / rate * threads if rate and threads else None,
                    "seed_steps_per_s": rate,
                    "environment": environment,
                },
            )

    def write(self, folder: Path) -> None:
        """Write θ [N, P], curves and facts to a folder. `durable.move_in` syncs it."""
        import torch
        from safetensors.torch import save

        names = {"configuration": self.configuration.key}
        seeds = [
            {name: getattr(r, name) for name in FACTS} | names | dataclasses.asdict(r.pair.seed) for r in self.results
        ]
        files = {
            THETA: save({"theta": torch.stack([r.theta_P for r in self.results])}),
            CURVES: curve_table(self.configuration, self.results).to_parquet(index=False),
        }
        facts = self.about | {"seeds": seeds, "sha256": {name: _digest(files[name]) for name in files}}
        folder.mkdir(parents=True)
        files |= {RESULTS: json.dumps(facts).encode(), TRIAL_FILE: self.trial.as_json()}
        for name, data in files.items():
            (folder / name).write_bytes(data)

    @classmethod
    def read(cls, folder: Path) -> ConfigurationResults:
        """Read what `write` wrote. Raises Damaged for any file that cannot be read."""
        with _readable(folder):
            return cls._read(folder)

    @classmethod
    def _read(cls, folder: Path) -> ConfigurationResults:
        import pandas as pd
        import torch
        from safetensors.torch import load

        trial = Trial.read(folder)
        about = json.loads((folder / RESULTS).read_bytes())
        files = {name: (folder / name).read_bytes() for name in (THETA, CURVES)}
        for name, digest in about.pop("sha256").items():
            if _digest(files[name]) != digest:
                raise ValueError(f"{name} is not what was written")
        theta = load(files[THETA])["theta"]
        table = pd.read_parquet(io.BytesIO(files[CURVES]))
        probes = [name for name in trial.spec.probes() if name in table]
        rows = torch.tensor(table[[*MEASURES, *probes]].to_numpy(), dtype=torch.float32)
        places = table.groupby(WHO, sort=False).indices
        results = []
        for n, (pair, seed) in enumerate(zip(trial.pairs, about.pop("seeds"), strict=True)):
            curve = rows[places[tuple(seed[name] for name in WHO)]]
            facts = {name: seed[name] for name in FACTS if name in seed}  # earlier parts lack later columns
            facts["outcome"] = Outcome(seed["outcome"])
            curve_EM, probes_ER = curve.split([len(MEASURES), len(probes)], dim=1)
            results.append(Result(pair=pair, theta_P=theta[n], curve_EM=curve_EM, probes_ER=probes_ER, **facts))
        return cls(trial, results, about)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Re-raise whatever a block raises as Damaged: damaged files of three formats raise anything."""
    try:
        yield
    except Exception as error:
        line = one_line(error)
        raise Damaged(f"results in {folder} cannot be read ({type(error).__name__}: {line})") from None


def curve_table(configuration: Configuration, results: list[Result]) -> pd.DataFrame:
    """Return a row for each evaluation of a seed: configuration, init_seed, data_seed, step, MEASURES, probes."""
    import numpy as np
    import pandas as pd

    counts = [len(r.curve_EM) for r in results]
    curves = np.concatenate([r.curve_EM.numpy() for r in results])
    evaluation = np.concatenate([np.arange(1, count + 1) for count in counts])
    who = {
        "configuration": np.repeat(configuration.key, len(curves)),
        "init_seed": np.repeat([r.pair.seed.init_seed for r in results], counts),
        "data_seed": np.repeat([r.pair.seed.data_seed for r in results], counts),
        "step": evaluation * configuration.recipe.eval_every,
    }
    width = max(r.probes_ER.shape[1] for r in results)
    read = np.full((len(curves), width), np.nan, dtype=np.float32)
    ends = np.cumsum(counts)
    for r, end in zip(results, ends, strict=True) if width else ():
        read[end - len(r.curve_EM) : end, : r.probes_ER.shape[1]] = r.probes_ER.numpy()
    names = (*MEASURES, *list(configuration.spec.probes())[:width])
    return pd.DataFrame(who | dict(zip(names, (*curves.T, *read.T), strict=True)))


def write_parts(folder: Path, parts: Iterable[ConfigurationResults], cut: Mapping[SeedKey, int] | None = None) -> None:
    """Write a trial's parts to its folder, on disk: whole or not at all. cut: steps of the seeds in none."""
    fresh = folder / (PARTS + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for part in parts:
        part.write(fresh / part.configuration.key)
    if cut:
        durable.write(fresh / CUT, json.dumps([[*key, steps] for key, steps in cut.items()]).encode())
    durable.move_in(fresh, folder / PARTS)


def has_parts(folder: Path) -> bool:
    """True if a trial has ended by itself."""
    return (folder / PARTS).exists()


def read_parts(folder: Path) -> list[ConfigurationResults]:
    """Read what `write_parts` wrote; nothing if the trial has not ended. Raises Damaged if a part is lost or cut."""
    if not has_parts(folder):
        return []
    with _readable(folder):
        trial, cut = Trial.read(folder), read_cut(folder)
        ended = dict.fromkeys(c for c, s in trial.work if (c.key, s.init_seed, s.data_seed) not in cut)
    return [ConfigurationResults.read(folder / PARTS / c.key) for c in ended]


def read_cut(folder: Path) -> dict[SeedKey, int]:
    """Read the steps of the seeds that were ended from outside, as `write_parts` wrote them."""
    file = folder / PARTS / CUT
    listed = json.loads(file.read_bytes()) if file.exists() else []
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
class WorkerAssignment:
    """The trials that a driver gives a worker.

    `enough`: configurations that need no more seeds. `wait_s`: seconds that it waits without work until it
    reports again (0: it ends). `apart_s`: seconds between reports without news.

    The worker reads it when it starts and between evaluations, so a trial can follow another one in its slots,
    and a process that was started again knows its trials. It is not synced: a power cut ends the worker too.
    """

    trials: tuple[str, ...]
    enough: tuple[str, ...] = ()
    wait_s: float = 0.0
    apart_s: float = 0.0

    def write(self, folder: Path) -> None:
        """Write it for the worker whose first trial has this folder."""
        place = assignment_path(folder)
        fresh = place.with_name(place.name + ".new")
        fresh.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")
        fresh.replace(place)

    @classmethod
    def read(cls, folder: Path) -> WorkerAssignment:
        """Read the assignment of the worker whose first trial has this folder: without a file, that trial alone."""
        if not assignment_path(folder).exists():
            return cls((folder.name,))
        fields = json.loads(assignment_path(folder).read_bytes())
        return cls(tuple(fields["trials"]), tuple(fields["enough"]), fields["wait_s"], fields["apart_s"])


def assignment_path(folder: Path) -> Path:
    """Return the file with the assignment of the worker whose first trial has this folder."""
    return folder.with_name(folder.name + ASSIGNMENT)
