"""Write the golden curve: `python -m tests.make_golden_curve`, after a change that is meant to change it."""

import json
from pathlib import Path

import torch

from model import rung
from trainer import MEASURES, Bank, Pair, Recipe, Seed

FILE = Path(__file__).parent / "data" / "golden_curve_57p.json"
# Every schedule is at work within the 300 steps.
RECIPE = Recipe(
    steps=300,
    batch=64,
    eval_every=10,
    warmup=100,
    curriculum=((3, 100), (6, 100)),
    fade_start=50,
    fade_end=250,
)
SEEDS = (777, 1)


def curves():
    """Mean training loss since the record before, every 10 steps, by seed."""
    pairs = [Pair(RECIPE, Seed.of(s)) for s in SEEDS]
    bank = Bank(rung("57p"), pairs, compiled=False, hopeless=None)  # the whole curve
    while bank.advance():
        pass
    column = MEASURES.index("train_loss")
    return {str(s): bank.result(n).curve_EM[:, column].tolist() for n, s in enumerate(SEEDS)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    FILE.write_text(json.dumps(curves(), indent=1) + "\n")
