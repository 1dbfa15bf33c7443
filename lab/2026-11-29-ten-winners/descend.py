"""Compress ten wide winners, in turns: `python descend.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER, turns.csv and nets.json have. FIRST STEP: of the twenty descents every STEP-th, from FIRST
on, so that several can go on side by side.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from model import make_spec, preset
from trainer.checkpoints.checkpoint import Checkpoint

HERE = Path(__file__).parent
WIDE = HERE.parent / "2026-11-28-wide"
TURNS, NETS = HERE / "turns.csv", HERE / "nets.json"
WINNERS, TURNS_EACH, TURN_S = 10, 5, 720.0
REACHES = ("tensor", "values")
AT_ONCE_H = 0.05
"""A call of the command: a turn ends at the first call after which its core-seconds are spent."""


def winners() -> list[int]:
    """Return the seeds of the first ten proved 57p."""
    proofs = pd.read_csv(WIDE / "wide-proofs.csv")
    proved = proofs[(proofs.arm == "eight") & (proofs.verdict == "PROVED") & (proofs.level == "any")]
    return sorted(proved.init_seed)[:WINNERS]


def parent(seed: int) -> Checkpoint:
    """Return a winner's 57p."""
    nets = pd.read_parquet(WIDE / "wide-nets.parquet")
    row = nets[(nets.arm == "eight") & (nets.init_seed == seed)].iloc[0]
    return Checkpoint(preset("57p"), torch.tensor(row.theta).float(), seed={"init": seed, "data": seed})


@contextmanager
def locked() -> Iterator[None]:
    """Let one process at a time change the tables."""
    folder = os.open(HERE, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def turns() -> pd.DataFrame:
    if TURNS.exists():
        return pd.read_csv(TURNS)
    return pd.DataFrame(columns=["init_seed", "reach", "turn"])


def kept() -> dict[str, dict[str, Any]]:
    """Return the smallest proved set of each descent: spec and θ."""
    return json.loads(NETS.read_text()) if NETS.exists() else {}


def begin(folder: Path, seed: int, reach: str) -> None:
    """Write the checkpoint that a descent starts from, where its folder is not there."""
    start = folder / "from"
    if start.exists():
        return
    net = kept().get(f"{seed}-{reach}")
    if net is None:
        parent(seed).save(start)
    else:
        theta_P = torch.tensor(net["theta"]).float()
        Checkpoint(make_spec(net["spec"]), theta_P, seed={"init": seed, "data": seed}).save(start)


def take_turn(folder: Path, seed: int, reach: str, turn: int) -> None:
    """Give a descent one turn, and add what it has come to."""
    begin(folder, seed, reach)
    spent_s = [_spent(folder)]
    while spent_s[-1] - spent_s[0] < TURN_S:
        said = _compress(folder, reach)
        spent_s.append(said["core_seconds"])
        if spent_s[-1] == spent_s[-2]:
            break  # nothing is left to propose
    row = {
        "init_seed": seed, "reach": reach, "turn": turn, "numbers": said["params"], **said["count"],
        "rounds": said["rounds"], "sets": said["sets_tried"], "core_s": round(spent_s[-1] - spent_s[0]),
    }  # fmt: skip
    smallest = Checkpoint.load(folder / "descent")
    net = {"spec": smallest.spec.as_dict(), "theta": smallest.theta_P.tolist()}
    with locked():
        table = pd.concat([turns(), pd.DataFrame([row])])
        table.sort_values(["turn", "init_seed", "reach"]).to_csv(TURNS, index=False, lineterminator="\n")
        nets = dict(sorted((kept() | {f"{seed}-{reach}": net}).items()))
        lines = [f"{json.dumps(name)}: {json.dumps(net)}" for name, net in nets.items()]
        NETS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _spent(folder: Path) -> float:
    """Return the core-seconds that a descent's folder has had."""
    file = folder / "descent" / "descent.json"
    return json.loads(file.read_text())["core_seconds"] if file.exists() else 0.0


def _compress(folder: Path, reach: str) -> dict[str, Any]:
    """Call the command once. Return what it prints."""
    words = ["--reach", reach, "--proved", "any", "--cores", "1", "--max-hours", AT_ONCE_H, "--json"]
    command = [sys.executable, "-m", "adder_search", "compress", folder / "from", "-o", folder / "descent", *words]
    return json.loads(subprocess.run(map(str, command), check=True, stdout=subprocess.PIPE).stdout)


def main(folder: str, first: str = "0", step: str = "1") -> None:
    descents = [(seed, reach) for seed in winners() for reach in REACHES]
    for turn in range(1, TURNS_EACH + 1):
        for seed, reach in descents[int(first) :: int(step)]:
            done = turns()
            if not ((done.init_seed == seed) & (done.reach == reach) & (done.turn == turn)).any():
                take_turn(Path(folder) / f"{seed}-{reach}", seed, reach, turn)


if __name__ == "__main__":
    main(*sys.argv[1:])
