"""The column `screen` of a table of seeds that was written without it: which seeds the study's screen called.

    python lab/scripts/screen_column.py STUDY TABLE [--by hash]

TABLE: a .csv or .parquet file of seeds, which gets the column. --by: the draw of the spared tenth at that time.

Which seeds were spared follows from the file of the study. A spared seed was called if it never had the tokens that the
rung asks for. Where it had them at some time, nothing says if it did at the rung. If it grokked later it counts as
called, else as not called: both make the interval of the rate wider than the column itself would.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from lab.plans import load_plan
from search.run.spared import Draw
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import Seed
from trainer.recipe.seed import is_spared
from trainer.stopping import Rung

BY_HASH = "hash"
"""The draw of earlier versions: the numbers of a seed say if it is spared."""


def screened(study: Study, rows: pd.DataFrame, by: str | None = None) -> pd.Series:
    """Return for each row the rung that called its seed, None for others.

    by: BY_HASH if the spared seeds were drawn so, else the study file says how. Raises ValueError where that cannot be,
    as a rule ended a spared seed, or the screen has several rungs.
    """
    (rung,) = (rule for rule in study.stop.rules if isinstance(rule, Rung))
    ((_, least, _),) = rung.keep
    known = {c.key: c for c in (Configuration(*listed) for listed in study.listed)}
    seeds = [Seed(*numbers) for numbers in zip(rows["init_seed"], rows["data_seed"], strict=True)]
    if by == BY_HASH:
        spared = pd.Series(list(map(is_spared, seeds)), index=rows.index)
    else:
        draw, places = Draw(study), {key: number for number, key in enumerate(known)}
        work = zip(rows["configuration"], seeds, strict=True)
        spared = pd.Series([bool(draw.is_spared(places[key], seed)) for key, seed in work], index=rows.index)
    ended = rows["outcome"].isin(["screened", "given_up"])
    if (ended & spared).any():
        raise ValueError("a rule ended a seed that was spared: the draw was another one")
    late = rows["outcome"].eq("grokked") & (rows["grok_step"] > rung.at)
    called = rows["outcome"].eq("screened") | (spared & (late | (rows["best_token"] < least)))
    return pd.Series([str(rung) if is_called else None for is_called in called], index=rows.index, dtype=object)


def add(study: str, table: Path, by: str | None) -> None:
    if table.suffix == ".parquet":
        frame = pd.read_parquet(table)
        frame.insert(list(frame).index("hopeless_step") + 1, "screen", screened(load_plan(study), frame, by))
        frame.to_parquet(table, index=False, compression="zstd")
        return
    head, *lines = table.read_text("utf-8").splitlines()  # all else stays as it was written
    column = screened(load_plan(study), pd.read_csv(table, dtype={"configuration": str}), by)
    written = [f"{line},{rung or ''}" for line, rung in zip(lines, column, strict=True)]
    table.write_text("\n".join([f"{head},screen", *written, ""]), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("table", type=Path)
    parser.add_argument("--by")
    args = parser.parse_args()
    add(args.study, args.table, args.by)
