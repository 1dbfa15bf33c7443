"""Do the samplers find a planted optimum sooner than chance? A trainable with known answers, no training.

    python lab/scripts/sampling.py [--repetitions N] [--json FILE]

Two searches through search.kinds.proposals, objective and all; results of 16 seeds a configuration are drawn at
random from known probabilities, a configuration's seeds are told when all of them have ended, in random
order, and a quarter of the proposals are in training at any time, the most that search.run.planner allows:

recipe        the grok rate is a smooth function of learning rate, weight decay, carry mix and fade length,
              highest (a half) at a planted point. Found: the proposal after which the best true rate so far
              is 80 % of that.
architecture  each constraint has its price in grok rate, some none, some all of it. Covered: the area below
              the front of true rates over parameters, of the area that the best possible front has.

A sampler is ahead of chance if it finds the planted optimum in more repetitions than random proposals do,
and covers more in most repetitions.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

from search.kinds.proposals import Proposals
from search.stats.record import SeedRecord
from search.store.study_records import StudyRecords
from search.study.file import parse_study
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import Outcome

SEEDS, PEAK, NEAR = 16, 0.5, 0.8
REPETITIONS = 20
SAMPLERS = ("random", "qmc", "tpe", "nsga2")

RECIPE = """
name: recipe
model: 57p
seeds: {first: 1, count: 16}
space:
  recipe.lr: {float: [0.001, 0.1], log: true}
  recipe.weight_decay: {float: [0.0001, 0.1], log: true}
  recipe.carry_mix: {float: [0, 1]}
  recipe.fade_end: {int: [0, 40000], after: recipe.fade_start}
"""
ARCHITECTURE = """
name: architecture
model: 74p
seeds: {first: 1, count: 16}
space:
  model.qk_dim: {choice: [3, 4, 5, 6]}
  model.shared_norm: {choice: [false, true]}
  model.tie_vo: {choice: [false, true]}
  model.no_ffn_bias: {choice: [false, true]}
  model.circular: {choice: [false, true]}
  model.tie_fc2_head: {choice: [false, true]}
  model.frozen_plus: {choice: [false, true]}
  recipe.lr: {float: [0.001, 0.1], log: true}
"""
PRICES = {
    "shared_norm": 0.2, "tie_vo": 3.0, "no_ffn_bias": 0.0, "circular": 0.7, "tie_fc2_head": 1.2,
    "frozen_plus": 0.1,
}  # fmt: skip
"""What a constraint takes from the log-odds."""


@dataclass(frozen=True)
class Problem:
    """A search with known answers. `planned`: proposals; `rate`: a configuration's true grok rate."""

    text: str
    planned: int
    rate: Callable[[Configuration], float]

    def study(self, sampler: str, seed: int) -> Study:
        sampler_text = f"sampler: {{name: {sampler}, configurations: {self.planned}, seed: {seed}}}\n"
        return parse_study(self.text + sampler_text, "benchmark")


def recipe_rate(configuration: Configuration) -> float:
    """Half of the seeds at the planted point, falling with the squared distance from it."""
    recipe = configuration.recipe
    away = (
        math.log(recipe.lr / 0.012) / math.log(3),
        math.log(recipe.weight_decay / 0.003) / math.log(8),
        (recipe.carry_mix - 0.7) / 0.3,
        (recipe.fade_end - recipe.fade_start - 26_000) / 12_000,
    )
    return PEAK * math.exp(-sum(z * z for z in away) / 2)


def architecture_rate(configuration: Configuration) -> float:
    """The log-odds are the sum of what was paid; the learning rate must fit."""
    spec = configuration.spec.as_dict()
    paid = sum(price for name, price in PRICES.items() if spec[name]) + 1.2 * (6 - spec["qk_dim"]) ** 0.5
    away = math.log(configuration.recipe.lr / 0.02) / math.log(3)
    return 1 / (1 + math.exp(paid - 2)) * math.exp(-away * away / 2)


PROBLEMS = {
    "recipe": Problem(RECIPE, 60, recipe_rate),
    "architecture": Problem(ARCHITECTURE, 60, architecture_rate),
}


