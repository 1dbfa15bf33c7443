"""The first 20,000 steps of 512 seeds: their states, the transitions between these, a row a seed, a picture.

    PYTHONPATH=. python lab/2026-11-22-what-luck-is/luck_512.py FOLDER OUT.csv PICTURE.png

FOLDER: what paths.py kept of screen-256.yaml's recipe, `--until 20000`, of its seeds and of 320257 to 320512,
on which nothing in docs/luck.md was found. Prints the transitions, and of both halves what was claimed of the
first.

Axes: N seed, E evaluation, R probe.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
from luck import LEFT, ODD, STATES, load, states, transitions
from luck_pictures import along_steps, stack

from model import preset
from reports.plots import COLOURS, GREY, new_figure, png

STEPS = (1_000, 3_000, 5_000, 12_000, 20_000)
PANELS = {"odd": (-0.03, 1.03), "switches": (-0.03, 1.03), "stride": (-0.05, 0.75)}
FRESH = 320_257


def picture(paths: Any, state_NE: np.ndarray, names: list[str]) -> Any:
    """How many seeds are in which state, and three probes of each: those off the plateau in front."""
    figure = new_figure(10.0, 5.4)
    (shares, *first), *_ = grid = figure.subplots(2, 2, sharex=True)
    step_E = (np.arange(paths.evaluations) + 1) * 1_000
    stack(shares, state_NE)
    shares.set_title("seeds in each state", fontsize=11, loc="left")
    handles, labels = shares.get_legend_handles_labels()
    shares.legend(handles[::-1], labels[::-1], loc="lower right", fontsize=7)
    off = paths.token_NE[:, -1] >= LEFT
    for axis, (name, limits) in zip([*first, *grid[1]], PANELS.items(), strict=True):
        for n in np.argsort(off, kind="stable"):
            colour, alpha = (COLOURS[0], 0.35) if off[n] else (GREY, 0.35)
            axis.plot(step_E, paths.probes_NER[n, :, names.index(name)], color=colour, lw=0.6, alpha=alpha)
        axis.set_title(f"{name} (blue: off the plateau at the end)", fontsize=11, loc="left")
        axis.set_ylim(*limits)
    return along_steps(figure, grid.flat)


def rows_of(paths: Any, state_NE: np.ndarray, names: list[str]) -> list[dict[str, Any]]:
    rows = []
    for n, seed in enumerate(paths.seeds):
        grok = int(paths.grok_step[n])
        row: dict[str, Any] = {"seed": int(seed), "grok_step": grok if grok >= 0 else ""}
        for at in STEPS:
            e = at // 1_000 - 1
            row[f"state_{at}"], row[f"token_{at}"] = STATES[state_NE[n, e]], f"{paths.token_NE[n, e]:.4f}"
            row |= {f"{name}_{at}": f"{paths.probes_NER[n, e, r]:.4f}" for r, name in enumerate(names)}
        rows.append(row)
    return rows


def claimed(rows: list[dict[str, Any]]) -> str:
    """What docs/luck.md says of the first half: the choice at 3,000 stays; off the plateau is odd."""

    def odd(row: dict[str, Any], at: int) -> bool:
        return float(row[f"odd_{at}"]) > ODD

    off = [r for r in rows if float(r["token_12000"]) >= LEFT]
    stuck = [r for r in rows if float(r["token_12000"]) < LEFT]
    same = sum(odd(r, 3_000) == odd(r, 12_000) for r in rows)
    return (
        f"{len(rows)} seeds: the same choice at 3,000 and 12,000 {same}; off the plateau at 12,000 {len(off)}"
        f", odd of these {sum(odd(r, 12_000) for r in off)}; not odd of the others "
        f"{sum(not odd(r, 12_000) for r in stuck)} of {len(stuck)}; in the basin at 12,000 "
        f"{sum(r['state_12000'] == 'basin' for r in rows)}"
    )


def main(folder: str, out: str, image: str) -> None:
    spec = preset("57p")
    paths, names = load(sorted(Path(folder).glob("*-3*.npz")), spec), list(spec.probes())
    state_NE = states(paths)
    rows = rows_of(paths, state_NE, names)
    with Path(out).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for some in ([r for r in rows if r["seed"] < FRESH], [r for r in rows if r["seed"] >= FRESH], rows):
        if some:
            print(claimed(some))
    print(transitions(state_NE, (1_000, 3_000, 6_000, 12_000, 20_000)))
    Path(image).write_bytes(png(picture(paths, state_NE, names)))


if __name__ == "__main__":
    main(*sys.argv[1:])
