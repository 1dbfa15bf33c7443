"""Train a study's trials on one GPU without Ray or records: banks side by side, and finishing on the cores beside them.

    python lab/scripts/gpu_pool.py claim STUDY --home DIR          where the records are
    python lab/scripts/gpu_pool.py train DIR/trials/STUDY          where the GPU is: the folder can be a copy

`claim` writes the folders of all trials that are left, whole configurations each, as a run does, and ends. `train` does
what workers do, but that seeds whose training is over wait for curvature (recipe.finish_above) in another process, so
that the GPU does not. Afterwards `adder-search run` records what has ended and goes on with the rest. It is for many
banks of few seeds; start NVIDIA's MPS first (nvidia-cuda-mps-control -d).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from search.store.depot import Shared

from gpu import guard
from search.run import ray_executor
from search.run.executor import Event
from search.run.packing import Capacity
from search.run.worker import WorkerSession, run_trial
from search.store.results import STATE
from search.study.file import load_study
from search.study.trial import Configuration, Trial
from trainer.bank.bank import IDLE

SAVE_EVERY = 20
"""Evaluations between two states of a bank."""


class Claims:
    """An executor with room for so many trials at once, which ends the run instead of training them."""

    is_parallel = False
    room = 1

    def __init__(self, *_: object) -> None:
        self.started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def capacity(self) -> Capacity:
        return Capacity(self.room, gpu=1 / 16)  # with slots for 32 seeds at the width of 57p

    def start(self, key: str, config: Mapping[str, Any]) -> None:
        self.started += 1

    def poll(self, timeout_s: float) -> Sequence[Event]:
        if self.started:
            raise KeyboardInterrupt
        return []

    def export(self, values: object) -> None:
        pass


def claim(study: str, home: Path, room: int) -> None:
    """Claim a study's trials. room: their number, one for each configuration that is left."""
    from search.cli import main as command

    Claims.room = room
    ray_executor.RayExecutor = Claims  # type: ignore[assignment,misc]
    command(["run", study, "--home", str(home)])


def train_only(folder: Path, on_gpu: bool, is_over: Any) -> dict[str, Any]:
    """Train a trial's bank. Leave its results or, where seeds wait for curvature, its state."""
    session = WorkerSession(folder, Shared(), on_gpu)
    try:
        if not session.load_assigned():
            return {}
        session.run_next()
        bank, numbers, evaluations = session.bank, session.numbers[folder], 0
        while bool((bank.pair_S != IDLE).any()) and not is_over.value:
            spent, bank.spent = bank.spent, []
            bank.advance()
            bank.spent = spent + bank.spent
            evaluations += 1
            if evaluations % SAVE_EVERY == 0:
                bank.save(folder / STATE, numbers)
        waiting = len(bank.spent)
        if waiting or is_over.value:
            bank.save(folder / STATE, numbers)
        else:
            session.write_results(session.rows())
        return {"engine": bank.backend.name, "seed_steps": bank.seed_steps, "waiting": waiting}
    finally:
        session.release()


def trainer(work: Any, to_finish: Any, ended: Any, on_gpu: bool, is_over: Any) -> None:
    """Train trials until none is left. A bank compares itself with the CPU engine; the test before it is left out."""
    torch.set_num_threads(1)
    guard.verdict = lambda *_: ""
    while not is_over.value:
        try:
            folder = work.get(timeout=3)
        except queue.Empty:
            return
        try:
            facts = train_only(folder, on_gpu, is_over)
        except Exception:
            ended.put(("failed", folder.name, traceback.format_exc()))
            continue
        if not is_over.value:
            ended.put(("trained", folder.name, facts))
            if facts.get("waiting"):
                to_finish.put(folder)


def finisher(to_finish: Any, ended: Any, is_over: Any, core: int) -> None:
    """Finish the seeds of trained trials on one core, which training has first."""
    os.nice(10)
    os.sched_setaffinity(0, {core})
    while not is_over.value:
        try:
            folder = to_finish.get(timeout=1)
        except queue.Empty:
            continue
        start = time.process_time()
        try:
            for _ in run_trial(folder):
                if is_over.value:
                    return
            ended.put(("finished", folder.name, {"cpu_s": round(time.process_time() - start, 1)}))
        except Exception:
            ended.put(("failed", folder.name, traceback.format_exc()))


def in_order(trials: Path) -> list[Path]:
    """Return the folders of a study's trials: those with a state first, then as the study has their configurations."""
    folders = [file.parent for file in trials.glob("*/trial.json")]
    read = {folder: Trial.read(folder) for folder in folders}
    listed = load_study(read[folders[0]].study).listed
    places = {Configuration(*configuration).key: n for n, configuration in enumerate(listed)}

    def place(folder: Path) -> tuple[bool, int]:
        return not (folder / STATE).exists(), places[read[folder].work[0][0].key]

    return sorted(folders, key=place)


def train(trials: Path, trainers: int, seconds: float, on_gpu: bool) -> None:
    """Train all trials below a folder, for so long at most. A line for each that ends."""
    spawn = multiprocessing.get_context("spawn")
    work, to_finish, ended, is_over = spawn.Queue(), spawn.Queue(), spawn.Queue(), spawn.Value("b", 0)
    folders, count = in_order(trials), Counter[str]()
    for folder in folders:
        work.put(folder)
    cores = sorted(os.sched_getaffinity(0))
    train_args, finish_args = (work, to_finish, ended, on_gpu, is_over), (to_finish, ended, is_over)
    processes = [spawn.Process(target=trainer, args=train_args) for _ in range(trainers)]
    processes += [spawn.Process(target=finisher, args=(*finish_args, core)) for core in cores]
    for process in processes:
        process.start()
    start = time.monotonic()
    while time.monotonic() - start < seconds and count["done"] + count["failed"] < len(folders):
        try:
            kind, name, facts = ended.get(timeout=2)
        except queue.Empty:
            continue
        count[kind] += 1
        count["done"] += kind == "finished" or (kind == "trained" and not facts.get("waiting"))
        print(f"{time.monotonic() - start:.0f} s, {kind} {name}: {facts}", flush=True)
    is_over.value = 1
    for process in processes[:trainers]:
        process.join(30)
    for process in processes:
        process.kill()
    print(f"{count['done']} of {len(folders)} trials have ended", flush=True)
    os._exit(0)  # queues of processes that were killed would wait


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    claiming, training = commands.add_parser("claim"), commands.add_parser("train")
    claiming.add_argument("study")
    claiming.add_argument("--home", type=Path, required=True)
    claiming.add_argument("--room", type=int, required=True, help="configurations that are left")
    training.add_argument("trials", type=Path)
    training.add_argument("--trainers", type=int, default=40, help="an MPS takes 48 processes")
    training.add_argument("--seconds", type=float, default=1e9)
    training.add_argument("--cpu", action="store_true", help="a rehearsal")
    args = parser.parse_args()
    if args.command == "claim":
        claim(args.study, args.home, args.room)
    else:
        train(args.trials, args.trainers, args.seconds, not args.cpu)


if __name__ == "__main__":
    main()
