"""Prove or refute recorded seeds that grokked: a line each in seeds.csv. Lines that are there stay.

PYTHONPATH=. python lab/2026-11-24-proved/prove_seeds.py FOLDER [--minutes 60]

FOLDER: checkpoints of `lab/scripts/again.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from adders.proof.prover import prove
from model import Spec, preset_name, verify
from model.verdict import PROVED
from trainer.checkpoints.checkpoint import Checkpoint

TABLE = Path(__file__).parent / "seeds.csv"
TRAINED = TABLE.parents[1] / "2026-11-23-constraint-columns" / "trained"
LIMIT_S = 60


@dataclass(frozen=True)
class Grokked:
    """θ [P] of a seed that grokked, and the configuration that it is one of."""

    configuration: str
    preset: str
    init_seed: int
    data_seed: int
    spec: Spec
    theta_P: Tensor


def trained_again(folder: Path) -> list[Grokked]:
    """Return the grokked seeds of a folder of checkpoints, in the order of their numbers."""
    loaded = [Checkpoint.load(path) for path in sorted(folder.glob("*-*")) if path.is_dir()]
    return [
        Grokked(c.provenance["configuration"], preset_name(c.spec), *c.seed.values(), c.spec, c.theta_P)
        for c in sorted(loaded, key=lambda c: tuple(c.seed.values()))
        if c.metrics["outcome"] == "grokked"
    ]


def kept() -> Iterator[list[Grokked]]:
    """Yield the grokked seeds that an earlier experiment kept, by preset."""
    rows = [(path.name, Checkpoint.load(path)) for path in sorted(TRAINED.iterdir())]
    for prefix in sorted({name.split("-")[0] for name, _ in rows}):
        yield [
            Grokked("trained", prefix, c.seed["init_seed"], c.seed["data_seed"], c.spec, c.theta_P)
            for name, c in rows
            if name.split("-")[0] == prefix
        ]


def row(seed: Grokked) -> dict[str, object]:
    """Return a seed's line."""
    proof = prove(seed.spec, seed.theta_P, limit_s=LIMIT_S)
    right = 10_010 if proof.verdict == PROVED else verify(seed.spec, seed.theta_P).correct
    wrong = proof.wrong[0] if proof.wrong else None
    return {
        "configuration": seed.configuration, "preset": seed.preset, "init_seed": seed.init_seed,
        "data_seed": seed.data_seed, "right": right, "verdict": proof.verdict, "level": proof.level,
        "margin": f"{proof.margin:.4g}", "seconds": f"{proof.seconds:.1f}", "wrong_a": wrong and wrong.a,
        "wrong_b": wrong and wrong.b, "answer": wrong and wrong.answer,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * args.minutes
    lines = pd.read_csv(TABLE, dtype=object).to_dict("records") if TABLE.exists() else []
    done = {tuple(str(line[name]) for name in ("configuration", "preset", "init_seed", "data_seed")) for line in lines}
    groups = [trained_again(args.folder), *kept()]
    for seed in chain.from_iterable(zip_longest(*groups)):
        if seed is None or tuple(map(str, (seed.configuration, seed.preset, seed.init_seed, seed.data_seed))) in done:
            continue
        if time.monotonic() > end:
            break
        lines.append(row(seed))
        pd.DataFrame(lines, dtype=object).to_csv(TABLE, index=False, lineterminator="\n")
        print(*lines[-1].values(), flush=True)


if __name__ == "__main__":
    main()
