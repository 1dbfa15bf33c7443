"""Write the golden curves: `python -m tests.make_golden_curve`, after a change meant to change them."""

import json
from pathlib import Path

from model import preset
from trainer import MEASURES, Bank, Pair, Recipe, Seed

FILE = Path(__file__).parent / "data" / "golden_curves.json"
RUNGS = ("57p", "170p", "456p")
"""One of each kernel's branches: a circle, attention that differs by problem, low rank."""
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


def curves(name):
    """Mean training loss since the record before, every 10 steps, by seed."""
    pairs = [Pair(RECIPE, Seed.of(s)) for s in SEEDS]
    bank = Bank(preset(name), pairs, hopeless=None)  # the whole curve
    while bank.advance():
        pass
    column = MEASURES.index("train_loss")
    return {str(s): bank.result(n).curve_EM[:, column].tolist() for n, s in enumerate(SEEDS)}


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: curves(name) for name in RUNGS}, indent=1) + "\n")
