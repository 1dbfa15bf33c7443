"""Trained wide, narrowed in one run: a 57p from one initial vector by way of a net with more hidden units.

The plan is in README.md. A seed's number is that of its initial vector and of its stream of problems, through all
stages. Stages of an arm, each of all seeds that reach it:

1. `wide`: 67p with the arm's hidden units, by 57p-longer's recipe for 60,000 steps, without restarts, recycling and
   screen. Whatever has not grokked trains as long once more from its best θ: `wide again`.
2. `two`: all units but two go to zero by a ramp (an arm with two units leaves this out). Of the pairs the three whose
   net has the least loss on selection problems when the others are cut. Where none groks, `two, long`: the eight best,
   in more steps.
3. `tied`: fc2 goes into headᵀ by a ramp, with either of the two units first; from the first pair that grokked. Where
   none groks, `tied, long`: from all pairs that grokked, in more steps.

A stage hands on the first of its tries that grokked. Where none did, it hands on the best one if that gets ENOUGH of
the selection problems right. Otherwise the vector is lost there.

    python lab/2026-11-28-wide/road.py FOLDER FIRST COUNT ARM ...    # goes on with what FOLDER has
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.banks import go_on, save
from lab.plans import load_plan
from model import preset
from model.families.split_subspace import SplitSubspace
from model.tied import Ties, constrained
from trainer import Bank, Pair, Recipe, Seed
from trainer.data.problems import selection
from trainer.step import step

ENOUGH = 0.95
RANKING_PROBLEMS = 1_000
SAVED_S = 60.0
NARROW = preset("67p")
LONGER: Recipe = load_plan("57p-longer").listed[0][1]
PUBLISHED: Recipe = load_plan("57p").listed[0][1]
OPTIMISER = ("lr", "lr_floor", "warmup", "beta2", "weight_decay", "wd_drop", "wd_drop_token")
CARRY = ("carry_shares", "carry_mix", "fade_start", "fade_end")
AGAIN = ("recycle_every", "recycle_until", "recycle_unless", "again_at", "again_unless", "again_most")


def narrowing(steps: int) -> Recipe:
    """Return the recipe by which a trained net goes into ties: half of its steps are the ramp."""
    ramp = steps // 2
    return Recipe(
        steps=steps, ramp=ramp, eval_every=1_000, hold=0, lr=0.01, lr_floor=0.02, warmup=200, beta2=0.95,
        weight_decay=0.0, carry_mix=0.3, fade_start=ramp, fade_end=ramp + 4_000, curriculum=(), mixed_lengths=0.13,
        lr_factors=LONGER.lr_factors,
    )  # fmt: skip


def taken(recipe: Recipe, names: Iterable[str]) -> dict[str, Any]:
    """Return some of a recipe's fields."""
    return {name: getattr(recipe, name) for name in names}


@dataclasses.dataclass(frozen=True)
class Arm:
    """What an arm changes. wide: fields of the wide stage's recipe; all_stages: of every stage's."""

    hidden: int = 8
    wide: dict[str, Any] = dataclasses.field(default_factory=dict)
    all_stages: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def spec(self) -> SplitSubspace:
        return dataclasses.replace(NARROW, hidden=self.hidden)

    def recipe(self, stage: str) -> Recipe:
        if stage.startswith("wide"):
            plain = {"steps": 60_000, **taken(PUBLISHED, AGAIN)}
            return dataclasses.replace(LONGER, **plain | self.wide | self.all_stages)
        steps = {"two": 24_000, "two, long": 60_000, "tied": 30_000, "tied, long": 60_000}
        return dataclasses.replace(narrowing(steps[stage]), **self.all_stages)


ARMS = {
    "eight": Arm(),
    "two": Arm(hidden=2),
    "four": Arm(hidden=4),
    "sixteen": Arm(hidden=16),
    "three": Arm(hidden=3),
    "eight, no start": Arm(all_stages={"init": (), "lr_factors": ()}),
    "eight, no kinds": Arm(wide=taken(PUBLISHED, CARRY)),
    "eight, published optimiser": Arm(wide=taken(PUBLISHED, OPTIMISER)),
}
"""In the order in which they are trained. The first is the plan's main one."""


@dataclasses.dataclass(frozen=True)
class Try:
    """One training of a stage. units: those of the wide net that stay, in their order; none: all."""

    seed: int
    units: tuple[int, ...] = ()
    cut_loss: float | None = None
    """Loss on selection problems of the wide net without its other units."""
    start: Tensor | None = None
    ties: Ties | None = None

    def pair(self, recipe: Recipe) -> Pair:
        start = None if self.start is None else tuple(self.start.tolist())
        return Pair(recipe, Seed.of(self.seed), start, self.ties)


