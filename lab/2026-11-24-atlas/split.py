"""Part a home's complete combinations into the first of the order, without a gap, and those that ended ahead of it.

python lab/2026-11-24-atlas/split.py HOME
"""

from __future__ import annotations

import sys
from itertools import takewhile
from pathlib import Path

import pandas as pd

from search.study.file import load_study
from search.study.trial import Configuration
from trainer import Outcome


def main(*files: str) -> None:
    study, here = load_study("atlas"), Path(__file__).parent
    order = [Configuration(spec, recipe).key for spec, recipe in study.listed]
    seeds, configurations = map(pd.read_parquet, files)
    counts = seeds[seeds.outcome != Outcome.CENSORED].groupby("configuration").size()
    complete = set(counts[counts == study.seeds.count].index)
    first = set(takewhile(complete.__contains__, order))
    for name, frame, keys in (
        ("so-far-seeds", seeds, first),
        ("so-far-configurations", configurations, first),
        ("ahead-seeds", seeds, complete - first),
    ):
        frame[frame.configuration.isin(keys)].to_parquet(
            here / f"{name}.parquet", index=False, compression="zstd"
        )
    print(f"{len(first)} combinations in order, {len(complete - first)} ahead")


if __name__ == "__main__":
    main(*sys.argv[1:])
