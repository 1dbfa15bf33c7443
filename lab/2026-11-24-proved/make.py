"""Table of the seeds that decode all 10,010: how many are right on all 10^20 pairs."""

from lab.tables import markdown, read, with_interval
from search.stats.counting import GrokRate


def shares() -> str:
    """Return a line a preset: proved and refuted seeds of those that decode all 10,010, and the smallest margins."""
    rows = read("seeds.csv").query("right == 10_010")
    lines = []
    for name, group in [*rows.groupby("preset", sort=True), ("all", rows)]:
        proved = group[group["verdict"] == "PROVED"]
        counts = [int((group["verdict"] == v).sum()) for v in ("COUNTEREXAMPLE", "UNDECIDED")]
        here = int((proved["level"] == "here").sum())
        least = f"{proved['margin'].median():.2g}, {proved['margin'].min():.2g}" if len(proved) else "–"
        lines.append((name, with_interval(GrokRate(len(proved), len(group))), here, *counts, least))
    head = (
        "preset",
        "proved, of verified",
        "of these here alone",
        "refuted",
        "undecided",
        "median, least margin",
    )
    return markdown(head, lines)
