"""Seeds of a study with θ kept at every evaluation: what a probe would have read, whenever it is thought of.

    python lab/scripts/paths.py STUDY FOLDER [--until STEP] [--first SEED] [--count N] [--most SECONDS]

Trains the study's configurations on its seeds, or on others that are named, without any rule that stops
seeds: each to its end, or to a step. A chunk of seeds of a configuration is one file FOLDER/KEY-FIRST.npz,
written when all of it has ended; what is there is not trained again, so the same command goes on. In it:
theta [N, E, P] (θ at each evaluation, NaN behind a seed's end), curve [N, E, M] (MEASURES), init_seed, steps,
grok_step (-1: none) and held [N].
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from search.study.file import load_study
from search.study.trial import Configuration
from trainer import Bank, Pair, Seed


class Watched(Bank):
    """A bank that keeps θ [N, E, P] of every pair at every evaluation."""

    def watch(self) -> Watched:
        evaluations = self.tracker.records["curve"].shape[1]
        self.theta_NEP = torch.full((len(self.pairs), evaluations, self.spec.params), torch.nan)
        judged = self.tracker.record_evaluation

        def take(pair_L: Any, step_L: Any, measures_LM: Any, theta_LP: Any, *rest: Any) -> Any:
            self.theta_NEP[pair_L, step_L // self.eval_every - 1] = theta_LP
            return judged(pair_L, step_L, measures_LM, theta_LP, *rest)

        self.tracker.record_evaluation = take  # type: ignore[method-assign]
        return self


def train(configuration: Configuration, seeds: list[int], until: int) -> dict[str, np.ndarray]:
    """Train seeds in one bank that has a slot for each; return θ, curves and ends."""
    pairs = [Pair(configuration.recipe, Seed.of(n)) for n in seeds]
    bank = Watched(configuration.spec, pairs).watch()
    for _ in range(until // configuration.recipe.eval_every):
        if not bank.advance():
            break
    results = [bank.result(n) for n in range(len(seeds))]
    grok = [-1 if r.grok_step is None else r.grok_step for r in results]
    last = until // configuration.recipe.eval_every
    return {
        "theta": bank.theta_NEP[:, :last].numpy(),
        "curve": bank.tracker.records["curve"][:, :last].numpy(),
        "init_seed": np.array(seeds),
        "steps": np.array([r.steps for r in results]),
        "grok_step": np.array(grok),
        "held": np.array([r.held for r in results]),
        "seconds": np.array(bank.train_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("study")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--until", type=int, help="the last step; unset: each seed to its end")
    parser.add_argument("--first", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--chunk", type=int, default=32)
    parser.add_argument("--most", type=float, default=float("inf"), help="begin no chunk after so many seconds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    study, start = load_study(args.study), time.monotonic()
    first = study.first_seeds[0].init_seed if args.first is None else args.first
    numbers = list(range(first, first + (args.count or len(study.first_seeds))))
    args.folder.mkdir(parents=True, exist_ok=True)
    for at in range(0, len(numbers), args.chunk):
        for configuration in (Configuration(*c) for c in study.listed):
            chunk = numbers[at : at + args.chunk]
            file = args.folder / f"{configuration.key}-{chunk[0]}.npz"
            if file.exists() or time.monotonic() - start > args.most:
                continue
            arrays = train(configuration, chunk, args.until or configuration.recipe.steps)
            np.savez_compressed(fresh := file.with_suffix(".tmp"), **arrays)
            fresh.with_suffix(".tmp.npz").replace(file)
            print(
                f"{file.name}: {(arrays['grok_step'] >= 0).sum()} of {len(chunk)}, {arrays['seconds']:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
