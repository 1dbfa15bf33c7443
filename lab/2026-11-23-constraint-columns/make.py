"""The picture of a constraint's cost at 100 and at 57 parameters: run this file to write it."""

from pathlib import Path

from lab.claims.claim import arm
from lab.paired import paired_interval
from lab.plans import load_plan
from lab.tables import BLUE, GREY, alone, read

COLUMNS = (("100p", "claims-100p", "base"), ("57p", "claims-kinds", "kinds"))


def differences(study: str, base: str) -> dict[str, tuple[int, int, int]]:
    """Return by constraint how many seeds grok only with it, only without it, and how many both arms had."""
    rows, counts = read(f"{study}.csv"), {}
    by_key = dict(list(rows.groupby("configuration")))
    without = arm(study, base)
    for constraint in load_plan("claims-100p").toggle:
        with_it = arm(study, f"{base} toggled {constraint}")
        if constraint.partition("=")[0] in without.spec.applied():
            counts[constraint] = alone(by_key[without.key], by_key[with_it.key])
        else:
            counts[constraint] = alone(by_key[with_it.key], by_key[without.key])
    return counts


def draw(path: Path) -> None:
    """Write the differences between the arms with a constraint and without it, on the same seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 2.8), layout="constrained", dpi=120)
    for place, (scale, study, base) in enumerate(COLUMNS, 1):
        axes, counts = figure.add_subplot(1, 2, place), differences(study, base)
        for row, (more, fewer, n) in enumerate(counts.values()):
            low, high = (100 * end for end in paired_interval(more, fewer, n))
            axes.plot([low, high], [row, row], color=GREY, lw=2)
            axes.plot([100 * (more - fewer) / n], [row], "o", color=BLUE)
        axes.set_yticks(range(len(counts)), list(counts))
        axes.axvline(0, color=GREY, lw=0.8)
        axes.set_xlim(-60, 60)
        axes.invert_yaxis()
        axes.set_title(f"at {scale}", loc="left", fontsize=10)
        axes.set_xlabel("seeds that grok with it, less without it, points")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("constraints.png"))
