"""Seed-steps a second of a CPU's core, 16 seeds at batch 256, by the core's own time: writes cores.json.

PYTHONPATH=. python lab/2026-11-26-gpu/cores.py
"""

import json
import statistics
import time
from pathlib import Path

import torch

from gpu.comparison import examples
from model import preset
from trainer import Recipe
from trainer.engine.native import EngineBackend

SEEDS, STEPS = 16, 60


def rates(name):
    recipe = Recipe()
    engine = EngineBackend(preset(name), recipe)
    state, hyper = examples(engine, recipe, SEEDS)
    engine.train(state, hyper, 5)
    for _ in range(5):
        start = time.process_time()
        engine.train(state, hyper, STEPS)
        yield SEEDS * STEPS / (time.process_time() - start)


torch.set_num_threads(1)
names = ("57p", "54p", "100p", "170p", "242p", "262p", "62p")
numbers = {name: round(statistics.median(rates(name))) for name in names}
Path(__file__).with_name("cores.json").write_text(json.dumps(numbers, indent=1) + "\n")
