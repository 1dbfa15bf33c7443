"""Tables and picture of wide first: `python lab/2026-11-28-wide/make.py` draws what is left after each stage."""

from pathlib import Path

import pandas as pd

from lab.tables import BLUE, GREY, GROKKED, beside, markdown, rate, read, rows_of, with_interval
from lab.tables import vectors as vectors_of
from reports.plots import new_figure, quiet
from search.stats.counting import GrokRate

HERE = Path(__file__).parent
PUBLISHED = "57p-paired-published.csv + three-128.csv where study == 'three-128-published'"
MAIN, PLANNED, VECTORS = "eight", 7, 128
LABEL = 7  # vectors between two labels of the picture
ORDER = ("eight", "two", "four", "sixteen", "three", "eight, no start", "eight, no kinds", "eight, published optimiser")
STAGES = {
    "wide": "eight units", "wide again": "eight units, again", "two": "two units", "two, long": "two units, longer",
    "tied": "57 numbers", "tied, long": "57 numbers, longer",
}  # fmt: skip


def vectors() -> dict[str, pd.DataFrame]:
    """Return the rows of each arm whose vectors have all ended, in the plan's order."""
    rows = read("wide-vectors.csv")
    arms = {name: rows[rows["arm"] == name] for name in ORDER}
    return {name: its for name, its in arms.items() if len(its) == VECTORS}


def stages() -> str:
    """Return a line for each stage of the main arm: vectors that began it and that grokked in it, and its cost."""
    rows, lines = read("wide-tries.csv"), []
    rows = rows[rows["arm"] == MAIN]
    for stage, name in STAGES.items():
        its = rows[rows["stage"] == stage]
        began, grokked = its["init_seed"].nunique(), its.query(GROKKED)["init_seed"].nunique()
        tries, millions = len(its), its["steps"].sum() / 1e6
        lines.append((name, began, grokked, tries, f"{millions:.2f}", f"{its['core_s'].sum():,.0f}"))
    return markdown(("stage", "vectors", "grokked", "trainings", "million seed-steps", "core-seconds"), lines)


def arms() -> str:
    """Return a line for each arm: vectors that grok wide, at two units and at 57 numbers; what a 57p costs."""
    lines = []
    for name, its in vectors().items():
        k = len(its.query(GROKKED))
        cost = [f"{its[column].sum() / k:,.0f}" if k else "–" for column in ("seed_steps", "core_s")]
        halfway = [f"{int(its[f'{stage}_grokked'].sum())}" for stage in ("wide", "two")]
        lines.append((name, *halfway, with_interval(GrokRate(k, VECTORS)), *cost))
    head = ("arm", "wide", "two units", "57p", "seed-steps for a 57p", "core-seconds for one")
    return markdown(head, lines)


def beside_main() -> str:
    """Return each arm beside the main one on the same vectors."""
    others = vectors()
    main = others.pop(MAIN)
    return beside(others, main, planned=PLANNED) if others else "None has ended."


def verdicts() -> str:
    """Return how many of the main arm's 57p answer the 10,010, and what is proved of them, of all vectors."""
    its = vectors()[MAIN]
    proofs = read("wide-proofs.csv")
    proofs = proofs[proofs["arm"] == MAIN]
    lines = [
        ("grokked: all 5,000 selection problems", with_interval(GrokRate(len(its.query(GROKKED)), VECTORS))),
        ("all 10,010 of AdderBoard's", with_interval(GrokRate(int(its["correct"].eq(10_010).sum()), VECTORS))),
        ("proved on all 10^20 pairs", with_interval(GrokRate(int(proofs["verdict"].eq("PROVED").sum()), VECTORS))),
    ]
    counts = proofs["verdict"].value_counts()
    undecided = int(counts.sum() - counts.get("PROVED", 0) - counts.get("COUNTEREXAMPLE", 0))
    lines += [("a counterexample", counts.get("COUNTEREXAMPLE", 0)), ("undecided in a minute", undecided)]
    return markdown(("57p of a vector", "of 128"), lines)


def picture() -> None:
    """Draw how many vectors are left after each stage, for each arm."""
    figure = new_figure(6.4, 3.2)
    axes = figure.add_subplot()
    steps = ("wide_grokked", "two_grokked", "tied_grokked")
    all_left = {n: [VECTORS, *(int(its[column].sum()) for column in steps)] for n, its in vectors().items()}
    place = VECTORS + LABEL
    for name, left in sorted(all_left.items(), key=lambda item: -item[1][-1]):
        axes.plot(range(4), left, "o-", color=BLUE if name == MAIN else GREY, zorder=3 if name == MAIN else 2)
        place = min(left[-1], place - LABEL)  # labels below each other
        axes.annotate(f"{name}: {left[-1]}", (3, place), (8, -3), textcoords="offset points", fontsize=8)
    axes.set_xticks(range(4), ["vectors", "grokked wide", "at two units", "at 57 numbers"])
    axes.set_ylim(0, VECTORS + 4)
    axes.set_xlim(-0.2, 4.3)
    axes.set_ylabel(f"of {VECTORS} vectors")
    quiet(axes)
    figure.savefig(HERE / "wide.svg")


def rates_of_vectors() -> dict[str, GrokRate]:
    """Return how many initial vectors became a grokked 57p, by the road that they went."""
    return {
        "published recipe": rate(PUBLISHED),
        "57p-longer, 57 numbers from step 0": vectors_of(rows_of("longer-fresh.csv")),
        "57p-wide, eight hidden units first": rate("wide-fresh.csv"),
    }


def picture_of_rates() -> None:
    """Draw the three rates with their intervals."""
    figure = new_figure(7.2, 1.9)
    axes = figure.add_subplot()
    for place, found in enumerate(rates_of_vectors().values()):
        low, high = found.interval
        share = found.grokked / found.n
        axes.barh(-place, share, height=0.55, color=BLUE if place == 2 else GREY)
        axes.plot([low, high], [-place, -place], color="black", linewidth=1.2)
        words = f"{found.grokked} of {found.n}"
        axes.annotate(words, (high, -place), (6, -3), textcoords="offset points", fontsize=9)
    axes.set_yticks([0, -1, -2], list(rates_of_vectors()), fontsize=9)
    axes.set_xlim(0, 1.12)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.set_xlabel("initial vectors that become a grokked 57p, with 95 % intervals", fontsize=9)
    quiet(axes)
    figure.savefig(HERE / "rates.svg", metadata={"Date": None})


if __name__ == "__main__":
    picture()
    picture_of_rates()
