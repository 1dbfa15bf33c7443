"""The CUDA engine on a GPU: its bits, its speed, a study, quarters, a profile. `benchmarks/gpu.sh` runs all of it.

    python -m benchmarks.gpu [--json OUT] [--small] [--part NAME]

Parts run in this order, each in a process of its own with a limit, and the JSON is written after each: the first ones
matter most. Where bits are not the CPU engine's, nothing that follows means anything, and only the profile is made.

    card       GPU, driver, NVRTC; seconds to compile; registers, local memory, seeds of a wave
    bits       57p: 1, 100 and 300 steps and 20 late ones of two seeds, twice; then 20 steps of a wave
    sanitizer  compute-sanitizer's memcheck, racecheck and synccheck on two steps, where it is installed
    speed      seed-steps/s of 57p by number of seeds: the median of five times
    study      57p through `adder-search run`, a wave of slots: engine, seed-steps/s, a seed trained again by the CPU
    profile    ncu on five steps of a wave, where it is installed
    shapes     bits and speed of other shapes
    quarters   four processes with a quarter of a wave each, in turns and by MPS, against one with the wave

Pass marks: every bit; 1,000,000 seed-steps/s of a wave of 57p; the study at 80 % of that.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.throughput import commit, processor
from gpu.backend import CudaBackend
from gpu.card import TEAM, Card, CardModule
from gpu.comparison import LATE, compare, examples
from model import preset
from trainer import Recipe
from trainer.engine.native import EngineBackend

LIMITS_S = {
    "card": 60, "bits": 90, "sanitizer": 120, "speed": 90, "study": 150, "profile": 90, "shapes": 150, "quarters": 60,
}  # fmt: skip
GOOD_SPEED, GOOD_STUDY = 1_000_000, 0.8
REGISTERS, LOCAL_BYTES = 4, 3  # numbers of a function's attributes
SHAPES = ("54p", "100p", "170p", "242p", "262p", "62p")
MPS = "nvidia-cuda-mps-control"
Numbers = dict[str, Any]


def engines(name: str = "57p", small: bool = False) -> tuple[CudaBackend, EngineBackend, Recipe]:
    """Return both engines for a preset."""
    recipe, spec = Recipe(batch=32 if small else 256), preset(name)
    return CudaBackend(spec, recipe, Card()), EngineBackend(spec, recipe), recipe


def wave_of(cuda: CudaBackend) -> int:
    """Return how many seeds run at once, as the driver says."""
    program, blocks = cuda.cuda_program, ctypes.c_int()
    assert isinstance(cuda.module, CardModule)
    module = cuda.module.that_fits(program)
    size = module.block_bytes(program)
    module.allow(size)
    asked = (
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        ctypes.byref(blocks),
        module.functions["engine_train"],
    )
    module.card._call(*asked, module.teams * TEAM, ctypes.c_size_t(size))
    return blocks.value * module.card.gpu.processors * module.teams


def card(small: bool) -> Numbers:
    start = time.perf_counter()
    cuda, *_ = engines(small=small)
    built_s, numbers, machine = time.perf_counter() - start, {}, cuda.machine
    assert isinstance(machine, Card)
    for name, attribute in (("registers", REGISTERS), ("local_bytes", LOCAL_BYTES)):
        value = ctypes.c_int()
        function = cuda.module.functions["engine_train"]  # type: ignore[attr-defined]
        machine._call("cuFuncGetAttribute", ctypes.byref(value), attribute, function)
        numbers[name] = value.value
    about = {"processor": processor(), "commit": commit(), "torch": torch.__version__}
    return {**machine.about, **about, **numbers, "wave": wave_of(cuda), "built_s": built_s, "passed": True}


def bits(small: bool) -> Numbers:
    cuda, cpu, recipe = engines(small=small)
    two, its_hyper = examples(cpu, recipe, 2)
    results = {}
    for start, steps in ((0, 1), (0, 100), (0, 300), (LATE, 20)):
        state = {**two, "step": two["step"] + start}
        for turn in (1, 2):
            results[f"{steps} steps from {start}, {turn}"] = compare(cuda, cpu, state, its_hyper, steps)
    results["a wave"] = compare(cuda, cpu, *examples(cpu, recipe, wave_of(cuda)), 2 if small else 20)
    return {"different": {k: v for k, v in results.items() if v}, "passed": not any(results.values())}


def sanitizer(small: bool) -> Numbers:
    results: Numbers = {"passed": True}
    for tool in ("memcheck", "racecheck", "synccheck"):
        said = _tool("compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *_steps(2, 2))
        results[tool] = said and said.stdout[-300:]
        results["passed"] &= not said or said.returncode == 0
    return results


def speed(small: bool) -> Numbers:
    cuda, cpu, recipe = engines(small=small)
    wave = wave_of(cuda)
    counts = (2, wave) if small else (2, 64, wave // 4, wave // 2, wave, 2 * wave, 8 * wave)
    rates = {str(n): rate(cuda, cpu, recipe, n, 5 if small else 1_000) for n in counts}
    return {"seed_steps_per_s": rates, "wave": wave, "passed": small or rates[str(wave)] >= GOOD_SPEED}


def rate(cuda: CudaBackend, cpu: EngineBackend, recipe: Recipe, seeds: int, steps: int) -> float:
    """Return the median of seed-steps/s, copies to the GPU and back included."""
    state, hyper = examples(cpu, recipe, seeds)
    cuda.train(state, hyper, 1)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        cuda.train(state, hyper, steps)
        times.append(time.perf_counter() - start)
    return seeds * steps / statistics.median(times)


def study(small: bool) -> Numbers:
    cuda, *_ = engines(small=small)
    wave = wave_of(cuda)
    del cuda
    recipe = {"steps": 20, "eval_every": 10, "batch": 32} if small else {"steps": 20_000}
    file = {
        "name": "gpu", "model": "57p", "recipe": recipe, "seeds": {"first": 777, "count": wave},
        "stop": {"hopeless": False}, "resources": {"gpu": 1, "slots": wave, "seeds_per_trial": wave},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        home, path = Path(folder) / "home", Path(folder) / "gpu.yaml"
        path.write_text(yaml.safe_dump(file))
        start = time.perf_counter()
        said = _adder("run", str(path), "--home", str(home))
        wall_s = time.perf_counter() - start
        _adder("pull", "gpu", "--seed", "777", "-o", f"{folder}/one", "--home", str(home))
        again = json.loads(_adder("rerun", f"{folder}/one", "--json"))  # by the CPU engine
        checkpoint = json.loads(next(Path(folder, "one").glob("*.json")).read_text())
    environment = checkpoint["provenance"]["environment"]
    speeds = re.findall(r"([\d,]+) seed-steps/s", said)
    return {
        "wall_s": wall_s, "seed_steps_per_s": int(speeds[-1].replace(",", "")) if speeds else None,
        "environment": environment, "again": again, "passed": environment["engine"] == "cuda",
    }  # fmt: skip


def profile(small: bool) -> Numbers:
    of_the_wave = _steps(wave_of(engines(small=small)[0]), 5)
    said = _tool("ncu", "--clock-control", "none", "--set", "full", "-k", "engine_train", *of_the_wave)
    return {"ncu": said and said.stdout[-20_000:], "passed": True}


def shapes(small: bool) -> Numbers:
    results: Numbers = {"passed": True}
    for name in SHAPES[:1] if small else SHAPES:
        cuda, cpu, recipe = engines(name, small)
        different = compare(cuda, cpu, *examples(cpu, recipe, 2))
        seeds = wave_of(cuda)
        results[name] = {
            "different": different, "wave": seeds,
            "seed_steps_per_s": rate(cuda, cpu, recipe, seeds, 5 if small else 300),
        }  # fmt: skip
        results["passed"] &= not different
    return results


def quarters(small: bool) -> Numbers:
    """Four processes at once, each with a quarter of a wave: as they are, and by an MPS of their own."""
    cuda, cpu, recipe = engines(small=small)
    wave, steps = wave_of(cuda), 5 if small else 2_000
    results: Numbers = {"one_process": rate(cuda, cpu, recipe, wave, steps), "passed": True}
    command = [sys.executable, "-m", "benchmarks.gpu", "--quarter", f"{max(wave // 4, 1)},{steps}"]

    def together(environment: dict[str, str]) -> float:
        def run(_: str) -> float:
            ran = subprocess.run(
                command + ["--small"] * small, env=os.environ | environment, capture_output=True, text=True
            )
            return float(ran.stdout.splitlines()[-1])

        with ThreadPoolExecutor(4) as pool:
            return sum(pool.map(run, "1234"))

    results["four_processes"] = together({})
    if shutil.which(MPS):
        with tempfile.TemporaryDirectory() as folder:
            mps = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
            try:
                subprocess.run([MPS, "-d"], env=os.environ | mps, check=True)
                results["four_processes_by_mps"] = together(mps)
            except (OSError, subprocess.CalledProcessError, IndexError) as error:
                results["four_processes_by_mps"] = f"failed: {error}"
            finally:
                subprocess.run([MPS], input="quit\n", text=True, env=os.environ | mps)
    return results


def _steps(seeds: int, count: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gpu", "--steps", f"{seeds},{count}"]


def _tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run one of NVIDIA's tools, or return None where it is not installed."""
    path = shutil.which(name)
    return path and subprocess.run([path, *arguments], capture_output=True, text=True)  # type: ignore[return-value]


