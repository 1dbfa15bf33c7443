"""The engine: its bits depend on nothing, no CPU, no threads, no company; its functions, tapes and builds.

That it does what the eager programs do is in tests/contract (families and optimisers).
"""

import hashlib
import math
from configparser import ConfigParser
from functools import partial

import numpy as np
import pytest
import torch

from model import preset
from tests import ROOT, needs_compiler
from tests.banks import assert_alone_as_in_company, finish
from tests.commands import python
from trainer import Bank, Pair, Recipe, Seed
from trainer.engine import native

pytestmark = needs_compiler


def small(spec, seeds):
    recipe = Recipe(steps=40, batch=24, eval_every=20, warmup=20, curriculum=((3, 15),), hold=0)
    return Bank(spec, [Pair(recipe, Seed.of(s)) for s in seeds])


# That its bits depend on nothing


@pytest.mark.parametrize("name", ["57p", "100p"])
def test_theta_is_the_same_in_any_company_slot_and_number_of_threads(name):
    assert_alone_as_in_company(partial(small, preset(name)))


def digest_of(name, steps, batch):
    """Of what this process makes of a bank."""
    how = {"warmup": 20, "curriculum": ((3, 20),), "fade_start": 20, "fade_end": steps}
    recipe = Recipe(steps=steps, batch=batch, eval_every=steps // 2, **how)
    bank = finish(Bank(preset(name), [Pair(recipe, Seed.of(s)) for s in (777, 1)]))
    made = [t for n in (0, 1) for t in (bank.result(n).theta_P, bank.result(n).curve_EM)]
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in made)).hexdigest()


OTHER_LIBRARIES = {
    "OPENBLAS_CORETYPE": "Prescott", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "2",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL",
}  # fmt: skip
"""Variables by which NumPy, BLAS and LAPACK take other ways than here."""
SCRIPT = """
import sys, torch
from {} import digest_of
print(torch.backends.cpu.get_cpu_capability(), digest_of(sys.argv[1], *map(int, sys.argv[2:])))
"""


def digest_on(capability, *args, module="tests.unit.test_native"):
    """What a lower kind of CPU makes of it: a process of its own, since torch looks once."""
    variables = OTHER_LIBRARIES | {"ATEN_CPU_CAPABILITY": capability}
    kind, digest = python("-c", SCRIPT.format(module), *args, cwd=ROOT, **variables).split()
    assert kind.lower() == capability, f"this CPU does as {kind}"
    return digest


KINDS = ["default", "avx2", "avx512"]
KINDS = KINDS[: KINDS.index(torch.backends.cpu.get_cpu_capability().lower()) + 1]


@pytest.mark.parametrize(
    ("name", "steps", "batch"),
    [
        ("57p", 40, 16),
        pytest.param("57p", 2_000, 64, marks=pytest.mark.full),
        *(pytest.param(n, 100, 32, marks=pytest.mark.full) for n in ("170p", "456p", "763p")),
    ],
)
def test_every_kind_of_cpu_makes_the_same_bits(name, steps, batch):
    """Registers of 16, 8 and 4 lanes, with and without an instruction for a fused multiply-add."""
    if len(KINDS) == 1:
        pytest.skip("this CPU is of one kind only")
    found = {kind: digest_on(kind, name, steps, batch) for kind in KINDS[:-1]}
    assert set(found.values()) == {digest_of(name, steps, batch)}, found


# Functions and tapes


def on_tape(function, x, *more):
    """A function of tensors, entry by entry, by the engine."""
    names = ["x", *(f"x{n}" for n in range(len(more)))]
    shapes = dict.fromkeys(names, (len(x),))
    tape = native.record(lambda g: [function(*(g[n] for n in names))], shapes, native.constant_fold)
    return torch.from_numpy(native.run(tape, np.concatenate([np.asarray(v, np.float32) for v in (x, *more)])))


WIDE = np.linspace(-80, 80, 40_001, dtype=np.float32)
NEAR = np.linspace(1e-3, 30, 40_001, dtype=np.float32)


@pytest.mark.parametrize(
    ("function", "x", "error", "relative"),
    [
        (torch.exp, np.linspace(-1, 1, 40_001), 2.5e-7, True),
        (torch.exp, WIDE, 1e-5, True),
        (torch.log, NEAR, 3e-7, False),
        (torch.log, np.geomspace(1e-30, 1e30, 40_001), 2e-7, True),
        (torch.sin, WIDE * 20, 2e-7, False),
        (torch.cos, WIDE * 20, 2e-7, False),
        (torch.rsqrt, NEAR, 2e-7, True),
    ],
)
def test_functions_are_as_exact_as_they_say(function, x, error, relative):
    x = torch.from_numpy(np.asarray(x, np.float32))
    expected = function(x.double())
    got = on_tape(function, x).double()
    apart = (got - expected).abs()
    assert float((apart / expected.abs().clamp(min=1e-30) if relative else apart).max()) < error


