"""A GPU that is not there, hangs, fails or computes wrongly does no harm: one line, and the CPU engine goes on."""

import ctypes
import dataclasses
import errno
import itertools
import logging
import os
import sys
import threading
from types import SimpleNamespace

import pytest

from benchmarks.gpu import wave_of
from gpu import check, driver, guard, nvrtc
from gpu.backend import CudaBackend
from gpu.card import Card, cubin
from gpu.driver import CudaError
from gpu.guard import CheckedBackend
from tests import needs_compiler
from tests.banks import SPEC, assert_all_same, finish, pair, results
from tests.crashes import failing
from trainer import Bank, Recipe

pytestmark = [needs_compiler, pytest.mark.usefixtures("few_selection_problems")]


@pytest.fixture
def gpu(libraries, monkeypatch, caplog):
    """Set how the stand-in fails."""
    monkeypatch.setenv(driver.SWITCH, str(libraries))
    monkeypatch.setattr(driver, "ANSWER_S", 20.0)
    monkeypatch.setattr(check, "TEST_S", 300.0)
    caplog.set_level(logging.WARNING)

    def fail(how="", after=0):
        monkeypatch.setenv("STANDIN", how)
        monkeypatch.setenv("STANDIN_AFTER", str(after))

    for cached in (driver.gpus, nvrtc.library):
        cached.cache_clear()
    yield fail
    fail()
    for thread in threading.enumerate():  # one that hung would else go on while Python ends
        if thread.name == guard.THREAD:
            thread.join()
    for cached in (driver.gpus, nvrtc.library):
        cached.cache_clear()


def bank_of(device="cuda"):
    return Bank(SPEC, [pair(3, steps=40, batch=16)], device=device)


def trained(caplog):
    """Train on the GPU. Return the bank and what was said; the results are the CPU's."""
    for path in (check.cache_folder() / "cuda").glob("*.json"):
        path.unlink()
    bank = finish(bank_of())
    assert_all_same(results(bank), results(finish(bank_of("cpu"))))
    assert bank.device == "cpu" == bank.state["theta"].device.type
    return bank.backend, [record.getMessage() for record in caplog.records]


def test_a_gpu_trains_what_a_cpu_would(gpu, caplog, monkeypatch):
    gpu()
    programs, said = trained(caplog)
    assert (programs.name, said) == ("cuda", [])
    assert programs.about == {"device": "Stand-in", "driver": "CUDA 13.0", "nvrtc": "13.0"}
    assert wave_of(programs.cuda) == 4, "two blocks of two teams"
    monkeypatch.setattr(check, "_tested", None)  # the verdict is kept
    assert isinstance(bank_of().backend, CheckedBackend)