class Memory:
    """A study's records in memory, with the methods that a search calls."""

    def __init__(self) -> None:
        self.proposed: list[dict[str, Any]] = []
        self.known: dict[str, Configuration] = {}
        self.recorded: list[SeedRecord] = []

    def create_proposal(self, number: int, configuration: Configuration | None, numbers: Mapping[str, Any]) -> None:
        assert number == len(self.proposed)
        key = configuration and configuration.key
        self.proposed.append({"number": number, "configuration": key, "numbers": dict(numbers)})
        if configuration:
            self.known.setdefault(configuration.key, configuration)

    def list_proposals(self) -> list[dict[str, Any]]:
        return list(self.proposed)

    def list_configurations(self) -> dict[str, Configuration]:
        return dict(self.known)

    def list_seeds(self) -> list[SeedRecord]:
        return list(self.recorded)


def search(problem: Problem, sampler: str, seed: int) -> list[Configuration]:
    """Run a whole search in memory. Returns its configurations as they were proposed."""
    proposals = Proposals(problem.study(sampler, seed), cast(StudyRecords, Memory()))
    rng = random.Random(seed)
    proposed: list[Configuration] = []
    training: list[Configuration] = []
    while True:
        while len(training) < problem.planned // 4 and (configuration := proposals.ask()) is not None:
            proposed.append(configuration)
            if configuration not in training:  # a repeated proposal shares the result
                training.append(configuration)
        if not training:
            return proposed
        done = training.pop(rng.randrange(len(training)))
        proposals.tell(done, _trained(done, problem.rate(done), rng))


def _trained(configuration: Configuration, rate: float, rng: random.Random) -> list[SeedRecord]:
    """Rows of seeds that grok with a probability; how far the others got rises with it, and is noisy."""
    rows: list[SeedRecord] = []
    for _ in range(SEEDS):
        grokked = rng.random() < rate
        token = 1.0 if grokked else min(max(rng.gauss(0.3 + 0.5 * math.sqrt(rate), 0.1), 0.1), 0.99)
        step = rng.randrange(20_000, configuration.recipe.steps) if grokked else None
        outcome = Outcome.GROKKED if grokked else Outcome.FAILED
        rows.append(SeedRecord(outcome=outcome, best_token=token, grok_step=step))
    return rows


def found_after(rates: Iterable[float]) -> int | None:
    """Return the proposals until the first near the planted optimum; None if there was none."""
    return next((i for i, rate in enumerate(rates, 1) if rate >= NEAR * PEAK), None)


def covered(points: Sequence[tuple[int, float]], largest: int) -> float:
    """The area below the front: for each count of parameters up to `most`, the best rate with as few."""
    return sum(max((rate for params, rate in points if params <= n), default=0.0) for n in range(largest + 1))


def possible(problem: Problem) -> list[tuple[int, float]]:
    """Parameters and true rates of every architecture with the learning rate that suits it."""
    space = problem.study("random", 0).space
    fields = {path: d.choice for path, d in space.items() if d.choice is not None}
    study = problem.study("random", 0)
    every = (dict(zip(fields, values, strict=True)) for values in product(*fields.values()))
    configurations = (Configuration(*study.configuration({**v, "recipe.lr": 0.02})) for v in every)
    return [(c.spec.params, problem.rate(c)) for c in configurations]


def measure(sampler: str, repetitions: int = REPETITIONS) -> dict[str, list[Any]]:
    """Per repetition: proposals until found (None: never), and the share of the possible area covered."""
    recipe, architecture = PROBLEMS["recipe"], PROBLEMS["architecture"]
    best = possible(architecture)
    largest = max(params for params, _ in best)
    proposals_needed, shares = [], []
    for seed in range(repetitions):
        proposals_needed.append(found_after(map(recipe.rate, search(recipe, sampler, 1_000 * seed))))
        points = [(c.spec.params, architecture.rate(c)) for c in search(architecture, sampler, 1_000 * seed)]
        shares.append(covered(points, largest) / covered(best, largest))
    return {"found": proposals_needed, "covered": shares}


def report(repetitions: int) -> dict[str, Any]:
    results = {name: measure(name, repetitions) for name in SAMPLERS}
    chance = results["random"]["covered"]
    print(f"{'sampler':10}{'found':>8}{'median':>8}{'covered':>9}{'ahead':>8}   of {repetitions} repetitions")
    for name, result in results.items():
        after = sorted(n for n in result["found"] if n is not None)
        median = str(after[len(after) // 2]) if after else "-"
        mean = sum(result["covered"]) / repetitions
        ahead = sum(a > b for a, b in zip(result["covered"], chance, strict=True))
        print(f"{name:10}{len(after):8}{median:>8}{mean:9.3f}{ahead:8}")
    return results


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)
    if args.json and not args.json.parent.is_dir():
        print(f"error: {args.json}: no such folder", file=sys.stderr)
        sys.exit(2)
    result = report(args.repetitions)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
