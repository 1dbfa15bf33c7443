"""The pictures of docs/luck.md, from what lab/2026-11-22-what-luck-is/luck.py has loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from model import Spec
from model.families.split_subspace.probes import values
from reports.plots import COLOURS, GREY, in_thousands, new_figure, png, quiet

NAMES = ("even", "between", "odd, on the plateau", "odd, off the plateau", "in the basin", "grokked")
SHADES = ("#d9dde2", "#b9bec5", "#f0c98c", "#8fb3dc", COLOURS[0], COLOURS[2])


def draw(paths: Any, state_NE: np.ndarray, spec: Spec, folder: Path) -> None:
    """Write three pictures into a folder."""
    for name, figure in (
        ("luck-states", shares(state_NE)),
        ("luck-probes", traces(paths, list(spec.probes()))),
        ("luck-codes", codes(paths, spec)),
    ):
        (folder / f"{name}.png").write_bytes(png(figure))


def shares(state_NE: np.ndarray) -> Any:
    """How many seeds are in which state, over steps."""
    figure = new_figure(9.0, 4.2)
    axis = figure.subplots()
    stack(axis, state_NE)
    axis.set(xlabel="training step", ylabel="seeds")
    in_thousands(axis)
    quiet(axis, grid="y")
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def stack(axis: Any, state_NE: np.ndarray) -> None:
    """The shares themselves, with the names that a legend takes."""
    step_E = (np.arange(state_NE.shape[1]) + 1) * 1_000
    counts = [(state_NE == s).sum(0) for s in range(len(NAMES))]
    axis.stackplot(step_E, counts, labels=NAMES, colors=SHADES)
    axis.set(xlim=(1_000, step_E[-1]), ylim=(0, len(state_NE)))


def along_steps(figure: Any, axes: Any) -> Any:
    """Several panels over training steps."""
    for axis in axes:
        in_thousands(axis)
        axis.tick_params(labelbottom=True)
        quiet(axis)
    figure.supxlabel("training step", fontsize=10)
    return figure


def traces(paths: Any, names: list[str]) -> Any:
    """Each probe of every seed over steps: winners in colour, in front."""
    figure = new_figure(13.0, 5.6)
    step_E = (np.arange(paths.evaluations) + 1) * 1_000
    won = paths.grok_step >= 0
    panels = {
        "odd": (-0.03, 1.03), "switches": (-0.03, 1.03), "stride": (-0.05, 0.75), "lead": (-0.5, 1.6),
    }  # fmt: skip
    grid = figure.subplots(2, 3, sharex=True)
    grid.flat[5].set_visible(False)
    for axis, (name, limits) in zip(grid.flat, panels.items(), strict=False):
        r = names.index(name)
        for n in np.argsort(won):
            colour, width, alpha = (COLOURS[0], 1.3, 0.9) if won[n] else (GREY, 0.6, 0.6)
            axis.plot(step_E, paths.probes_NER[n, :, r], color=colour, lw=width, alpha=alpha)
        axis.set_title(name, fontsize=11, loc="left")
        axis.set_ylim(*limits)
    token = grid.flat[4]
    for n in np.argsort(won):
        colour, width = (COLOURS[0], 1.3) if won[n] else (GREY, 0.6)
        token.plot(step_E, paths.token_NE[n], color=colour, lw=width)
    token.set_title("token accuracy, best so far", fontsize=11, loc="left")
    return along_steps(figure, grid.flat)


def codes(paths: Any, spec: Spec, step: int = 12_000) -> Any:
    """v(d), scaled to a height of 1 and rising: of seeds that grok, odd ones that do not, the others."""
    theta = torch.from_numpy(paths.theta_NEP[:, step // 1_000 - 1]).double()
    v = values(spec, theta).numpy()  # type: ignore[arg-type]
    v = v * np.where(v[:, 9:] < v[:, :1], -1, 1)
    v = (v - v.min(1, keepdims=True)) / (v.max(1, keepdims=True) - v.min(1, keepdims=True))
    won, odd = paths.grok_step >= 0, paths.probes_NER[:, step // 1_000 - 1, 0] > 0.9
    figure = new_figure(10.0, 3.3)
    groups = (
        ("will grok", won, COLOURS[0]),
        ("odd, will not", ~won & odd, COLOURS[1]),
        ("not odd", ~won & ~odd, GREY),
    )
    for axis, (name, values_N, colour) in zip(figure.subplots(1, 3, sharey=True), groups, strict=True):
        for line in v[values_N]:
            axis.plot(range(10), line, color=colour, lw=0.9, alpha=0.6)
        axis.set_title(f"{name}: {int(values_N.sum())} seeds", fontsize=11, loc="left")
        axis.set_xticks(range(10))
        quiet(axis)
    figure.supxlabel("digit", fontsize=10)
    figure.supylabel("what attention reads of it", fontsize=10)
    return figure
