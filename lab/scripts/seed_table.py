"""A study's seeds as the tables in this folder have them: a row a seed, without what the machine alone says.

    python lab/scripts/seed_table.py STUDY OUT.csv [--home DIR] [--rise]

--rise: a column more, from the curves: steps from the last evaluation with an exact match below 10 % to the
first with 90 %.
"""

from __future__ import annotations

import argparse

import pandas as pd

from search.analysis.frames import records

COLUMNS = [
    "study", "configuration", "title", "rung", "params", "init_seed", "data_seed", "outcome", "budget",
    "steps", "grok_step", "held", "hopeless_step", "best_step", "best_exact", "best_token",
]  # fmt: skip
SEED = ["configuration", "init_seed", "data_seed"]
LOW, HIGH = 0.1, 0.9


def rise(curve: pd.DataFrame) -> float:
    """Return steps from below LOW to HIGH of one seed's curve; NaN where it never gets there."""
    curve = curve.sort_values("step")
    high = curve.loc[curve["exact"] >= HIGH, "step"]
    if high.empty:
        return float("nan")
    before = curve[curve["step"] < high.iloc[0]]
    low = before.loc[before["exact"] < LOW, "step"]
    return float(high.iloc[0] - (low.iloc[-1] if len(low) else 0))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("study")
    parser.add_argument("out")
    parser.add_argument("--home")
    parser.add_argument("--rise", action="store_true")
    args = parser.parse_args()
    seeds = records(args.study, home=args.home)
    columns = COLUMNS
    if args.rise:
        curves = records(args.study, "curves", home=args.home).groupby(SEED)
        rises = pd.Series({key: rise(curve) for key, curve in curves}, name="rise")
        seeds = seeds.join(rises.rename_axis(SEED), on=SEED)
        columns = [*COLUMNS, "rise"]
    order = seeds.sort_values(SEED)
    order.to_csv(args.out, columns=columns, index=False, lineterminator="\n", float_format="%.6g")


if __name__ == "__main__":
    main()
