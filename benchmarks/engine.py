"""All figures of the engine in lab/2026-11-20-throughput/README.md, in under 12 minutes on two cores.

    python -m benchmarks.engine [--output FOLDER] [--seconds 6] [--only throughput,memory,specs]

throughput: benchmarks.throughput for 57p, 100p, 170p and 456p, a JSON file each
memory: the largest resident size of a process that trains 57p with 1, 16 and 1,000 slots
specs: wall time of 40 different specs against one spec with as many seeds, smoke-length (60 steps of 32
    problems): as banks, one after another in this process, and as studies of `adder-search run`, on all cores

Writes files into the folder and prints the tables. Nothing else should run meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks import throughput
from model import PRESETS, Spec, preset
from trainer import Bank, Pair, Recipe, Seed

RUNS = {
    "57p-2x1": "--rung 57p --seeds 16,64 --processes 2 --threads 1",
    "57p-one-core": "--rung 57p --seeds 1,16 --processes 1 --threads 1",
    "100p": "--rung 100p --seeds 16 --processes 2 --threads 1",
    "170p": "--rung 170p --seeds 16 --processes 2 --threads 1",
    "456p": "--rung 456p --batch 512 --seeds 16 --processes 2 --threads 1",
}
SLOTS = (1, 16, 1_000)
SPECS, SEEDS = 40, 4  # of each spec
TOGGLED = ("no_eos", "frozen_eos", "frozen_plus", "tie_qk")
SMOKE: dict[str, Any] = {
    "steps": 60,
    "batch": 32,
    "eval_every": 20,
    "warmup": 10,
    "curriculum": ((3, 20),),
    "fade_start": 20,
    "fade_end": 60,
}
PARTS = ("throughput", "memory", "specs")


# Memory


def peak_of_slots(setup: throughput.Setup, wait: throughput.Wait, slots: int) -> int:
    """Bytes: a process that makes a bank, trains some steps of all of its slots and evaluates them."""
    wait()
    bank = throughput.make_bank(setup, slots)
    bank.backend.train(bank.state, bank.hyper, 2)
    bank.backend.evaluate(bank.state["theta"])
    return throughput.peak_memory(setup.device)


def memory(slots: Sequence[int] = SLOTS) -> dict[str, Any]:
    setup = throughput.Setup("57p", "cpu", Recipe().batch, 1, 1, 1.0, compiled=True)
    peaks = {n: throughput.in_processes(peak_of_slots, setup, [(n,)])[0] for n in slots}
    return {**throughput.about(setup), "peak_memory_bytes": peaks}


# Specs


def different(count: int = SPECS) -> list[Spec]:
    """Specs that all differ: every rung, then rungs with a constraint taken off or applied."""
    found = dict.fromkeys(PRESETS.values())
    for name in TOGGLED:
        for spec in PRESETS.values():
            if name in spec.constraints():
                found.setdefault(spec.toggled(name))
    return list(found)[:count]


def trained(specs: Sequence[Spec], seeds: int) -> float:
    """Seconds to train `seeds` of each spec, a bank a spec, programs included."""
    start = time.perf_counter()
    for spec in specs:
        bank = Bank(spec, [Pair(Recipe(**SMOKE), Seed.of(n)) for n in range(seeds)])
        while bank.advance():
            pass
    return time.perf_counter() - start


def study(name: str, specs: Sequence[Spec], seeds: int) -> str:
    """A study file of some specs."""
    recipe = {**SMOKE, "curriculum": [list(stage) for stage in SMOKE["curriculum"]]}
    return yaml.safe_dump(
        {
            "name": name,
            "recipe": recipe,
            "configurations": [{"model": spec.as_dict()} for spec in specs],
            "seeds": {"first": 777, "count": seeds},
            "stop": {"hopeless": False},
            "resources": {"cpu": 1, "gpu": 0},
        }
    )


def run(text: str, folder: Path) -> float:
    """Seconds of `adder-search run`, in a home of its own."""
    file = folder / "study.yaml"
    file.write_text(text)
    start = time.perf_counter()
    command = [sys.executable, "-m", "adder_search", "run", str(file), "--home", str(folder / "home")]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"adder-search run failed: {ran.stderr.strip()[-300:]}")
    return time.perf_counter() - start


def specs(count: int = SPECS, seeds: int = SEEDS, studies: bool = True) -> dict[str, Any]:
    """Both wall times, as banks with an empty cache and a filled one, as studies with a filled one."""
    torch.set_num_threads(1)
    many, one = different(count), [preset("57p")]
    with throughput.fresh_cache():
        trained(one, 1)  # the engine itself is there, and torch has woken up
        seconds = {"banks_built": trained(many, seeds), "banks": trained(many, seeds)}
        seconds["one_bank"] = trained(one, count * seeds)
        if studies:
            for name, its, each in (("studies", many, seeds), ("one_study", one, count * seeds)):
                with tempfile.TemporaryDirectory() as folder:
                    seconds[name] = run(study(name.replace("_", "-"), its, each), Path(folder))
    setup = throughput.Setup("57p", "cpu", SMOKE["batch"], 1, 1, 1.0, compiled=True)
    ratios = {"banks": seconds["banks"] / seconds["one_bank"]}
    ratios |= {"studies": seconds["studies"] / seconds["one_study"]} if studies else {}
    return {**throughput.about(setup), "specs": count, "seeds_each": seeds, "ratios": ratios, "s": seconds}


# Tables


def table(folder: Path) -> Iterator[str]:
    """Rows of lab/2026-11-20-throughput/README.md from the files in a folder."""
    yield "| rung | placed as | seeds | seed-steps/s | the published way | ratio | " + (
        "built, from the cache | sampling | step, of which kernel | evaluation | of the arithmetic | memory |"
    )
    yield "|---" * 12 + "|"
    for name in RUNS:
        path = folder / f"{name}.json"
        if path.exists():
            run_ = json.loads(path.read_text())
            yield from (row(run_, one) for one in run_["rows"])


def row(run_: dict[str, Any], one: dict[str, Any]) -> str:
    many = run_["processes"] > 1
    batch = f", batch {run_['batch']}" * (run_["batch"] != Recipe().batch)
    published = f"{one['baseline_seed_steps_per_s']:,.0f}"
    published += f"; {one['together_seed_steps_per_s']:,.0f} two at once" * many
    ratio = f"{one['ratio']:,.0f}" + f"; {one['ratio_together']:,.0f}" * many
    cells = [
        f"{run_['rung']}{batch}",
        "two processes of a thread" if many else "one process of a thread",
        f"{one['seeds']:,}",
        f"**{one['ours_seed_steps_per_s']:,.0f}**",
        published,
        ratio,
        f"{one['compile_cold_s']:.1f} s, {one['compile_warm_s']:.1f} s",
        f"{one['sampling']:.1%}",
        f"{one['step']:.0%}, {one['kernel']:.0%}",
        f"{one['evaluation']:.1%}",
        f"{one['of_arithmetic']:.0%}",
        f"{one['peak_memory_bytes'] / 1e6:,.0f} MB",
    ]
    return f"| {' | '.join(cells)} |"


# The command


def main(words: Sequence[str] | None = None) -> None:
    parser = throughput.OneLineParser(prog="python -m benchmarks.engine", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("lab/2026-11-20-throughput"), metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=6.0, help="that a row's speed is measured for")
    parser.add_argument("--only", default=",".join(PARTS))
    args = parser.parse_args(words)
    only = args.only.split(",")
    if unknown := set(only) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: there is {', '.join(PARTS)}")
    if not args.output.is_dir():
        parser.error(f"--output {args.output}: there is no such folder")
    if missing := throughput.missing_for_compilation():
        parser.error(f"the engine needs {missing}")
    for name, how in RUNS.items() if "throughput" in only else ():
        print(f"{name}: {how}", flush=True)
        target = args.output / f"{name}.json"
        throughput.main([*how.split(), "--seconds", str(args.seconds), "--json", str(target)])
    for name, measured in (("memory", memory), ("specs", specs)):
        if name in only:
            found = measured()
            (args.output / f"engine-{name}.json").write_text(json.dumps(found, indent=2) + "\n")
            print(f"{name}: {json.dumps(list(found.values())[-1])}", flush=True)
    print("\n".join(table(args.output)))


if __name__ == "__main__":
    main()
