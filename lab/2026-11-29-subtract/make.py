"""The tables of the page: why no net of split_subspace subtracts, and what every pilot came to."""

from __future__ import annotations

from math import comb
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from lab.plans import LAB
from lab.tables import markdown
from model import PRESETS, Spec
from model.tasks import ADDITION, in_columns
from trainer.checkpoints.checkpoint import Checkpoint

HERE = Path(__file__).parent
DIGITS, BASE, PROBLEMS = 10, 10, 200
NETS = {
    "subtracts, seed 8": HERE / "2-digits-seed8",
    "subtracts, seed 1": HERE / "2-digits-seed1",
    "adds (122p)": LAB / "2026-11-24-rope" / "122p-seed201",
}


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


def heads() -> str:
    """Return where the heads of two nets look for the units, and how what they write there goes with the digit.

    Attention is the mean over problems. Writes are along the direction in which both heads' differ most.
    """
    lines = []
    for words, place in NETS.items():
        checkpoint = Checkpoint.load(place)
        spec, theta_1P = checkpoint.spec, checkpoint.theta_P[None].double()
        written_HDV, attention_HT = _reads(spec, theta_1P)
        joined = torch.cat([w - w.mean(1, keepdim=True) for w in written_HDV], dim=1)
        direction_D = torch.linalg.svd(joined).U[:, 0]
        digits_V = torch.arange(BASE).double()
        y_units = in_columns(spec.task).digits + 3  # 0 X.. 0 0 Y..
        for h, (written_DV, attention_T) in enumerate(zip(written_HDV, attention_HT, strict=True)):
            goes = torch.corrcoef(torch.stack([direction_D @ written_DV, digits_V]))[0, 1]
            looks = (f"{float(attention_T[t]):.2f}" for t in (1, y_units))
            lines.append((words, h, *looks, f"{float(goes):+.2f}"))
    return markdown(("net", "head", "on the units of X", "of Y", "what it writes, with the digit"), lines)


def _reads(spec: Spec, theta_1P: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return of each head what it writes for a digit [D, V], and its mean attention to the prompt at EQUALS [T]."""
    wide = spec.expand(theta_1P)
    draw, most = torch.Generator().manual_seed(0), in_columns(spec.task).limit
    a, b = (torch.randint(0, most, (PROBLEMS,), generator=draw) for _ in range(2))
    tokens_TB = torch.stack(spec.prompt_of(torch.maximum(a, b), torch.minimum(a, b))).long()
    inputs_DV = wide["tokens"][0].T / wide["tokens"][0].T.square().mean(0).sqrt()
    turns_T4 = wide["turns"][0, : len(tokens_TB)]

    def turned(rows: Tensor, weights: Tensor) -> Tensor:
        """Return queries or keys [4, T, B] of the tokens, turned by their places."""
        entries_4V = rows @ inputs_DV
        entries_4V = entries_4V / entries_4V.square().mean(0).sqrt() * weights[:, None]
        x0, x1, x2, x3 = entries_4V[:, tokens_TB]
        cos0, cos1, sin0, sin1 = turns_T4.T[:, :, None]
        return torch.stack([x0 * cos0 - x1 * sin0, x0 * sin0 + x1 * cos0, x2 * cos1 - x3 * sin1, x2 * sin1 + x3 * cos1])

    keys_4TB = turned(wide["keys"][0], wide["key_norm"][0])
    written, attention = [], []
    for queries_4D, values_DD in zip(
        wide["queries"][0].split(4), wide["values"][0].split(inputs_DV.shape[0]), strict=True
    ):
        queries_4TB = turned(queries_4D, wide["query_norm"][0])
        scores_TB = (queries_4TB[:, -1:] * keys_4TB).sum(0)
        attention.append(scores_TB.softmax(0).mean(1))
        written.append(values_DD @ inputs_DV)
    return written, attention


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
