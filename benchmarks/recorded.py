"""Complete runs as studies recorded them: what benchmarks.stopping replays.

Files are read as they lie, without `search`: old records lack fields that new ones have.

Axes: E evaluation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from trainer.outcomes import MEASURES
from trainer.recipe import Seed
from trainer.stopping.hopeless import full_length_from

COMPLETE = ("grokked", "failed", "diverged")
TRIAL, RESULTS, CURVES = "trial.json", "results.json", "curves.parquet"
WHO = ["configuration", "init_seed", "data_seed"]
NO_PROBES = {*WHO, "step", *MEASURES}


@dataclass(frozen=True, eq=False)
class Run:
    """A seed that ended by itself. Steps count training steps; `steps` are those it ran, of `budget`."""

    study: str
    configuration: str
    seed: Seed
    budget: int
    taught: int
    """The step from which it met ten-digit numbers."""
    steps: int
    grok_step: int | None
    step_E: np.ndarray
    exact_E: np.ndarray
    """Best exact match so far (float32), like token_E."""
    token_E: np.ndarray
    probes: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What each probe read at each evaluation; none in records of before."""

    @property
    def grokked(self) -> bool:
        return self.grok_step is not None

    @property
    def open_until(self) -> int:
        """The evaluation that decided the seed: from it on no rule is asked."""
        return self.steps if self.grok_step is None else self.grok_step


def read(paths: Sequence[Path]) -> tuple[list[Run], dict[str, int]]:
    """Every complete run below the folders, once each, and how many others there are by outcome.

    Raises ValueError naming the path if there is none, or a file that cannot be read.
    """
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"{path}: no such folder")
    runs: dict[tuple[str, str, Seed], Run] = {}
    others: dict[tuple[str, str, Seed], str] = {}
    for folder in _trials(paths):
        try:
            for who, outcome, run in _runs_of(folder):
                if run is None:
                    others[who] = outcome
                else:
                    runs.setdefault(who, run)
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ValueError(f"{folder}: not a trial's records ({type(error).__name__}: {error})") from None
    if not runs:
        wanted = f"{CURVES} beside {RESULTS} and {TRIAL}, outcomes {', '.join(COMPLETE)}"
        raise ValueError(f"{', '.join(map(str, paths))}: no complete runs below ({wanted})")
    return list(runs.values()), dict(Counter(o for who, o in others.items() if who not in runs))


def _trials(paths: Sequence[Path]) -> list[Path]:
    """Folders with all three files, sorted, so that the order of what is read does not depend on the disk."""
    found = {curves.parent for path in paths for curves in path.rglob(CURVES)}
    return sorted(f for f in found if (f / RESULTS).is_file() and (f / TRIAL).is_file())


def _runs_of(folder: Path) -> Iterator[tuple[tuple[str, str, Seed], str, Run | None]]:
    """Who, outcome and, if it is complete, the run, of every seed of a trial."""
    trial = json.loads((folder / TRIAL).read_text())
    curves = pd.read_parquet(folder / CURVES)
    by_seed = {who: table.sort_values("step") for who, table in curves.groupby(WHO)}
    results = json.loads((folder / RESULTS).read_text())["seeds"]
    for (key, *numbers), result in zip(_pairs(trial, curves), results, strict=True):
        seed, outcome = Seed(*numbers), result["outcome"]
        who, run = (trial["study"], key, seed), None
        if outcome in COMPLETE:
            recipe = trial["recipes"][key] if "recipes" in trial else trial["recipe"]
            run = _run(who, recipe, result, by_seed[(key, *numbers)])
        yield who, outcome, run


def _pairs(trial: dict[str, Any], curves: pd.DataFrame) -> list[list[Any]]:
    """[configuration, init_seed, data_seed] of every seed. The first records held one configuration each."""
    if "pairs" in trial:
        return trial["pairs"]
    return [[curves["configuration"].iloc[0], *seed] for seed in trial["seeds"]]


def _run(who: tuple[str, str, Seed], recipe: dict[str, Any], result: dict[str, Any], table: pd.DataFrame) -> Run:
    return Run(
        *who,
        budget=recipe["steps"],
        taught=full_length_from(recipe["curriculum"]),
        steps=result["steps"],
        grok_step=result["grok_step"] if result["outcome"] == "grokked" else None,
        step_E=table["step"].to_numpy(dtype=np.int64, copy=True),
        # a diverged seed's measures are no numbers, and no new best
        exact_E=np.fmax.accumulate(table["exact"].to_numpy(dtype=np.float32, copy=True)),
        token_E=np.fmax.accumulate(table["token"].to_numpy(dtype=np.float32, copy=True)),
        probes={name: table[name].to_numpy(copy=True) for name in table if name not in NO_PROBES},
    )