def test_a_block_has_one_seed_where_two_do_not_fit(gpu, caplog, monkeypatch):
    monkeypatch.setattr(guard, "verdict", lambda *_: "")
    gpu()
    cuda = CudaBackend(SPEC, bank_of("cpu").pairs[0].recipe, Card())
    two = cuda.module.block_bytes(cuda.cuda_program)
    for shared, teams in ((two, 2), (two - 1, 1), (two // 2, 1)):
        cuda.module.card.gpu = dataclasses.replace(cuda.module.card.gpu, shared=shared)
        assert cuda.module.that_fits(cuda.cuda_program).teams == teams
        assert cuda.module.card.gpu.wave(two) == teams
    cuda.module.card.gpu = dataclasses.replace(cuda.module.card.gpu, shared=two // 2 - 1)
    with pytest.raises(CudaError, match=f"a seed needs {two // 2:,} bytes of shared memory"):
        cuda.module.that_fits(cuda.cuda_program)
    monkeypatch.setenv("STANDIN_SHARED", str(two // 2))
    driver.gpus.cache_clear()
    programs, said = trained(caplog)
    assert (programs.name, said) == ("cuda", []) and wave_of(programs.cuda) == 2, "two blocks of one team"


IN_TEST = "the CUDA engine failed its test on Stand-in"
FAILED = "cuLaunchKernel failed (CUDA_ERROR_LAUNCH_FAILED)"
OTHER = "the CUDA engine gave other bits on Stand-in"


@pytest.mark.parametrize(
    ("how", "limit_s", "why"),
    [
        ("no driver", 300, "cuInit failed (CUDA_ERROR_UNKNOWN)"),
        ("hang at once", 300, "CUDA's driver did not answer in 1 s"),
        ("hang", 1, f"{IN_TEST}: no end of a test in 1 s"),
        pytest.param("wrong", 300, f"{IN_TEST}: other bits (step 1, seed 0, theta[0])", marks=pytest.mark.full),
        pytest.param("error", 300, f"{IN_TEST}: {FAILED}", marks=pytest.mark.full),
        pytest.param("crash", 300, f"{IN_TEST}: a test that ended its process (code -6)", marks=pytest.mark.full),
    ],
)
def test_a_gpu_that_fails_its_test_is_left_alone(how, limit_s, why, gpu, caplog, monkeypatch):
    monkeypatch.setattr(check, "TEST_S", float(limit_s))
    monkeypatch.setattr(driver, "ANSWER_S", 1.0 if how == "hang at once" else 20.0)
    gpu(how)
    programs, said = trained(caplog)
    assert said == [f"{why}; training by the CPU engine"]
    assert (programs.name, programs.about) == ("native", {})


@pytest.mark.parametrize(
    ("how", "after", "name", "why"),
    [
        pytest.param("wrong", 0, "native", f"{OTHER} (step 1, seed 0, theta[0])", marks=pytest.mark.full),
        pytest.param(
            "wrong", 5, "cuda, then native", f"{OTHER} (within 5 steps, slot 0, state[0])", marks=pytest.mark.full
        ),
        ("error", 5, "cuda, then native", FAILED),
        ("hang", 0, "native", "Stand-in did not answer in 1 s"),
        pytest.param("hang", 5, "cuda, then native", "Stand-in did not answer in 20 s", marks=pytest.mark.full),
    ],
)
def test_a_gpu_that_fails_later_is_replaced(how, after, name, why, gpu, libraries, caplog, monkeypatch):
    """At a bank's start, or while it trains: what was asked is done again."""
    monkeypatch.setattr(guard, "verdict", lambda *_: "")
    monkeypatch.setattr(guard, "LONGEST_S", {"hang": 20.0 if after else 1.0}.get(how, 600.0))
    standin = ctypes.CDLL(str(libraries / "libcuda.so.1"))
    ctypes.c_int.in_dll(standin, "launches").value = 0
    gpu(how, after)
    programs, said = trained(caplog)
    assert said == [f"{why}; training by the CPU engine"]
    assert programs.name == name


CARD = driver.Gpu("Stand-in", "sm_90", 1, 227 << 10, 1_980, "CUDA 13.0")


@pytest.fixture
def untested(monkeypatch):
    """Neither compile nor test anything. Returns what was asked for."""
    asked = []
    monkeypatch.setattr(nvrtc, "version", lambda: "13.0")
    monkeypatch.setattr(nvrtc, "compiled", lambda *_: asked.append("cubin") or b"cubin")
    monkeypatch.setattr(check, "_tested", lambda *_: asked.append("verdict") or "")
    return asked


def test_whichever_call_of_the_cache_fails_cubin_and_verdict_are_used(untested, monkeypatch, tmp_path, caplog):
    for at in itertools.count(1):
        folder = tmp_path / str(at)
        folder.mkdir(mode=0o700)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        with failing(at) as calls:
            assert cubin(SPEC.kernel(), {}, "sm_90") == b"cubin" and check.verdict(CARD, SPEC, Recipe()) == ""
        if len(calls) < at:
            break
    assert at > 10 and sorted(file.suffix for file in (folder / "cuda").iterdir()) == [".cubin", ".json"]
    assert {record.name for record in caplog.records} == {"trainer.gpu"} and "is not kept: " in caplog.text


@pytest.mark.parametrize("changed", ["model/ops.py", "family/forward.py", "task.py"])
def test_a_verdict_is_of_the_code_that_makes_wide_tensors(changed, untested, monkeypatch, tmp_path):
    """Of another package too."""
    for name in ("model/__init__.py", "model/ops.py", "family/spec.py", "family/forward.py", "task.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
    places = {"family.spec": tmp_path / "family" / "spec.py", "task": tmp_path / "task.py"}
    for place, file in places.items():
        monkeypatch.setitem(sys.modules, place, SimpleNamespace(__file__=str(file)))
    monkeypatch.setattr(check, "model", SimpleNamespace(__file__=str(tmp_path / "model" / "__init__.py")))
    monkeypatch.setattr(type(SPEC), "places", lambda spec: set(places))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):  # the second time it is known
        check.verdict(CARD, SPEC, Recipe())
        assert untested == ["verdict"]
    (tmp_path / changed).write_text("changed = True\n")
    check.verdict(CARD, SPEC, Recipe())
    assert untested == ["verdict"] * 2


def test_what_the_system_refuses_is_a_line(monkeypatch, caplog):
    def refused(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(guard, "gpus", lambda: ((CARD,), ""))
    monkeypatch.setattr(guard, "verdict", refused)
    assert guard.checked_backend(SPEC, Recipe()) is None
    assert caplog.messages == ["[Errno 5] Input/output error; training by the CPU engine"]


def test_what_lies_beside_is_not_imported_by_the_process_that_asks_the_driver(here, monkeypatch):
    for name in ("gpu", "model", "trainer"):
        (here / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", f"{here}:")
    visible, why = driver.visible_with({driver.SWITCH: str(here)})
    assert visible == () and why.startswith("CUDA's driver cannot be loaded")


def test_without_a_gpu_nothing_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(driver, "DEVICES", tmp_path)
    monkeypatch.delenv(driver.SWITCH, raising=False)
    monkeypatch.setattr(driver.subprocess, "run", None)
    assert driver.gpus.__wrapped__() == ((), "")
    (tmp_path / "nvidia0").touch()
    assert driver.is_declared()
    monkeypatch.setenv(driver.SWITCH, "off")
    assert not driver.is_declared()
    assert bank_of().backend.name == "native"
