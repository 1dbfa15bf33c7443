"""Banks that are small enough for tests, what two of them must have in common, a θ that adds; the engine's parts."""

import ctypes

import numpy as np
import torch

from model import preset
from tests import CERTIFICATES
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.engine.native import LANES, EngineBackend, pointer
from trainer.engine.structures import PROBLEMS, Struct, declared
from trainer.engine.torch_backend import TorchBackend

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


def assert_is_eager(spec, pairs, curve=1e-4, theta=2e-4, measured=slice(None)):
    """A bank's compiled program ends where torch's eager one does, but for rounding, and has trained at all."""
    compiled, eager = (finish(Bank(spec, pairs, compiled=compiled)) for compiled in (True, False))
    assert isinstance(compiled.backend, EngineBackend) and isinstance(eager.backend, TorchBackend)
    for n, pair in enumerate(pairs):
        ours, wanted = compiled.result(n), eager.result(n)
        assert not torch.equal(ours.theta_P, spec.initial(pair.seed.init_seed))
        measures = ours.curve_EM[:, measured], wanted.curve_EM[:, measured]
        torch.testing.assert_close(*measures, rtol=curve, atol=curve)
        torch.testing.assert_close(ours.theta_P, wanted.theta_P, rtol=0, atol=theta)


def assert_alone_as_in_company(bank_of):
    """Two seeds have the same bits alone, with each other and with many, in any slot, by any number of threads."""
    alone = {seed: finish(bank_of([seed])).result(0) for seed in (1, 5)}
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            for seeds in ([5, 1], [*range(20)]):
                bank = finish(bank_of(seeds))
                for seed, result in alone.items():
                    assert_same(bank.result(seeds.index(seed)), result)
    finally:
        torch.set_num_threads(1)


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


class Lesson(Struct):
    """The numbers of a step, as the engine makes them of its first tape."""

    _fields_ = declared(PROBLEMS, "Lesson")

    @classmethod
    def some(cls, **fields):
        """A lesson whose other fields are 0: shares and errors that are off."""
        off = {name: None if kind is ctypes.c_void_p else 0 for name, kind in cls._fields_}
        return cls(**(off | fields))


def engine_tokens(programs, lesson):
    """A step's problems as the engine makes them: tokens [T + 1, B]."""
    program = programs.program
    tokens = np.zeros((-(-program.batch // LANES), program.sequence.length, LANES), np.int32)
    programs.engine.engine_problems(ctypes.byref(program), ctypes.byref(lesson), pointer(tokens))
    return torch.from_numpy(tokens).transpose(0, 1).flatten(1)[:, : program.batch]
