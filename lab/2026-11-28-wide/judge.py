"""What road.py left, as tables: decoded on the 10,010, and proved.

python lab/2026-11-28-wide/judge.py ingest FOLDER ...   # road.py's; adds the arms that have ended to the tables
python lab/2026-11-28-wide/judge.py prove ARM ...       # adds the proofs that wide-proofs.csv lacks
python lab/2026-11-28-wide/judge.py study HOME          # writes wide-fresh.csv from the study's home
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import pandas as pd
import road  # beside this file
import torch
from safetensors.torch import load_file

import search
from adders.proof.file import decide
from lab.scripts.proved import judged
from lab.scripts.table_file import append, read
from model import preset, verify
from model.tied import constrained, project, tie
from model.verdict import write_verdict
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from trainer import Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.engine.build import denormals

HERE = Path(__file__).parent
TRIES, VECTORS, PROOFS = (HERE / f"wide-{name}.csv" for name in ("tries", "vectors", "proofs"))
NETS = HERE / "wide-nets.parquet"
MAIN, LIMIT_S = "eight", 60.0
SPEC = preset("57p")
COLUMNS = (
    *("study", "configuration", "init_seed", "data_seed", "outcome", "steps", "grok_step", "best_exact", "core_s"),
    *("stages", "correct", "proved"),
)  # fmt: skip
STAGES = ("wide", "wide again", "two", "two, long", "tied", "tied, long")


def ingest(folders: list[Path]) -> None:
    """Write tries, vectors and θ of the 57p of arms that have ended, in place of what the tables have of them."""
    tries, vectors, nets = [], [], []
    for ended in sorted(path for folder in folders for path in folder.glob("*/vectors.csv")):
        its = pd.concat([pd.read_csv(p, dtype={"units": str}) for p in ended.parent.glob("*.csv") if p != ended])
        rows = pd.read_csv(ended, dtype={"units": str})
        found = ended.with_name("57p.safetensors")
        thetas = load_file(found) if found.exists() else {}
        if ended.parent.name == MAIN:
            rows["correct"] = [right(seed, thetas.get(str(seed))) for seed in rows["init_seed"]]
        by_vector = its.groupby("init_seed")
        for column, totals in (
            ("trainings", by_vector.size()),
            ("seed_steps", by_vector["steps"].sum()),
            ("core_s", by_vector["core_s"].sum().round(2)),
        ):
            rows[column] = rows["init_seed"].map(totals)
        tries.append(its)
        vectors.append(rows)
        nets += [
            {
                "arm": row.arm,
                "init_seed": row.init_seed,
                "units": row.units,
                "theta": thetas[str(row.init_seed)].tolist(),
            }
            for row in rows[rows["outcome"] == "grokked"].itertuples()
        ]
    table = pd.concat(vectors)
    right_of = table["correct"] if "correct" in table else pd.Series("", table.index)
    table["correct"] = right_of.replace("", None).astype("Int64")
    write(TRIES, pd.concat(tries).astype({"grok_step": "Int64"}))
    write(VECTORS, table)
    new, before = pd.DataFrame(nets), pd.read_parquet(NETS)
    kept = before[~before["arm"].isin(new["arm"])]
    pd.concat([kept, new]).sort_values(["arm", "init_seed"]).to_parquet(NETS, index=False)


def write(path: Path, new: pd.DataFrame) -> None:
    """Write rows to a table, in place of those that it has of the same arms. The others stay as they are spelt."""
    before = pd.read_csv(path, dtype=str, keep_default_na=False)
    spelt = pd.read_csv(StringIO(new.to_csv(index=False)), dtype=str, keep_default_na=False)
    rows = pd.concat([before[~before["arm"].isin(spelt["arm"])], spelt[before.columns]], ignore_index=True)
    place = {"arm": rows["arm"], "seed": rows["init_seed"].astype(int)}
    place["stage"] = rows["stage"].map(STAGES.index) if "stage" in rows else 0
    rows = rows.loc[pd.DataFrame(place).sort_values(["arm", "seed", "stage"], kind="stable").index]
    rows.to_csv(path, index=False)


def right(seed: int, theta_P: torch.Tensor | None) -> int | str:
    """Return how many of the 10,010 a 57p of the main arm answers, by the table where it has it; nothing for none."""
    if theta_P is None:
        return ""
    there = [row["correct"] for row in read(VECTORS) if (row["arm"], row["init_seed"]) == (MAIN, str(seed))]
    return int(float(there[0])) if there and there[0] else verify(SPEC, theta_P).correct


def proved(arms: list[str]) -> None:
    """Add a line to the table for each 57p of some arms that is not in it."""
    there = {(row["arm"], row["init_seed"]) for row in read(PROOFS)}
    nets = pd.read_parquet(NETS)
    for net in nets[nets["arm"].isin(arms)].itertuples():
        if (net.arm, str(net.init_seed)) not in there:
            theta_P = torch.tensor(net.theta, dtype=torch.float32)
            append(PROOFS, [{"arm": net.arm, "init_seed": net.init_seed} | judged(SPEC, theta_P, LIMIT_S)])


def keep(folder: Path, seed: int) -> None:
    """Save a vector's 57p of the main arm as a checkpoint with all stages of its run.

    folder: road.py's, of the part with this seed.
    """
    arm, tries = road.ARMS[MAIN], pd.read_csv(TRIES, dtype={"units": str})
    grokked = tries[(tries["arm"] == MAIN) & (tries["init_seed"] == seed) & (tries["outcome"] == "grokked")]
    last = grokked[grokked["stage"].str.startswith("tied")].iloc[0]
    order = tuple(map(int, last["units"].split("-")))
    pair = tuple(sorted(order))
    of_pair = grokked[grokked["units"] == "-".join(map(str, pair))]
    two = of_pair[of_pair["stage"].str.startswith("two")].iloc[0]
    cut = [name for unit in range(arm.hidden) if unit not in pair for name in road.unit_entries(arm.spec, unit)]
    in_ties = tie(arm.spec, constrained(arm.spec, [f"{name} = 0" for name in cut]))
    places_P = torch.arange(float(arm.spec.params))
    stages = [(arm.spec, "wide", places_P)]
    if "wide" not in set(grokked["stage"]):
        stages.append((arm.spec, "wide again", places_P))
    stages.append((in_ties, two["stage"], road.of_units(arm.spec, places_P, order)))
    ties = road.namings_of(arm.spec, road.Net(seed, pair, True, 1.0, places_P))[0].ties
    part = folder / MAIN / last["stage"].replace(", ", "-")
    rows = pd.read_csv(f"{part}.csv", dtype={"units": str})
    (row,) = rows.index[(rows["init_seed"] == seed) & (rows["units"] == last["units"])]
    theta_P = load_file(f"{part}.safetensors")["theta_NP"][row]
    about = [
        {"spec": spec.as_dict(), "recipe": arm.recipe(stage).as_dict(), "entries": entries.long().tolist()}
        for spec, stage, entries in stages
    ]
    checkpoint = Checkpoint(
        spec=tie(road.NARROW, ties), theta_P=project(ties, theta_P[None])[0],
        recipe=arm.recipe(last["stage"]).as_dict(), seed=asdict(Seed.of(seed)), step=int(last["best_step"]),
        metrics={"best_exact": 1.0},
        provenance={
            "trained": "from scratch", "script": "lab/2026-11-28-wide/road.py", "stages": about,
            "environment": {"compiled": True, "denormals": denormals(), "torch": torch.__version__},
        },
    )  # fmt: skip
    kept, spec, theta_P = HERE / f"57p-{seed}", checkpoint.spec, checkpoint.theta_P
    checkpoint.save(kept)
    (kept / "verification.json").write_text(json.dumps(verify(spec, theta_P).as_dict()) + "\n")
    write_verdict(kept, spec, theta_P, decide(spec, theta_P, LIMIT_S))


def study(home: str, name: str = "wide-fresh") -> None:
    """Write every vector of a study's home, with how many of the 10,010 its grokked θ answers."""
    records = StudyRecords(Ledger(Home(home)), name)
    grokked = [row for row in records.list_seeds() if row.has_grokked]
    right_of = {
        seed.result.pair.seed.init_seed: verify(seed.configuration.spec, seed.result.theta_P).correct
        for seed in records.seeds(grokked)
    }
    rows = search.records(name, "seeds", home=home)
    rows["correct"] = rows["init_seed"].map(right_of)
    whole = {"correct": "Int64", "grok_step": "Int64"}
    rows.sort_values("init_seed").astype(whole)[list(COLUMNS)].to_csv(HERE / f"{name}.csv", index=False)


if __name__ == "__main__":
    command, *names = sys.argv[1:]
    if command == "ingest":
        ingest([Path(name) for name in names])
    elif command == "study":
        study(names[0])
    elif command == "prove":
        proved(names)
    else:
        keep(Path(names[0]), int(names[1]))
