"""The tables of the page: why no net of split_subspace subtracts, and what every pilot came to."""

from __future__ import annotations

from math import comb
from pathlib import Path

import pandas as pd
import torch

from lab.tables import markdown
from model import PRESETS
from model.tasks import ADDITION

HERE = Path(__file__).parent
DIGITS, BASE, PROBLEMS = 10, 10, 200


def largest_difference(name: str) -> float:
    """Return by how much a preset's logits differ, at random θ, where digits of some columns trade places."""
    spec, draw = PRESETS[name], torch.Generator().manual_seed(0)
    theta_1P = (spec.initial(1) + torch.randn(spec.params, generator=draw))[None].double()
    x, y, swap = (torch.randint(0, most, (DIGITS, PROBLEMS), generator=draw) for most in (BASE, BASE, 2))
    answer = ADDITION.columns(torch.tensor([1234567890]))  # any: of both the same
    before = [column.expand(PROBLEMS) for column in answer]
    logits = []
    for first, second in ((x, y), (torch.where(swap > 0, y, x), torch.where(swap > 0, x, y))):
        tokens = torch.stack(spec.sequence([*first], [*second], before))[None].int()
        logits.append(torch.stack(list(spec.forward(theta_1P, tokens, spec.prompt - 1))))
    return float((logits[0] - logits[1]).abs().max())


def most_right() -> float:
    """Return the largest share of a - b, a ≥ b, that a net can have right which sees no order in a column.

    Of k columns whose digits differ, 2^(k - 1) orders have a ≥ b. Each has another answer, and the net gives one.
    """
    shares = [comb(DIGITS, k) * (1 - 1 / BASE) ** k * (1 / BASE) ** (DIGITS - k) for k in range(DIGITS + 1)]
    return sum(share / 2 ** max(k - 1, 0) for k, share in enumerate(shares))


def blind() -> str:
    """Return the difference of presets, those of split_subspace first."""
    names = ("242p", "170p", "67p", "57p", "763p", "122p")
    lines = [(name, PRESETS[name].family, f"{largest_difference(name):.0e}") for name in names]
    return markdown(("preset", "family", "largest difference of a logit"), lines)


def pilots() -> str:
    """Return what each pilot came to, in the order in which they ended."""
    rows = pd.read_csv(HERE / "pilots.csv")
    lines = []
    for (name, task), its in rows.groupby(["pilot", "task"], sort=False):
        grokked = its["outcome"].eq("grokked").sum()
        steps = f"{its['steps'].max():,}"
        best = its.sort_values(["best_exact", "best_token"]).iloc[-1]
        shown = f"{best['best_exact']:.3f}", f"{best['best_token']:.3f}"
        lines.append((name, task, its["params"].iloc[0], steps, f"{grokked} of {len(its)}", *shown))
    head = ("pilot", "task", "numbers", "steps", "grokked", "best exact match", "its tokens")
    return markdown(head, lines)
