"""Tables of what stops sets with one number fewer."""

import pandas as pd

from lab.tables import markdown, read

CLOSEST = 6


def rows() -> pd.DataFrame:
    return read("candidates.csv").sort_values(["left", "cpu_s"])


def kinds() -> str:
    """Return a line a parent and kind of set: how many were tried and accepted, and how far the closest came."""
    lines = []
    for (parent, kind), group in rows().groupby(["parent", "kind"], sort=True):
        accepted, left = group["verdict"] == "PROVED", group["left"]
        lines.append(
            (parent, kind, len(group), accepted.sum(), f"{left.min():.3f}, {left.median():.3f}",
             f"{group['cpu_s'].sum():.0f}")
        )  # fmt: skip
    return markdown(
        ("parent", "kind", "tried", "proved", "residual left: least, median", "core-seconds"), lines
    )


def closest() -> str:
    """Return the sets of each parent that came closest, with the pair that binds."""
    lines = []
    for parent, group in rows().groupby("parent", sort=True):
        for row in group.head(CLOSEST).itertuples():
            found = f"{row.verdict} ({row.level})" if isinstance(row.verdict, str) else "no"
            lines.append(
                (parent, row.ties_added, f"{row.left:.3f}", found, f"Z{row.digit} of {row.a} + {row.b}")
            )
    return markdown(
        ("parent", "tie added", "residual left", "right on all pairs", "binding pair at the end"), lines
    )