@dataclasses.dataclass(frozen=True)
class Net:
    """What a try came to."""

    seed: int
    units: tuple[int, ...]
    grokked: bool
    exact: float
    theta_P: Tensor


class Road:
    """An arm's seeds through all stages. Each stage is read from its files, where they are there."""

    def __init__(self, arm: str, folder: Path, seeds: Sequence[int]):
        self.arm, self.folder, self.seeds = arm, folder / arm.replace(", ", "-").replace(" ", "-"), seeds
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def its(self) -> Arm:
        return ARMS[self.arm]

    def travel(self) -> None:
        """Train every stage, and write `vectors.csv`: where each vector ended."""
        wide, narrow = self.its.spec, NARROW
        first = self.train("wide", wide, [Try(s) for s in self.seeds])
        again = self.train("wide again", wide, [Try(n.seed, start=n.theta_P) for n in first if not n.grokked])
        nets = handed_on(first + again)
        two: list[Net] = []
        if self.its.hidden > 2:
            two = self.train("two", wide, [t for n in nets for t in pairs_of(wide, n, 3)])
            left = missing(nets, two)
            two += self.train("two, long", wide, [t for n in left for t in pairs_of(wide, n, 8)])
        else:
            two = [dataclasses.replace(n, units=(0, 1)) for n in nets]
        pairs = handed_on(two)
        tied = self.train("tied", narrow, [t for n in pairs for t in namings_of(wide, n)])
        left = missing(pairs, tied)
        begun = [n for m in left for n in two if n is m or (n.grokked and n.seed == m.seed)]
        tied += self.train("tied, long", narrow, [t for n in begun for t in namings_of(wide, n)])
        self.conclude([("wide", first + again), ("two", two), ("tied", tied)])

    def train(self, stage: str, spec: SplitSubspace, tries: Sequence[Try]) -> list[Net]:
        """Train a stage's tries to their ends, side by side, or read what they came to."""
        name = stage.replace(", ", "-").replace(" ", "-")
        table, thetas, state, clock = (
            self.folder / f"{name}{end}" for end in (".csv", ".safetensors", ".bank", ".json")
        )
        if tries and not table.exists():
            recipe = self.its.recipe(stage)
            bank = Bank(spec, [t.pair(recipe) for t in tries])
            spent = json.loads(clock.read_text())["core_s"] if go_on(bank, state) else 0.0
            spent += advance(bank, f"{self.arm}: {stage}", state, clock, spent)
            results = [bank.result(n) for n in range(len(tries))]
            for_each_step = spent / sum(r.steps for r in results)
            rows = [
                {
                    "arm": self.arm, "stage": stage, "init_seed": t.seed, "data_seed": t.seed,
                    "units": "-".join(map(str, t.units)),
                    "cut_loss": "" if t.cut_loss is None else f"{t.cut_loss:.6g}",
                    "outcome": r.outcome.value, "grok_step": r.grok_step or "", "best_step": r.best_step,
                    "best_exact": f"{r.best_exact:.6g}", "best_token": f"{r.best_token:.6g}",
                    "steps": r.steps, "core_s": f"{r.steps * for_each_step:.4g}",
                }
                for t, r in zip(tries, results, strict=True)
            ]  # fmt: skip
            save_file({"theta_NP": torch.stack([r.theta_P for r in results])}, thetas)
            half = table.with_suffix(".half")
            pd.DataFrame(rows).to_csv(half, index=False)
            half.rename(table)
            state.unlink(missing_ok=True)
        if not tries:
            return []
        rows = pd.read_csv(table, dtype={"units": str}).to_dict("records")
        theta_NP = load_file(thetas)["theta_NP"]
        assert [row["init_seed"] for row in rows] == [t.seed for t in tries]
        return [
            Net(t.seed, t.units, row["outcome"] == "grokked", row["best_exact"], theta_P)
            for t, row, theta_P in zip(tries, rows, theta_NP, strict=True)
        ]

    def conclude(self, stages: Sequence[tuple[str, list[Net]]]) -> None:
        """Write a row for each vector, with the θ of what ended as a grokked 57p beside it."""
        rows, ends = [], {}
        for seed in self.seeds:
            grokked = {name: [n for n in nets if n.seed == seed and n.grokked] for name, nets in stages}
            tried = [n for n in stages[-1][1] if n.seed == seed]
            row = {"arm": self.arm, "init_seed": seed, "data_seed": seed}
            row |= {f"{name}_grokked": bool(found) for name, found in grokked.items()}
            arrived = grokked["tied"][:1]
            row["outcome"] = "grokked" if arrived else "failed"
            row["units"] = "-".join(map(str, arrived[0].units)) if arrived else ""
            row["best_exact"] = max((n.exact for n in tried), default="")
            rows.append(row)
            ends |= {str(seed): without_fc2(n.theta_P) for n in arrived}
        if ends:
            save_file(ends, self.folder / "57p.safetensors")
        pd.DataFrame(rows).to_csv(self.folder / "vectors.csv", index=False)


