"""The wide stage alone, with more and fewer hidden units, and what pairs of units can do by themselves.

The plan is in README.md.

    python lab/2026-11-29-why-wide/why.py    # adds arms that why-vectors.csv lacks; why-inside.csv has that of eight

Axes: L live seed, W pair of units, P entry of θ, A answer position, B problem.
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.plans import load_plan
from lab.scripts.table_file import append, read
from model.families.split_subspace import SplitSubspace
from model.parts import only
from model.presets import preset
from trainer import Bank, Pair, Recipe, Seed
from trainer.bank.bank import IDLE
from trainer.data.hard_examples import is_right
from trainer.data.problems import selection
from trainer.recipe.stages import road_of
from trainer.step.objective import answer_logits
from trainer.step.step import tokens_of

HERE = Path(__file__).parent
VECTORS, INSIDE = HERE / "why-vectors.csv", HERE / "why-inside.csv"
UNITS = (2, 3, 4, 6, 8, 12, 16)
OPENED = 8
"""Hidden units of the arm in which every pair is looked at."""
SEEDS = range(991_001, 991_129)
EARLY = 3_000


def wide_recipe() -> Recipe:
    """Return the recipe of 57p-wide's first stage."""
    whole: Recipe = load_plan("57p-wide").listed[0][1]
    return road_of(whole)[0].recipe


def train(units: int) -> tuple[Bank, Watch | None]:
    """Train an arm to its end. Return its bank, and what its pairs of units could do, if it is the one looked at."""
    spec = replace(preset("67p"), hidden=units)
    recipe = wide_recipe()
    bank = Bank(spec, [Pair(recipe, Seed.of(seed)) for seed in SEEDS])
    watch = Watch(spec, bank) if units == OPENED else None
    while bank.advance():
        if watch:
            watch.look()
    return bank, watch


@dataclass
class Watch:
    """What each pair of hidden units of live seeds gets right at each evaluation, the other units set to 0."""

    spec: SplitSubspace
    bank: Bank
    early: dict[int, dict[str, float]] = field(default_factory=dict)
    """Probes at step EARLY, by seed."""
    seen: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """One row per evaluation, by seed: step, and for each pair its loss, token accuracy and exact match."""

    def __post_init__(self) -> None:
        kept = [only(self.spec, "units", pair) for pair in pairs_of_units(self.spec)]
        self.is_kept_WP = torch.tensor(kept) != 0

    def look(self) -> None:
        """Look at the seeds that train on, and at those that have just ended."""
        bank = self.bank
        thetas: dict[int, Tensor] = {}
        for slot, number in enumerate(bank.pair_S.tolist()):
            if number != IDLE:
                thetas[number] = bank.state["theta"][slot]
        rows = bank.newest()
        for number, row in enumerate(rows):
            has_ended_now = number not in thetas and (
                number not in self.seen or self.seen[number][-1]["step"] < row["step"]
            )
            if has_ended_now:
                thetas[number] = bank.result(number).theta_P
        for number, theta_P in thetas.items():
            step = rows[number]["step"]
            measured = bank.backend.evaluate(theta_P * self.is_kept_WP)
            row = {"step": step, **{name: measured[name].tolist() for name in ("loss", "token", "exact")}}
            self.seen.setdefault(number, []).append(row)
            if step == EARLY:
                self.early[number] = probes(self.spec, theta_P)


def pairs_of_units(spec: SplitSubspace) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(spec.hidden), 2))


def probes(spec: SplitSubspace, theta_P: Tensor) -> dict[str, float]:
    read_R = spec.read(theta_P[None])[0].tolist()
    return dict(zip(spec.probes(), read_R, strict=True))


def wrong_by_digit(spec: SplitSubspace, theta_P: Tensor) -> list[float]:
    """Return the share of the selection problems in which each digit of the answer is wrong, units first."""
    tokens_1TB = tokens_of(spec, *selection())
    with torch.no_grad():
        logits = answer_logits(spec, theta_P[None], tokens_1TB)
    right_1AB = is_right(logits, tokens_1TB[:, spec.prompt :], spec.task.answers)
    return (~right_1AB[0]).float().mean(1).tolist()


def vector_rows(units: int, bank: Bank, watch: Watch | None, core_s: float) -> list[dict[str, Any]]:
    """Return one row per seed of an arm."""
    rows = []
    for n, seed in enumerate(SEEDS):
        its = bank.result(n)
        end = probes(bank.spec, its.theta_P)
        early = watch.early.get(n, {}) if watch else {}
        rows.append(
            {
                "units": units, "init_seed": seed, "data_seed": seed, "outcome": its.outcome.value,
                "grok_step": its.grok_step or "", "steps": its.steps, "best_exact": f"{its.best_exact:.6g}",
                "best_token": f"{its.best_token:.6g}", "odd": f"{end['odd']:.4g}", "switches": f"{end['switches']:.6g}",
                "odd_early": f"{early['odd']:.4g}" if early else "",
                "wrong": " ".join(f"{share:.3g}" for share in wrong_by_digit(bank.spec, its.theta_P)),
                "core_s": f"{core_s / len(SEEDS):.3g}",
            }
        )  # fmt: skip
    return rows


def inside_rows(bank: Bank, watch: Watch) -> list[dict[str, Any]]:
    """Return one row per seed and evaluation: its best pair, and the pair that is best in the end."""
    rows, pairs = [], pairs_of_units(watch.spec)
    for n, seed in enumerate(SEEDS):
        looks = watch.seen[n]
        inner = min(range(len(pairs)), key=looks[-1]["loss"].__getitem__)
        for look in looks:
            ranked = sorted(range(len(pairs)), key=look["loss"].__getitem__)
            best = ranked[0]
            rows.append(
                {
                    "init_seed": seed, "step": look["step"], "best": "-".join(map(str, pairs[best])),
                    "rank_of_inner": ranked.index(inner) + 1, "loss": f"{look['loss'][best]:.4g}",
                    "token": f"{max(look['token']):.4g}", "exact": f"{max(look['exact']):.4g}",
                }
            )  # fmt: skip
    return rows


def main() -> None:
    torch.set_num_threads(1)
    there = {int(row["units"]) for row in read(VECTORS)}
    for units in UNITS:
        if units in there:
            continue
        print(time.strftime("%H:%M:%S"), units, "units", flush=True)
        start = time.process_time()
        bank, watch = train(units)
        rows = vector_rows(units, bank, watch, time.process_time() - start)
        if watch:
            INSIDE.unlink(missing_ok=True)
            append(INSIDE, inside_rows(bank, watch))
        append(VECTORS, rows)


if __name__ == "__main__":
    sys.exit(main())
