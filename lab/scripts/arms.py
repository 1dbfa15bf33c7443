"""A study's listed configurations without Ray, one bank each: a row a seed, and a row a configuration.

    python lab/scripts/arms.py train STUDY OUT.csv [--only 0,3] [--slots 32] [--most SEEDS]
    python lab/scripts/arms.py frame STUDY SEEDS.csv ... OUT.parquet

`train` goes on: a seed that OUT.csv has is not trained again, and what was interrupted goes on from its
bank's state, which lies beside OUT.csv with the θ of what grokked. Of each bank the first three that grokked
are decoded on the 10,010 (`correct`). `rise`: as seed_table.py has it. `frame` counts configurations as
`adder-search table` reads them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import save_file

from lab.banks import go_on, save
from lab.scripts.seed_table import COLUMNS, rise
from lab.scripts.table_file import append, read
from model import preset_name, verify
from model.tasks import ADDITION
from search.stats.counting import COUNTED, missed
from search.stats.record import SeedRecord
from search.study.file import load_study
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import MEASURES, Bank, Result

FIELDS = (*COLUMNS, "rise", "correct", "screen")
DECODED, SAVED = 3, 60  # grokked seeds of a bank that are decoded; seconds from one saved state to the next


def curve_of(result: Result) -> pd.DataFrame:
    every = result.pair.recipe.eval_every
    measures_EM = result.curve_EM[: result.steps // every]
    steps = [every * (i + 1) for i in range(len(measures_EM))]
    return pd.DataFrame({"step": steps, "exact": measures_EM[:, MEASURES.index("exact")].tolist()})


def row(study: str, configuration: Configuration, result: Result, correct: int | str) -> dict[str, Any]:
    spec, seed, rose = configuration.spec, result.pair.seed, rise(curve_of(result))
    return {
        "study": study, "configuration": configuration.key, "title": configuration.title,
        "rung": preset_name(spec), "params": spec.params,
        "init_seed": seed.init_seed, "data_seed": seed.data_seed,
        "outcome": result.outcome.value, "budget": configuration.recipe.steps, "steps": result.steps,
        "grok_step": result.grok_step or "", "held": result.held, "hopeless_step": result.hopeless_step or "",
        "best_step": result.best_step, "best_exact": f"{result.best_exact:.6g}",
        "best_token": f"{result.best_token:.6g}", "rise": "" if math.isnan(rose) else f"{rose:.0f}",
        "correct": correct, "screen": result.screen or "",
    }  # fmt: skip


def trained(bank: Bank, state: Path) -> Bank:
    """Train to the end, from a saved state if there is one."""
    go_on(bank, state)
    saved = time.monotonic()
    while bank.advance():
        if time.monotonic() - saved > SAVED:
            save(bank, state)
            saved = time.monotonic()
    return bank


def train(study: Study, out: Path, only: list[int], slots: int, count: int) -> None:
    torch.set_num_threads(1)
    out.parent.mkdir(parents=True, exist_ok=True)
    recorded = {(r["configuration"], r["init_seed"], r["data_seed"]) for r in read(out)}
    for n, (spec, recipe) in enumerate(study.listed):
        configuration, start = Configuration(spec, recipe), time.monotonic()
        key = configuration.key
        planned = study.first_seeds[:count]
        seeds = [s for s in planned if (key, str(s.init_seed), str(s.data_seed)) not in recorded]
        if not seeds or (only and n not in only):
            continue
        pairs = [replace(configuration.pair(seed), rules=study.stop.rules) for seed in seeds]
        state = out.with_name(f"{out.stem}-{key}-{seeds[0].init_seed}.state")
        bank = trained(Bank(configuration.trained, pairs, slots=slots), state)
        results = [bank.result(i) for i in range(len(pairs))]
        grokked = [r for r in results if r.grok_step is not None]
        right = {id(r): verify(spec, r.theta_P).correct for r in grokked[:DECODED]}
        rows = [row(study.name, configuration, r, right.get(id(r), "")) for r in results]
        append(out, rows, FIELDS)
        theta_by_seed = {f"{r.pair.seed.init_seed}.{r.pair.seed.data_seed}": r.theta_P.clone() for r in grokked}
        save_file(theta_by_seed or {"none": torch.zeros(1)}, state.with_suffix(".safetensors"))
        state.unlink(missing_ok=True)
        took, steps = time.monotonic() - start, sum(r.steps for r in results)
        line = f"{n} {configuration.title}: {len(grokked)} of {len(rows)}, {list(right.values())}"
        print(f"{line}, {took:.0f} s, {steps / took:.0f} seed-steps/s", flush=True)


def configuration_row(study: str, configuration: Configuration, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a configuration's row as reports/table.py reads it, from the rows of its seeds."""
    count = {name: sum(r["outcome"] == name for r in rows) for name in COUNTED}
    steps = [r["grok_step"] for r in rows if r["outcome"] == "grokked"]
    decoded = [r["correct"] for r in rows if not math.isnan(r["correct"])]
    fields = configuration.as_params()
    return {
        "study": study, "configuration": configuration.key, "title": configuration.title,
        "experiment_id": "", "run_id": "", "rung": fields.pop("rung"), "params": fields.pop("params"),
        "seeds": sum(count.values()), **count, "stopped": False,
        "grok_rate": count["grokked"] / sum(count.values()),
        "best_exact": max(r["best_exact"] for r in rows),
        "median_grok_step": float(pd.Series(steps, dtype=float).median()),
        "seed_steps": sum(r["steps"] for r in rows),
        "wrongly": missed([SeedRecord.of(row) for row in rows]),
        "verified": sum(right == ADDITION.problems for right in decoded), "verify_tried": len(decoded), **fields,
    }  # fmt: skip


def frame(study: Study, tables: list[Path], out: Path) -> None:
    seeds = pd.concat(pd.read_csv(table, dtype={"configuration": str}) for table in tables)
    rows = []
    for spec, recipe in study.listed:
        configuration = Configuration(spec, recipe)
        if mine := seeds[seeds["configuration"] == configuration.key].to_dict("records"):
            rows.append(configuration_row(study.name, configuration, mine))
    made = pd.DataFrame(rows)
    lists = [c for c in made.columns if made[c].map(lambda v: isinstance(v, list | tuple)).any()]
    made.assign(**{c: made[c].map(json.dumps) for c in lists}).to_parquet(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("what", choices=("train", "frame"))
    parser.add_argument("study")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--only", default="", help="configurations by their place in the file, from 0")
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--most", type=int, default=None, help="the first so many of the study's seeds")
    args = parser.parse_args()
    study = load_study(args.study)
    if args.what == "frame":
        frame(study, args.files[:-1], args.files[-1])
    else:
        train(study, args.files[0], [int(n) for n in args.only.split(",") if n], args.slots, args.most)


if __name__ == "__main__":
    main()
