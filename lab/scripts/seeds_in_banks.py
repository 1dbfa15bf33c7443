"""A study's seeds in banks of one thread, without Ray and without records: a row a seed.

    python lab/scripts/seeds_in_banks.py STUDY OUT.csv [--kept FOLDER] [--only ARM] [--seeds FIRST-LAST]

Each configuration (`arm`: its name in the file, or its title where the file has scales) is trained on its
seeds, some at once, with the study's screen and rule for hopeless seeds. A seed that is in the file is not
trained again, so the same command goes on. Columns: how it ended; tries: how often it began; at some steps the
probes odd and switches, and the best token accuracy so far; equals_best: how far EQUALS is from the origin at
the best evaluation.
--kept: a file a chunk with θ at the best evaluation and at all, curve and probes.

Axes: N seed, E evaluation, M measure, R probe, P parameters.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.scripts.paths import Watched
from lab.scripts.table_file import append, read
from model import Spec
from model.tied import Tied
from search.study.file import load_study
from search.study.trial import Configuration
from trainer import Pair, Seed
from trainer.bank.tracker import Result

STEPS = (4_000, 10_000, 14_000, 20_000, 26_000)
PROBES = ("odd", "switches")


class Counted(Watched):
    """A bank that counts how often each pair begins."""

    def __init__(self, *args: Any, **options: Any):
        self.begun: Counter[int] = Counter()
        super().__init__(*args, **options)

    def _begin(self, slot: int, n: int, before: int) -> None:
        self.begun[n] += 1
        super()._begin(slot, n, before)


def row_of(spec: Spec, result: Result, tries: int) -> dict[str, Any]:
    """Return a seed's row without its configuration."""
    seed, recipe = result.pair.seed, result.pair.recipe
    row: dict[str, Any] = {
        "init_seed": seed.init_seed, "data_seed": seed.data_seed, "outcome": result.outcome.value,
        "budget": recipe.steps, "steps": result.steps, "grok_step": result.grok_step or "",
        "best_exact": f"{result.best_exact:.4f}", "best_token": f"{result.best_token:.4f}",
        "screen": result.screen or "", "tries": tries,
    }  # fmt: skip
    best_E = np.fmax.accumulate(result.curve_EM[:, 1].numpy())
    names = list(spec.probes())
    for at in STEPS:
        e = at // recipe.eval_every - 1
        there = e < len(best_E)
        row[f"token_{at}"] = f"{best_E[e]:.4f}" if there else ""
        for name in PROBES:
            read = there and name in names and float(result.probes_ER[e, names.index(name)])
            row[f"{name}_{at}"] = "" if read is False else f"{read:.4f}"
    row["equals_best"] = f"{float(equals(spec, result).norm()):.2f}"
    return row


def equals(spec: Spec, result: Result) -> torch.Tensor:
    """Return EQUALS' numbers; of a tied spec as its base reads them."""
    theta_1P = result.theta_P[None]
    base, theta_1P = (spec.base, spec.untie(theta_1P)) if isinstance(spec, Tied) else (spec, theta_1P)
    value = base.layout.split(theta_1P).get("equals")
    return torch.full((1,), torch.nan) if value is None else value


def arms(study: Any) -> Iterator[tuple[str, Configuration]]:
    listed = [Configuration(*pair) for pair in study.listed]
    names = [entry.name for entry in study.configurations] or [study.name]
    yield from zip([c.title for c in listed] if len(names) < len(listed) else names, listed, strict=True)


def train(configuration: Configuration, seeds: list[Seed], study: Any) -> Counted:
    pairs = [Pair(configuration.recipe, seed, rules=study.stop.rules) for seed in seeds]
    bank = Counted(configuration.spec, pairs)
    bank.watch()
    while bank.advance():
        pass
    return bank


def keep(file: Path, bank: Counted, results: list[Result]) -> None:
    """Write θ, curve and probes of a chunk to a file; behind a seed's end NaN."""
    longest = max(len(r.curve_EM) for r in results)

    def padded(rows: torch.Tensor) -> np.ndarray:
        return np.pad(rows.numpy(), ((0, longest - len(rows)), (0, 0)), constant_values=np.nan)

    np.savez_compressed(
        file,
        init_seed=np.array([r.pair.seed.init_seed for r in results]),
        best_theta=np.stack([r.theta_P.numpy() for r in results]),
        theta=bank.theta_NEP[:, :longest].numpy(),
        best_step=np.array([r.best_step for r in results]),
        curve=np.stack([padded(r.curve_EM) for r in results]),
        probes=np.stack([padded(r.probes_ER) for r in results]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("study")
    parser.add_argument("out", type=Path)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--only", action="append", help="an arm; repeatable")
    parser.add_argument("--seeds", help="of the study's, those from FIRST to LAST")
    parser.add_argument("--chunk", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(1)
    study = load_study(args.study)
    seeds = study.first_seeds
    if args.seeds:
        first, last = map(int, args.seeds.split("-"))
        seeds = [s for s in seeds if first <= s.init_seed <= last]
    recorded = {(r["configuration"], int(r["init_seed"])) for r in read(args.out)}
    for at in range(0, len(seeds), args.chunk):
        for arm, configuration in arms(study):
            chunk = [
                s
                for s in study.kind.seeds_of((configuration.spec, configuration.recipe))
                if s in seeds[at : at + args.chunk] and (configuration.key, s.init_seed) not in recorded
            ]
            if not chunk or (args.only and arm not in args.only):
                continue
            start, bank = time.process_time(), train(configuration, chunk, study)
            results = [bank.result(n) for n in range(len(chunk))]
            about = {"study": study.name, "arm": arm, "configuration": configuration.key}
            table = [about | row_of(configuration.spec, r, bank.begun[n]) for n, r in enumerate(results)]
            append(args.out, table)
            if args.kept:
                args.kept.mkdir(parents=True, exist_ok=True)
                keep(args.kept / f"{arm.replace(' ', '-')}-{chunk[0].init_seed}.npz", bank, results)
            won, spent = sum(r.grok_step is not None for r in results), time.process_time() - start
            spent_on = f"{bank.seed_steps} seed-steps, {spent:.0f} core-seconds"
            print(f"{arm}, from {chunk[0]}: {won} of {len(chunk)}, {spent_on}", flush=True)


if __name__ == "__main__":
    main()
