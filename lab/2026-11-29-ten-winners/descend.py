"""Compress ten wide winners, in turns: `python descend.py FOLDER [FIRST STEP]`.

It goes on with what FOLDER and the tables beside this file have. FIRST STEP: of the descents every STEP-th, from FIRST
on, so that several can go on side by side. After its last turn the sets that stop a descent are judged.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import make  # beside this file
import pandas as pd
import torch

from adders.folding.folded import fold_checkpoint
from compress.local import LocalDescent, Settings
from model import make_spec, preset
from model.tied import ties_of, untied
from trainer.checkpoints.checkpoint import JSON_FILE, Checkpoint
from trainer.files import durable

HERE = Path(__file__).parent
WIDE, FIVE = HERE.parent / "2026-11-28-wide", HERE.parent / "2026-11-26-five-and-eleven"
TURN_S, STOPS_S = 720.0, 180.0
AT_ONCE_H = 0.05
"""A call of the command: a turn ends at the first call after which its core-seconds are spent."""
BEFORE = "before"
"""File of a descent's folder: the core-seconds of its turns before the folder, which has none of them."""


def winners() -> list[int]:
    """Return the seeds of the first ten proved 57p."""
    proofs = pd.read_csv(WIDE / "wide-proofs.csv")
    proved = proofs[(proofs.arm == "eight") & (proofs.verdict == "PROVED") & (proofs.level == "any")]
    return sorted(proved.init_seed)[: make.WINNERS]


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


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    """Replace a table in one instant."""
    durable.write(file, pd.DataFrame(rows).to_csv(index=False, lineterminator="\n").encode())


def able() -> list[int]:
    """Return the winners at which a descent can begin. Before the first turn all are folded and proved."""
    with locked():
        if not make.PARENTS.exists():
            write(make.PARENTS, [beginning(seed) for seed in winners()])
        parents = make.parents()
    return parents.loc[parents["why"].isna(), "init_seed"].tolist()


def beginning(seed: int) -> dict[str, Any]:
    """Return how many numbers a winner is folded into, and why the command would refuse it, if it would."""
    start, _ = fold_checkpoint(parent(seed))
    why = ""
    try:
        LocalDescent(start.spec, [start.theta_P], Settings(proved="any"), HERE / "none")  # it writes nothing
    except ValueError as error:
        why = str(error)
    return {"init_seed": seed, "numbers": start.spec.params, "why": why}


def turns_of(seed: int, reach: str) -> pd.DataFrame:
    """Return the turns that a descent has had."""
    with locked():
        rows = make.turns()
    return rows[(rows["init_seed"] == seed) & (rows["reach"] == reach)]


def begin(folder: Path, seed: int, reach: str) -> None:
    """Write the checkpoint that a descent starts from, where its folder is not there."""
    start = folder / "from"
    if (start / JSON_FILE).exists():
        return
    durable.make_folder(folder)
    durable.write(folder / BEFORE, str(turns_of(seed, reach)["core_s"].sum()).encode())
    net = make.kept().get(f"{seed}-{reach}")
    if net is None:
        parent(seed).save(start)
    else:
        theta_P = torch.tensor(net["theta"]).float()
        Checkpoint(make_spec(**net["spec"]), theta_P, seed={"init": seed, "data": seed}).save(start)


def take_turn(folder: Path, seed: int, reach: str, turn: int) -> None:
    """Give a descent one turn, and add what it has come to. A turn that was cut off goes on."""
    begin(folder, seed, reach)
    earlier_s = turns_of(seed, reach)["core_s"].sum() - float((folder / BEFORE).read_text())
    while True:
        before_s = _spent(folder)
        said = _compress(folder, reach)
        core_s = said["core_seconds"] - earlier_s
        if core_s >= TURN_S or said["core_seconds"] == before_s:  # nothing is left to propose
            break
    row = {
        "init_seed": seed, "reach": reach, "turn": turn, "numbers": said["params"], **said["count"],
        "rounds": said["rounds"], "sets": said["sets_tried"], "core_s": round(core_s),
    }  # fmt: skip
    smallest = Checkpoint.load(folder / "descent")
    net = {"spec": smallest.spec.as_dict(), "theta": smallest.theta_P.tolist()}
    with locked():
        nets = dict(sorted((make.kept() | {f"{seed}-{reach}": net}).items()))
        lines = [f"{json.dumps(name)}: {json.dumps(net)}" for name, net in nets.items()]
        durable.write(make.NETS, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
        # After the nets: a turn that is written has its net.
        rows = [*make.turns().to_dict("records"), row]
        write(make.TURNS, sorted(rows, key=lambda row: (row["turn"], row["init_seed"], row["reach"])))


def _spent(folder: Path) -> float:
    """Return the core-seconds that a descent's folder has had."""
    file = folder / "descent" / "descent.json"
    return json.loads(file.read_text())["core_seconds"] if file.exists() else 0.0


def _compress(folder: Path, reach: str) -> dict[str, Any]:
    """Call the command once. Return what it prints."""
    words = ["--reach", reach, "--proved", "any", "--cores", "1", "--max-hours", AT_ONCE_H, "--json"]
    command = [sys.executable, "-m", "adder_search", "compress", folder / "from", "-o", folder / "descent", *words]
    return json.loads(subprocess.run(map(str, command), check=True, stdout=subprocess.PIPE).stdout)


def what_stops(seed: int, reach: str) -> list[dict[str, Any]]:
    """Judge the sets of one number fewer than a descent's last, those first that its worst margins would bear best."""
    from judge import FIRST, Pool, judge, look
    from search_sets import row, sets_of

    net = make.kept()[f"{seed}-{reach}"]
    spec, theta_R = make_spec(**net["spec"]), torch.tensor(net["theta"], dtype=torch.float64)
    base, theta_P = untied(spec, theta_R)
    ties = ties_of(spec)[1]
    pool = Pool()
    pool.add(look(spec, theta_R.numpy())[:FIRST])
    sets = sets_of(base, theta_P.numpy(), ties, pool)
    sets.across = reach == "values"
    rows, end = [], time.process_time() + STOPS_S
    for candidate in sets.singles():
        if time.process_time() > end:
            break
        with suppress(ValueError):  # a set that is mute
            verdict = judge(base, theta_P.numpy(), ties, candidate, pool)
            rows.append(row(f"{seed}-{reach}", base, ties, candidate, verdict))
    return rows


def main(folder: str, first: str = "0", step: str = "1") -> None:
    torch.set_num_threads(1)
    sys.path.append(str(FIVE))  # its scripts import each other
    descents = [(seed, reach) for seed in able() for reach in make.REACHES][int(first) :: int(step)]
    for turn in range(1, make.TURNS_EACH + 1):
        for seed, reach in descents:
            if turn not in turns_of(seed, reach)["turn"].tolist():
                take_turn(Path(folder) / f"{seed}-{reach}", seed, reach, turn)
    for seed, reach in descents:
        is_judged = f"{seed}-{reach}" in make.stops()["parent"].tolist()
        if not is_judged and (rows := what_stops(seed, reach)):
            with locked():
                write(make.STOPS, [*make.stops().to_dict("records"), *rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
