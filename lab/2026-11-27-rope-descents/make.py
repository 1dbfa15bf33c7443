"""The tables of README.md. Run this file to verify and prove the checkpoints again.

descents.csv: a row a descent, of the `descent.json` that `compress` keeps in its folder; small: below 27 numbers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import torch

from adders.proof.file import decide
from lab.tables import markdown
from model import verify
from model.tied import count
from model.verdict import write_verdict
from trainer.checkpoints.checkpoint import Checkpoint

FOLDER = Path(__file__).parent


def folders() -> list[Path]:
    return sorted(path.parent for path in FOLDER.glob("*/checkpoint.json"))


def ends() -> str:
    """Return a line a checkpoint: numbers in the four ways to count, sets tried, steps, and what is right."""
    lines = []
    for path in folders():
        checkpoint = Checkpoint.load(path)
        numbers = count(checkpoint.spec)
        verification, proof = (json.loads((path / f"{name}.json").read_text()) for name in ("verification", "proof"))
        provenance = checkpoint.provenance
        lines.append((
            f"[{path.name}]({path.name})",
            f"{numbers.inside} / {numbers.across} / {numbers.hidden} / {numbers.constants}",
            f"{provenance['sets_tried']:,}",
            f"{provenance['seed_steps'] / 1e6:.1f}",
            f"{verification['correct']:,}",
            f"{proof['verdict']} ({proof['level']})",
            f"{float(proof['margin']):.2g}",
        ))  # fmt: skip
    head = ("checkpoint", "inside / across / hidden / constants", "sets tried", "million steps", "of 10,010",
            "verdict (level)", "smallest margin")  # fmt: skip
    return markdown(head, lines)


def descents() -> str:
    """Return a line a descent: numbers, rounds, sets, core-seconds, and accepted sets that curvature entered."""
    rows = pd.read_csv(FOLDER / "descents.csv").itertuples()
    lines = [
        (f"{r.parent}, {r.folded}", r.reach, f"{r.started} to {r.fewest}", f"{r.rounds} ({r.last_gain})",
         f"{r.sets:,}", f"{r.core_seconds:,}", f"{r.finished_small} of {r.accepted_small}",
         f"{r.finished_large} of {r.accepted_large}")
        for r in rows
    ]  # fmt: skip
    head = ("parent, folded", "reach", "numbers", "rounds (last gain)", "sets tried", "core-seconds",
            "finished: below 27", "27 and more")  # fmt: skip
    return markdown(head, lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for path in folders():
        checkpoint = Checkpoint.load(path)
        spec, theta_P = checkpoint.spec, checkpoint.theta_P
        (path / "verification.json").write_text(json.dumps(verify(spec, theta_P, extended=True).as_dict()) + "\n")
        verdict = write_verdict(path, spec, theta_P, decide(spec, theta_P, limit_s=600))
        print(path.name, verdict["verdict"], verdict["margin"], flush=True)
