"""Tables of what two finishers made of the same parents."""

import pandas as pd

from lab.paired import PairedArms
from lab.tables import markdown, read


def finishers() -> str:
    """Return a line a method: parents taken to a proof and to 10,010, and the core-seconds of each."""
    lines = []
    for method, group in read("finished.csv").groupby("method", sort=False):
        near, left = group["exact"] >= 0.99, group.loc[group["right"] < 10_010, "right"]
        is_proved = group["verdict"] == "PROVED"
        lines.append(
            (method, len(group), is_proved.sum(), f"{is_proved[near].sum()} of {near.sum()}",
             (group["right"] == 10_010).sum(), f"{left.min():,} to {left.max():,}" if len(left) else "–",
             f"{group['cpu_s'].median():.0f}")
        )  # fmt: skip
    head = ("method", "parents", "proved", "of those from 99 %", "at 10,010", "the others, of 10,010")
    return markdown((*head, "core-seconds, median"), lines)


def difference() -> str:
    """Return the paired comparison of the share of proved parents and of those at 10,010, margin less lbfgs."""
    rows = read("finished.csv").set_index(["init_seed", "params", "method"])
    lines = []
    for name, success in (("proved", rows["verdict"] == "PROVED"), ("at 10,010", rows["right"] == 10_010)):
        table: pd.DataFrame = success.unstack("method").dropna()
        arms = PairedArms.of([(bool(m), bool(b)) for m, b in zip(table["margin"], table["lbfgs"], strict=True)])
        low, high = arms.interval
        span = f"{100 * arms.difference:.1f} points ({100 * low:.1f} to {100 * high:.1f})"
        lines.append((name, arms.both, arms.first, arms.second, arms.neither, span, f"{arms.p:.2g}"))
    head = ("", "both", "margin alone", "lbfgs alone", "neither", "difference, 95 %", "McNemar's p")
    return markdown(head, lines)
