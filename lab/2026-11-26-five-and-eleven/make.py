"""Tables of what stops sets with one number fewer."""

import pandas as pd

from lab.tables import markdown, read

CLOSEST = 3


def rows() -> pd.DataFrame:
    table = read("candidates.csv").sort_values(["left", "cpu_s"])
    return table.assign(parent=table["parent"].str.replace(r"planted.*", "planted in 6p", regex=True))


def kinds() -> str:
    """Return a line a parent and kind of set: how many were tried and accepted, and how far the closest came."""
    lines = []
    for (parent, kind), group in rows().groupby(["parent", "kind"], sort=True):
        accepted, left = group["verdict"] == "PROVED", group["left"]
        lines.append(
            (parent, kind, len(group), accepted.sum(), f"{left.min():.3f}, {left.median():.3f}",
             f"{group['cpu_s'].sum():.0f}")
        )  # fmt: skip
    return markdown(("parent", "kind", "tried", "proved", "residual left: least, median", "core-seconds"), lines)


def wrong() -> str:
    """Return a line a parent: the set with the largest smallest margin that was not accepted, and its wrong pairs."""
    lines = []
    for row in read("wrong.csv").itertuples():
        share = [float(f"{float(count) / 1e20:.2g}") for count in (row.wrong, row.possible)]
        lines.append((row.parent, row.ties_added, f"{row.margin:.2g}", f"{share[0]:g} to {share[1]:g}"))
    return markdown(("parent", "ties added", "smallest margin, of the spread", "wrong, of all pairs"), lines)


def closest() -> str:
    """Return the sets of each parent that came closest, with the pair that binds."""
    lines = []
    planned = rows()[lambda r: r["kind"].isin(["single", "regrouped", "split"]) & (r["parent"] != "planted in 6p")]
    for parent, group in planned.groupby("parent", sort=True):
        for row in group.head(CLOSEST).itertuples():
            verdict = f"{row.verdict} ({row.level})" if isinstance(row.verdict, str) else "no"
            lines.append((parent, row.ties_added, f"{row.left:.3f}", verdict, f"Z{row.digit} of {row.a} + {row.b}"))
    return markdown(("parent", "tie added", "residual left", "right on all pairs", "binding pair at the end"), lines)