def test_functions_at_their_ends():
    x = np.array([math.nan, math.inf, -math.inf, 1e30, -1e30, 0.0])
    exp, cos = on_tape(torch.exp, x), on_tape(torch.cos, x)
    assert exp[0].isnan() and exp[1] > 1e38 and 0 < exp[2] < 2e-38 and exp[5] == 1
    assert cos[:5].isnan().all() and cos[5] == 1
    for function in (torch.maximum, torch.minimum):
        assert on_tape(function, [math.nan, 1.0], [1.0, math.nan]).isnan().all()


def test_denormal_numbers_are_0_in_the_engine_alone():
    """They make a step up to three times as long where a CPU is slow with them (docs/performance.md)."""
    products = on_tape(torch.mul, [1e-30, 1e-39, 1e-30], [1e-10, 1e30, 1e-7]).tolist()
    assert products == [0, 0, pytest.approx(1e-37, abs=1e-44)]
    assert torch.tensor(1e-30) * torch.tensor(1e-10) > 0  # of the same thread


ENTRYWISE = {
    "arithmetic": lambda a, b: (a + b) * (a - b) / (b.abs() + 1) - 2 * a + (1 - b) - (-a),
    "powers": lambda a, b: a.square() + a.abs().sqrt() + a**2 + 1 / (b.abs() + 1) + (b.abs() + 1).reciprocal(),
    "comparisons": lambda a, b: torch.where((a > b) & ~(a < 0) | (b >= 1) & (a <= 1), a, b * (a == b) + (a != b)),
    "limits": lambda a, b: a.clamp(-0.5, 0.5) + b.clamp(min=0) + b.clamp(max=a) + torch.maximum(a, b) + a.sign(),
    "bends": lambda a, b: a.abs() + 2 * b.abs(),
    "sums": lambda a, b: a - a.sum(1, keepdim=True) * b.mean(1, keepdim=True) + b.amax(1, keepdim=True),
    "views": lambda a, b: torch.cat([a[:, 2:], b[:, :2]], 1).flip(1).reshape(1, 2, -1).mT.flatten(1),
    "matrices": lambda a, b: (a.reshape(1, 2, -1).mT @ b.reshape(1, 2, -1)).flatten(1)[:, :4],
}  # fmt: skip


@pytest.mark.parametrize("name", ENTRYWISE)
def test_a_tape_does_what_torch_does(name):
    """And backwards, where torch has a gradient."""
    function = ENTRYWISE[name]
    size = float(name != "bends")  # which are at 0
    a, b = ((size * torch.randn(1, 8, generator=torch.Generator().manual_seed(n))).requires_grad_() for n in (1, 2))
    tape = native.record(lambda g: [function(g["a"], g["b"])], {"a": (8,), "b": (8,)}, native.constant_fold)
    given = torch.cat([a, b], 1)[0].detach().numpy()
    expected = function(a, b)
    torch.testing.assert_close(torch.from_numpy(native.run(tape, given)), expected[0].detach(), rtol=1e-5, atol=1e-6)
    pull = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3))
    wanted = torch.cat([*torch.autograd.grad(expected, (a, b), pull, materialize_grads=True)], 1)[0]
    got = native.run(tape, given, pull[0].numpy())
    torch.testing.assert_close(torch.from_numpy(got), wanted, rtol=1e-4, atol=1e-5)


# Builds


def test_every_source_and_record_goes_into_a_wheel():
    """Without them an installed package would have no engine, and no table."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    data = {name: text.split(", ") for name, text in config["options.package_data"].items()}
    tops = "model", "trainer", "search", "gpu", "reports", "adders", "compress", "own_modules", "studies"
    suffixes = ".cpp", ".h", ".parquet", ".css", ".html", ".js", ".j2"
    for source in [s for top in tops for s in (ROOT / top).rglob("*") if s.suffix in suffixes]:
        package = next(p for p in source.parents if (p / "__init__.py").exists())
        patterns = data["*"] + data.get(".".join(package.relative_to(ROOT).parts), [])
        assert any(source.relative_to(package).match(p) for p in patterns), source
