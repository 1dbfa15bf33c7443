"""Train recorded seeds again without the finish by curvature, to the bit, and keep their checkpoints.

    python lab/scripts/again.py STUDY ROWS.parquet "QUERY" FOLDER [--most 30] [--chunk 16]

ROWS: a table of a study's seeds, as `adder-search records` writes it. QUERY is pandas'; rows go by seed, then by
configuration. FOLDER gets a checkpoint a seed, named CONFIGURATION-SEED; those that are there stay.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pandas as pd
import torch

from search.study.file import load_study
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import Bank, Pair, Seed
from trainer.checkpoints.checkpoint import Checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("study")
    parser.add_argument("rows", type=Path)
    parser.add_argument("query")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int)
    parser.add_argument("--chunk", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    study = load_study(args.study)
    configurations = {c.key: c for c in (Configuration(*listed) for listed in study.listed)}
    rows = pd.read_parquet(args.rows).query(args.query).sort_values(["init_seed", "configuration"])
    wanted = [(r.configuration, Seed(r.init_seed, r.data_seed)) for r in rows[: args.most].itertuples()]
    for key, group in groupby(sorted(wanted, key=lambda w: w[0]), key=lambda w: w[0]):
        missing = [seed for _, seed in group if not (args.folder / f"{key}-{seed}").exists()]
        for at in range(0, len(missing), args.chunk):
            train(configurations[key], study, missing[at : at + args.chunk], args.folder)


def train(configuration: Configuration, study: Study, seeds: list[Seed], folder: Path) -> None:
    recipe = replace(configuration.recipe, finish_above=1.0)
    pairs = [Pair(recipe, seed, rules=study.stop.rules[study.stop.hopeless :]) for seed in seeds]
    bank = Bank(configuration.spec, pairs)
    while bank.advance():
        pass
    for n, seed in enumerate(seeds):
        r = bank.result(n)
        metrics = {"outcome": r.outcome.value, "grok_step": r.grok_step, "best_exact": r.best_exact}
        metrics |= {"best_token": r.best_token, "held": r.held}
        Checkpoint(
            spec=configuration.spec,
            theta_P=r.theta_P,
            recipe=recipe.as_dict(),
            seed={"init_seed": seed.init_seed, "data_seed": seed.data_seed},
            step=r.best_step,
            metrics=metrics,
            provenance={"trained": "from scratch", "study": study.name, "configuration": configuration.key},
        ).save(folder / f"{configuration.key}-{seed}")
        print(configuration.key, seed, r.outcome.value, r.best_exact, r.best_step, flush=True)


if __name__ == "__main__":
    main()
