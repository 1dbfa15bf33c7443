"""Banks that are small enough for tests, what two of them must have in common, a θ that adds; the engine's parts."""

import ctypes

import numpy as np
import torch

from model import preset
from tests import CERTIFICATES
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.engine.native import LANES, pointer

SPEC = preset("57p")
ADDER_P = Checkpoint.load(CERTIFICATES / "57p").theta_P
EVERY = 5
SMALL = {
    "steps": 2 * EVERY, "batch": 32, "eval_every": EVERY, "hold": 0, "curriculum": ((3, 3), (6, 3)),
    "warmup": 2 * EVERY,
}  # fmt: skip


def pair(seed, **recipe):
    return Pair(Recipe(**{**SMALL, **recipe}), Seed.of(seed))


def make(pairs, slots=None, compiled=True):
    return Bank(SPEC, pairs, slots=slots, compiled=compiled)


def finish(bank):
    while bank.advance():
        pass
    return bank


def results(bank):
    """Results by pair, so that their places in the list do not matter."""
    return {p: bank.result(n) for n, p in enumerate(bank.pairs)}


def assert_same(a, b):
    """Bit for bit: θ, curve and every fact."""
    facts = ("pair", "outcome", "steps", "grok_step", "held", "hopeless_step", "screen")
    for fact in (*facts, "best_step", "best_exact", "best_token"):
        assert getattr(a, fact) == getattr(b, fact), fact
    assert torch.equal(a.theta_P, b.theta_P), "θ differs"
    assert torch.equal(a.curve_EM, b.curve_EM), "curve differs"
    assert torch.equal(a.probes_ER.nan_to_num(9e9), b.probes_ER.nan_to_num(9e9)), "probes differ"


def assert_all_same(found, expected):
    for p, result in found.items():
        assert_same(result, expected[p])


def engine_tokens(programs, lesson):
    """A step's problems as the engine makes them: tokens [T + 1, B]."""
    program = programs.program
    tokens = np.zeros((-(-program.batch // LANES), program.sequence.length, LANES), np.int32)
    programs.engine.engine_problems(ctypes.byref(program), ctypes.byref(lesson), pointer(tokens))
    return torch.from_numpy(tokens).transpose(0, 1).flatten(1)[:, : program.batch]
