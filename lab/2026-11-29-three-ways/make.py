"""Table of the nets whose cases were decided in three ways."""

from lab.tables import markdown, read


def verdicts() -> str:
    """Return a line for each family: cases and pairs, and what the prover and check.py say of those that are right."""
    rows = read("differential.csv")
    lines = []
    for name, nets in [*rows.groupby("family", sort=True), ("all", rows)]:
        sums = nets[["cases", "pairs", "right", "proved", "checked", "wrong", "refuted"]].sum()
        pairs = f"{sums.pop('pairs') / 1e6:,.1f}"
        words = [f"{count:,}" for count in sums]
        faults = int(nets["fault"].notna().sum())
        lines.append((name, f"{len(nets):,}", words[0], pairs, *words[1:], faults))
    words = "family nets cases pairs·10⁻⁶ right proved checked wrong refuted contradictions"
    return markdown(words.split(), lines)