def advance(bank: Bank, name: str, state: Path, clock: Path, before: float) -> float:
    """Train a bank to its end, with its state saved from time to time. Return its core-seconds since it was made.

    before: those of earlier processes. What is printed is blind to outcomes.
    """
    start, saved = time.process_time(), time.monotonic()
    print(time.strftime("%H:%M:%S"), name, len(bank.pairs), "tries", flush=True)
    while bank.advance():
        if time.monotonic() - saved > SAVED_S:
            save(bank, state)
            clock.write_text(json.dumps({"core_s": before + time.process_time() - start}))
            saved = time.monotonic()
    return time.process_time() - start


def handed_on(nets: Sequence[Net]) -> list[Net]:
    """Return each vector's net that goes on: the first that grokked, else the best one if it gets ENOUGH right."""
    chosen = []
    for seed in dict.fromkeys(n.seed for n in nets):
        its = [n for n in nets if n.seed == seed]
        best = max(its, key=lambda n: 1.0 if n.grokked else n.exact)
        chosen += [best] if best.grokked or best.exact >= ENOUGH else []
    return chosen


def missing(before: Sequence[Net], after: Sequence[Net]) -> list[Net]:
    """Return the nets whose vector has grokked in none of the tries `after`."""
    arrived = {n.seed for n in after if n.grokked}
    return [n for n in before if n.seed not in arrived]


def unit_entries(spec: SplitSubspace, unit: int) -> list[str]:
    """Return the names of a hidden unit's numbers in θ."""
    axes = range(spec.width)
    return [f"fc1[{unit},{i}]" for i in axes] + [f"fc2[{i},{unit}]" for i in axes]


def pairs_of(spec: SplitSubspace, net: Net, count: int) -> list[Try]:
    """Return tries that keep a pair of a net's hidden units: the pairs with the least loss when the others are cut."""
    pairs = list(itertools.combinations(range(spec.hidden), 2))
    place = {name: n for n, name in enumerate(spec.layout.entries())}
    theta_SP, cut = net.theta_P.repeat(len(pairs), 1), []
    for row, pair in zip(theta_SP, pairs, strict=True):
        cut.append([name for u in range(spec.hidden) if u not in pair for name in unit_entries(spec, u)])
        row[[place[name] for name in cut[-1]]] = 0
    tokens = step.tokens_of(spec, *selection(count=RANKING_PROBLEMS))
    losses = step.evaluate(spec, theta_SP, tokens)["loss"].tolist()
    best = sorted(range(len(pairs)), key=losses.__getitem__)[:count]
    return [
        Try(net.seed, pairs[n], losses[n], net.theta_P, constrained(spec, [f"{name} = 0" for name in cut[n]]))
        for n in best
    ]


def namings_of(spec: SplitSubspace, net: Net) -> list[Try]:
    """Return tries that tie fc2 to headᵀ, from a net's two units in either order."""
    axes = itertools.product(range(NARROW.width), range(2))
    ties = constrained(NARROW, [f"fc2[{i},{unit}] = head[{unit},{i}]" for i, unit in axes])
    orders = (net.units, net.units[::-1])
    return [Try(net.seed, order, None, of_units(spec, net.theta_P, order), ties) for order in orders]


def of_units(spec: SplitSubspace, theta_P: Tensor, units: Sequence[int]) -> Tensor:
    """Return θ of 67p from that of a wider net: with these of its units, in this order."""
    tensors = {name: t[0] for name, t in spec.layout.split(theta_P[None]).items()}
    chosen = list(units)
    return NARROW.layout.join({**tensors, "fc1": tensors["fc1"][chosen], "fc2": tensors["fc2"][:, chosen]})


def without_fc2(theta_P: Tensor) -> Tensor:
    """Return θ of 57p from that of a 67p in which fc2 is headᵀ."""
    tensors = {name: t[0] for name, t in NARROW.layout.split(theta_P[None]).items()}
    assert torch.equal(tensors["fc2"], tensors["head"].T)
    return preset("57p").layout.join(tensors)


def main(folder: str, first: str, count: str, *arms: str) -> None:
    for arm in arms:
        Road(arm, Path(folder), range(int(first), int(first) + int(count))).travel()
        print(time.strftime("%H:%M:%S"), arm, "ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
