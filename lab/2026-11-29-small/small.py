"""Wide first, then as small as is known: 57 numbers in one run, and from each of these nets into smaller forms.

The plan is in README.md. A branch of the road begins where 57p-wide's ends, with the net that it hands on. So its bits
are those of one study with the stages of both.

    python lab/2026-11-29-small/small.py FOLDER    # goes on with what FOLDER has; writes both tables

Axes: P entry of θ.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lab.banks import go_on, save
from lab.plans import load_plan
from model import verify
from trainer import Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.outcomes import Outcome, as_measured
from trainer.recipe.passed import passed
from trainer.recipe.stages import end_of, road_of
from trainer.road import RoadBank
from trainer.road.traveller import Leg, Net, Traveller

HERE = Path(__file__).parent
CERTIFICATES = HERE.parent / "certificates"
SEEDS = range(992_001, 992_065)
SAVED_S = 60.0
TO_57: Recipe = load_plan("57p-wide").listed[0][1]
PLAIN = {
    "lr": 0.005, "lr_floor": 0.1, "beta2": 0.999, "weight_decay": 0.0, "mixed_lengths": 0.0, "lr_factors": [],
    "carry_mix": 0.3, "warmup": 200,
}  # fmt: skip
"""The recipe by which a grokked net goes into ties, as in one_run.py."""


def into(form: str, steps: int, finish_above: float = 1.0) -> dict[str, Any]:
    """Return a stage into a certificate's form, in every way, and once more in twice the steps."""
    spec = Checkpoint.load(CERTIFICATES / form).spec
    return {
        "name": form, "model": spec.as_dict()["base"], "into": spec.as_dict(), "tries": 8, "longer_tries": 8,
        "recipe": {
            **PLAIN, "steps": steps, "ramp": steps // 2, "fade_start": steps, "fade_end": steps,
            "finish_above": finish_above,
        },
        "longer": {"steps": 2 * steps, "ramp": steps, "fade_start": 2 * steps, "fade_end": 2 * steps},
    }  # fmt: skip


BRANCHES = {
    "7": [into("7p", 36_000)],
    "6": [into("7p", 36_000), into("6p", 24_000)],
    "28": [into("34p-generic", 24_000), into("28p", 24_000)],
    "10": [
        into("15p-777", 36_000, 0.5),
        into("14p", 12_000, 0.5),
        into("13p", 24_000, 0.5),
        into("10p-inside", 24_000, 0.5),
    ],
}
"""Stages behind those of 57p-wide, by name."""


@cache
def recipe_of(branch: str) -> Recipe:
    """Return the recipe of one study with the stages of 57p-wide and of a branch."""
    return dataclasses.replace(TO_57, steps=8_000_000, stages=(*TO_57.stages, *BRANCHES.get(branch, ())))


def travel(folder: Path, branch: str) -> RoadBank:
    """Train all vectors to a branch's end, or go on where they were. A branch without stages ends at 57 numbers."""
    recipe = recipe_of(branch)
    bank = RoadBank(end_of(road_of(recipe)), [Pair(recipe, Seed.of(seed)) for seed in SEEDS])
    state, begun = folder / f"{branch}.bank", time.monotonic()
    if not go_on(bank, state) and branch in BRANCHES:
        enter(bank, travel(folder, "57"))
    while bank.advance():
        if time.monotonic() - begun > SAVED_S:
            save(bank, state)
            begun = time.monotonic()
    save(bank, state)
    return bank


def enter(bank: RoadBank, before: RoadBank) -> None:
    """Set the vectors of a branch to where 57p-wide left them."""
    bank._withdraw(bank.travellers)
    for traveller, arrived in zip(bank.travellers, before.travellers, strict=True):
        hand_over(traveller, arrived)
        enough = as_measured(traveller.stage.enough)
        if arrived.is_last_stage and arrived.best and arrived.best.score >= enough:
            traveller.go_on(bank._losses)
        else:
            traveller.outcome = Outcome.FAILED
    bank._depart([traveller for traveller in bank.travellers if traveller.outcome is None])


def hand_over(traveller: Traveller, arrived: Traveller) -> None:
    """Give a traveller of the same seed all that another has, at the end of its road."""
    traveller.spent, traveller.counts, traveller.grokked = (
        list(numbers) for numbers in (arrived.spent, arrived.counts, arrived.grokked)
    )
    nets: list[Net] = arrived.nets
    traveller.nets, traveller.incoming = [], list(arrived.incoming)
    traveller.leg = Leg(arrived.leg.stage, True, arrived.leg.tries, arrived.leg.before, dict(enumerate(nets)))


def rows_of(branch: str, bank: RoadBank, core_s: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return one row per vector of a branch, and θ of those that grokked at its end."""
    rows, nets = [], []
    for n, seed in enumerate(SEEDS):
        its = bank.result(n)
        has_grokked = its.outcome == Outcome.GROKKED
        reached = [stage.stage for stage in passed(its.stages) if stage.grokked]
        rows.append(
            {
                "branch": branch, "init_seed": seed, "data_seed": seed, "outcome": its.outcome.value,
                "stages": its.stages, "grokked_at": " / ".join(reached), "steps": its.steps,
                "best_exact": f"{its.best_exact:.6g}", "core_s": f"{core_s / len(SEEDS):.3g}",
                "correct": verify(bank.spec, its.theta_P).correct if has_grokked else "",
            }
        )  # fmt: skip
        if has_grokked:
            nets.append({"branch": branch, "init_seed": seed, "theta": its.theta_P.tolist()})
    return rows, nets


def main(folder: str) -> None:
    torch.set_num_threads(1)
    Path(folder).mkdir(parents=True, exist_ok=True)
    rows, nets = [], []
    for branch in ("57", *BRANCHES):
        print(time.strftime("%H:%M:%S"), branch, flush=True)
        part = Path(folder) / f"{branch}.json"
        if not part.exists():
            start = time.process_time()
            bank = travel(Path(folder), branch)
            part.write_text(json.dumps(rows_of(branch, bank, time.process_time() - start)))
        its_rows, its_nets = json.loads(part.read_text())
        rows += its_rows
        nets += its_nets
        pd.DataFrame(rows).to_csv(HERE / "small-vectors.csv", index=False)
        pd.DataFrame(nets).to_parquet(HERE / "small-nets.parquet", index=False)


if __name__ == "__main__":
    main(sys.argv[1])
