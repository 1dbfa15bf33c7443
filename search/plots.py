"""Pictures: the curves of a configuration's seeds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

GREY, COLOURS = "#b9bec5", ("#1f5aa6", "#c4432b", "#2b8a57", "#8a4fbf", "#b8860b")


def grokking_curves(curves: pd.DataFrame, grokked: list[tuple[int, int]], title: str, path: Path) -> None:
    """Exact match and token accuracy against steps, one line a seed, grokked seeds in front.

    curves: rows as the Parquet artifacts have them; grokked: (init_seed, data_seed) pairs.
    """
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 1, sharex=True)
    winners = {seed: COLOURS[i % len(COLOURS)] for i, seed in enumerate(sorted(grokked))}
    for seed, curve in curves.groupby(["init_seed", "data_seed"]):
        won = seed in winners
        style = (
            {"color": winners[seed], "lw": 1.9, "zorder": 3}
            if won
            else {"color": GREY, "lw": 0.8, "alpha": 0.8}
        )
        label = f"seed {seed[0]}" if won and len(winners) <= 8 else None
        for axis, measure in zip(axes, ("exact", "token"), strict=True):
            axis.plot(curve["step"], curve[measure], label=label, **style)
    count = curves[["init_seed", "data_seed"]].drop_duplicates().shape[0]
    figure.suptitle(f"{title}: {len(winners)} of {count} seeds grokked", fontsize=13)
    for axis, name in zip(axes, ("exact match", "token accuracy"), strict=True):
        axis.set(ylabel=f"{name}\n(5,000 selection problems)", ylim=(-0.02, 1.03))
        axis.grid(color="#e6e8eb", lw=0.8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_xlabel("training step")
    axes[1].xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    if winners and len(winners) <= 8:
        axes[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.savefig(path, dpi=110)
