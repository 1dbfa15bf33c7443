"""What makes 170p grok: recipes that lack one thing, on the same seeds."""

from lab.tables import markdown, read
from reports.ratios import mcnemar

BASE = "three, longer"
ARMS = {
    "restarts": "without restarts", "carry kinds": "without carry kinds", "β2 of 0.95": "usual beta2",
    "the learning rate": "usual rate",
}  # fmt: skip


def needed() -> str:
    """Return for each thing the grokked seeds without it, those lost and gained by that, and McNemar's exact p."""
    runs = read("table-base-170p.csv").pivot(index="init_seed", columns="arm", values="outcome") == "grokked"
    lines = []
    for name, arm in ARMS.items():
        lost, gained = int((runs[BASE] & ~runs[arm]).sum()), int((~runs[BASE] & runs[arm]).sum())
        lines.append((name, f"{runs[arm].sum()} of {len(runs)}", lost, gained, f"{mcnemar(lost, gained):.2g}"))
    return markdown(("without", "grokked", "seeds lost", "gained", "p"), lines)


if __name__ == "__main__":
    print(needed())
