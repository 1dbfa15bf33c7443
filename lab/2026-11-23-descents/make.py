"""Tables of the thresholds and of who proposes; the picture of the thresholds: run this file to write it."""

from pathlib import Path

from lab.plans import LAB
from lab.tables import BLUE, GREY, markdown, read
from lab.thresholds import thresholds as smallest
from model.tied import count
from trainer.checkpoints.checkpoint import Checkpoint


def thresholds() -> str:
    """Return the smallest proved certificate of each threshold beside the published number."""
    lines = []
    for row in proved():
        cells = [f"{row[way]['numbers']} ({row[way]['certificate']})" for way in ("inside", "across", "constants")]
        lines.append((row["threshold"], row["published"] or "–", *cells))
    return markdown(("threshold", "published", "inside tensors", "across tensors", "with constants"), lines)


def proved() -> list[dict]:
    return [row for row in smallest(LAB / "certificates") if row["standard"] == "proved"]


def agreement() -> str:
    """Return how far two trainings into the same ties end from each other, from their certificates."""
    lines = []
    for name in ("6p", "7p", "13p", "15p"):
        one, two = (Checkpoint.load(LAB / "certificates" / n) for n in (name, f"{name}-one-run"))
        assert one.spec == two.spec
        apart_P = 100 * (two.theta_P.double() / one.theta_P.double() - 1).abs()
        seeds = [c.seed["init_seed"] for c in (one, two)]
        ties = "inside" if count(one.spec).inside == one.spec.params else "across"
        row = (name, ties, *seeds, *(f"{float(f'{x:.2g}'):g} %" for x in (apart_P.median(), apart_P.max())))
        lines.append(row)
    head = (
        "numbers",
        "ties",
        "compressed from seed",
        "one run of seed",
        "half differ by at most",
        "all by at most",
    )
    return markdown(head, lines)


def proposers() -> str:
    """Return a line a proposer: the fewest numbers that are right, and how many sets are."""
    lines = []
    for name, sets in read("proposers.csv").groupby("proposer", sort=False):
        right = sets[sets["outcome"] == "grokked"]
        lines.append((name, right["numbers"].min(), f"{len(right)} of {len(sets)}", f"{sets['steps'].sum():,}"))
    return markdown(("proposer", "fewest numbers", "sets that are right", "seed-steps"), lines)


def draw(path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 2.6), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    rows = proved()
    ways = (
        ("published", GREY, "published"),
        ("inside", BLUE, "ours, ties inside tensors"),
        ("across", "#8fb3dc", "ours, across"),
    )
    for offset, (way, colour, label) in enumerate(ways):
        values = [row[way] or 0 if way == "published" else row[way]["numbers"] for row in rows]
        places = [i + 0.27 * (offset - 1) for i in range(len(rows))]
        bars = axes.barh(places, values, height=0.25, color=colour, label=label)
        axes.bar_label(bars, [str(value or "") for value in values], padding=3, fontsize=8)
    axes.set_yticks(range(len(rows)), [row["threshold"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("numbers of the smallest verified adder")
    axes.legend(ncols=3, frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("thresholds.png"))
