"""Table of what each finisher made of the parents that it was given."""

import pandas as pd

from lab.tables import markdown, read


def finishers() -> str:
    """Return a line a method: parents taken to 10,010 and to a proof, and the core-seconds of each."""
    rows = read("finished.csv")
    lines = []
    for methods, group in rows.groupby("methods", sort=False):
        right, proved = int((group["right"] == 10_010).sum()), int((group["verdict"] == "PROVED").sum())
        left = group.loc[group["right"] < 10_010, "right"]
        span = f"{left.min():,} to {left.max():,}" if len(left) else "–"
        seconds = pd.to_numeric(group["cpu_s"]).median()
        lines.append((methods, len(group), right, proved, span, f"{seconds:.0f}"))
    head = ("method", "parents", "at 10,010", "proved", "the others, of 10,010", "core-seconds, median")
    return markdown(head, lines)