def _adder(*words: str) -> str:
    ran = subprocess.run([sys.executable, "-m", "adder_search", *words], capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"adder-search {words[0]} failed: {ran.stderr.strip()[-300:]}")
    return ran.stdout


PARTS: dict[str, Callable[[bool], Numbers]] = {
    f.__name__: f for f in (card, bits, sanitizer, speed, study, profile, shapes, quarters)
}


def in_a_process(part: str, small: bool) -> Numbers:
    """Return what a part found, or how it failed."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", part] + ["--small"] * small
    start = time.perf_counter()
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMITS_S[part])
        results: Numbers = json.loads(ran.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        results = {"failed": f"no end in {LIMITS_S[part]} s"}
    except (ValueError, IndexError):
        results = {"failed": f"exit code {ran.returncode}: {ran.stderr.strip()[-500:]}"}
    return {"passed": False, **results, "s": round(time.perf_counter() - start, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--small", action="store_true", help="a rehearsal: few steps")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--steps", help="SEEDS,STEPS: only train, for tools that look on")
    parser.add_argument("--quarter", help="SEEDS,STEPS: print seed-steps/s")
    args = parser.parse_args()
    if args.steps:
        cuda, cpu, recipe = engines(small=args.small)
        seeds, steps = map(int, args.steps.split(","))
        cuda.train(*examples(cpu, recipe, seeds), steps)
        return 0
    if args.quarter:
        seeds, steps = map(int, args.quarter.split(","))
        print(rate(*engines(small=args.small), seeds, steps))
        return 0
    if args.part:
        print(json.dumps(PARTS[args.part](args.small)))
        return 0
    results: dict[str, Numbers] = {}
    for part in PARTS:
        if results.get("bits", {}).get("passed", True) or part == "profile":
            results[part] = in_a_process(part, args.small)
            if part == "study" and results[part]["passed"] and not args.small:
                bare = max(results["speed"].get("seed_steps_per_s", {"": float("inf")}).values())
                results[part]["passed"] = (results[part]["seed_steps_per_s"] or 0) >= GOOD_STUDY * bare
            print(
                f"{part:10} {'passed' if results[part]['passed'] else 'FAILED'}  {_short(results[part])}",
                flush=True,
            )
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(f["passed"] for f in results.values()) else 1


def _short(results: Numbers) -> str:
    return json.dumps({k: v for k, v in results.items() if k != "passed"})[:160]


if __name__ == "__main__":
    sys.exit(main())
