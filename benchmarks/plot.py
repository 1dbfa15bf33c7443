"""Throughput against seeds, from the files that `benchmarks.throughput` wrote.

python -m benchmarks.plot FILE.json... -o throughput.png
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reports.plots import COLOURS

NEEDED = ("rung", "device", "processes", "threads", "batch", "rows")


def read(path: Path) -> dict[str, Any]:
    """One run of the benchmark. Raises ValueError if the file is none."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot read it ({error.strerror})") from None
    except ValueError:
        raise ValueError(f"{path}: is no JSON") from None
    if not isinstance(run, dict) or any(name not in run for name in NEEDED) or not run["rows"]:
        raise ValueError(f"{path}: was not written by benchmarks.throughput, or has no rows")
    return run


def label(run: dict[str, Any]) -> str:
    """What sets a run apart."""
    cores = f"{run['processes']} × {run['threads']} thread{'s' * (run['threads'] > 1)}"
    where = "CUDA" if run["device"] == "cuda" else f"CPU, {cores}"
    return f"{run['rung']}, batch {run['batch']}, {where}"


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Seed-steps/s against seeds, both logarithmic: a line a run, and its baseline dashed in its colour."""
    figure = Figure(figsize=(9.6, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for i, run in enumerate(runs):
        _line(axes, run, COLOURS[i % len(COLOURS)])
    ticks = sorted({row["seeds"] for run in runs for row in run["rows"]})
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="seeds trained at once",
        ylabel="seed-steps/s (steps of one seed, all seeds together)",
    )
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    axes.set_title("Training throughput: problems, steps and evaluations included", fontsize=13)
    axes.grid(color="#e6e8eb", lw=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    figure.supxlabel(" · ".join(sorted({_machine(run) for run in runs})), fontsize=8, color="#6b7280")
    figure.savefig(path, dpi=120)


def _line(axes: Axes, run: dict[str, Any], colour: str) -> None:
    rows = sorted(run["rows"], key=lambda row: row["seeds"])
    seeds, rates = [row["seeds"] for row in rows], [row["ours_seed_steps_per_s"] for row in rows]
    best = max(rows, key=lambda row: row["ours_seed_steps_per_s"])
    most = f"up to {best['ours_seed_steps_per_s']:,.0f}, {best['ratio']:,.0f} × the published way"
    axes.plot(seeds, rates, color=colour, marker="o", ms=5, lw=1.8, label=f"{label(run)}:\n{most}")
    baseline = rows[0]["baseline_seed_steps_per_s"]
    axes.axhline(baseline, color=colour, ls=(0, (5, 4)), lw=1.2, label=f"the published way: {baseline:,.0f}\n")


def _machine(run: dict[str, Any]) -> str:
    return f"{run.get('hardware', 'unknown machine')}, torch {run.get('torch', '?')}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.json")
    parser.add_argument("-o", "--output", default=Path("throughput.png"), type=Path, metavar="FILE.png")
    args = parser.parse_args(arguments)
    try:
        runs = [read(path) for path in args.files]
        draw(runs, args.output)
    except OSError as error:
        parser.exit(2, f"error: {args.output}: cannot write there ({error.strerror})\n")
    except ValueError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
