"""Table and picture of one run from random values: `python lab/2026-11-23-one-run/make.py` writes the picture."""

from pathlib import Path

from lab.tables import count, forest, markdown, rate, with_interval
from search.stats.counting import GrokRate

FADED, WIDE, CURVED = "57p-faded's recipe", "57p-robust's recipe", "the same, finished by curvature"
MIRRORED = "57p-robust's recipe, mirror images rewritten"
SETS = (
    ("28", "inside", FADED, "one-run.csv where configuration == 'with 28@17p'"),
    ("18", "inside", FADED, "one-run.csv where configuration == 'with 18@17p'"),
    ("17", "inside", FADED, "one-run.csv where configuration == 'staged 17'"),
    ("15", "inside", FADED, "one-run.csv where configuration == 'long 15p'"),
    ("15", "inside", WIDE, "one-run-robust.csv where configuration == 'fresh-long 15p'"),
    ("14", "inside", WIDE, "one-run-finished.csv where configuration == 'plain-long 15p-777+14p'"),
    ("14", "inside", CURVED, "one-run-finished.csv where configuration == 'finished-long 15p-777+14p'"),
    ("13", "inside", WIDE, "one-run-finished.csv where configuration == 'plain-long 15p-777+13p'"),
    ("13", "inside", CURVED, "one-run-finished.csv where configuration == 'finished-long 15p-777+13p'"),
    ("22", "across", WIDE, "one-run-robust.csv where configuration == 'robust-with 22'"),
    ("12", "across", FADED, "one-run.csv where configuration == 'with 12'"),
    ("7", "across", FADED, "one-run.csv where configuration == 'long 15p+7p'"),
    ("7", "across", WIDE, "one-run-robust.csv where configuration == 'robust-long 15p+7p'"),
    ("7", "across", MIRRORED, "one-run-robust.csv where configuration == 'fresh-long 15p+7p'"),
    ("6", "across", WIDE, "one-run-finished.csv where configuration == 'plain-long 15p-777+6p'"),
    ("6", "across", CURVED, "one-run-finished.csv where configuration == 'finished-long 15p-777+6p'"),
)  # fmt: skip


def rates() -> str:
    lines = []
    for numbers, ties, recipe, source in SETS:
        verified, _ = count(source, "correct == 10010")
        lines.append((numbers, ties, recipe, with_interval(rate(source)), verified))
    head = ("numbers", "ties", "wide stage", "all 5,000 selection problems right", "of these all 10,010")
    return markdown(head, lines)


if __name__ == "__main__":
    best: dict[str, GrokRate] = {}
    for numbers, ties, _, source in SETS:
        name, found = f"{numbers} numbers, ties {ties}", rate(source)
        best[name] = max(best.get(name, found), found, key=lambda r: r.rate or 0.0)
    forest(best, Path(__file__).with_name("one-run.png"))
