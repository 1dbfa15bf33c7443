"""Tables and picture of wide first, then small: `python lab/2026-11-29-small/make.py` draws them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pandas as pd
from scipy.stats import binomtest

from lab.tables import BLUE, GREY, markdown, rate, read, with_interval
from reports.plots import new_figure, quiet
from search.stats.counting import GrokRate

HERE = Path(__file__).parent
VECTORS = 64
FORMS = {
    "57": ("57 numbers", "57", "inside tensors"), "34": ("34p-generic", "28", "inside"), "28": ("28p", "28", "inside"),
    "15": ("15p-777", "10", "inside"), "14": ("14p", "10", "inside"), "13": ("13p", "10", "inside"),
    "10": ("10p-inside", "10", "inside"), "7": ("7p", "7", "across"), "6": ("6p", "6", "across"),
}  # fmt: skip
"""Numbers -> the stage that leads there, its branch, and where its ties are."""
BEFORE = {
    "7": "one-run-robust.csv where configuration == 'fresh-long 15p+7p'",
    "6": "one-run-finished.csv where configuration == 'finished-long 15p-777+6p'",
    "14": "one-run-finished.csv where configuration == 'finished-long 15p-777+14p'",
    "13": "one-run-finished.csv where configuration == 'finished-long 15p-777+13p'",
}
"""The best rates of runs that began with two hidden units, each of 64 vectors of its own."""


@cache
def vectors() -> pd.DataFrame:
    return read("small-vectors.csv")


def grokked_at(numbers: str) -> GrokRate:
    """Return how many vectors grok at a form."""
    stage, branch, _ = FORMS[numbers]
    rows = vectors()[vectors()["branch"].astype(str) == branch]
    assert len(rows) == VECTORS
    k = sum(any(name == stage and won for name, _, won, _ in json.loads(text)) for text in rows["stages"])
    return GrokRate(k, VECTORS)


def there() -> list[str]:
    """Return the forms whose branches have ended."""
    ended = set(vectors()["branch"].astype(str))
    return [numbers for numbers, (_, branch, _) in FORMS.items() if branch in ended]


def rates() -> str:
    """Return one line per form: of all vectors, those that grok there, and what was so before."""
    lines = []
    for numbers in there():
        _, branch, where = FORMS[numbers]
        before = with_interval(rate(BEFORE[numbers])) if numbers in BEFORE else "–"
        rows = vectors()[vectors()["branch"].astype(str) == branch]
        right = f"{int(rows['correct'].eq(10_010).sum())}" if branch == numbers else "–"
        lines.append((numbers, where, with_interval(grokked_at(numbers)), right, before))
    head = ("numbers", "ties", "grokked, of all vectors", "of these all 10,010", "before, two units from the start")
    return markdown(head, lines)


def difference() -> str:
    """Return the planned comparison at 7 numbers, in points, with its interval."""
    new, old = grokked_at("7"), rate(BEFORE["7"])
    p, q = new.grokked / new.n, old.grokked / old.n
    (p_low, p_high), (q_low, q_high) = wilson(new), wilson(old)
    # Newcombe, Statistics in Medicine 17 (1998), method 10
    low = p - q - ((p - p_low) ** 2 + (q_high - q) ** 2) ** 0.5
    high = p - q + ((p_high - p) ** 2 + (q - q_low) ** 2) ** 0.5
    return f"Difference at 7 numbers: {100 * (p - q):.0f} points ({100 * low:.0f} to {100 * high:.0f})."


def wilson(rate: GrokRate) -> tuple[float, float]:
    """Return Wilson's interval of 95 %."""
    low, high = binomtest(rate.grokked, rate.n).proportion_ci(method="wilson")
    return float(low), float(high)


def picture() -> None:
    """Draw the share of all vectors that groks at each form."""
    figure = new_figure(6.4, 3.2)
    axes = figure.add_subplot()
    for place, numbers in enumerate(there()):
        found = grokked_at(numbers)
        low, high = found.interval
        share = found.grokked / found.n
        axes.errorbar(place, share, yerr=[[share - low], [high - share]], fmt="o", color=BLUE, capsize=2)
        if numbers in BEFORE:
            old = rate(BEFORE[numbers])
            low, high = old.interval
            share = old.grokked / old.n
            axes.errorbar(place + 0.15, share, yerr=[[share - low], [high - share]], fmt="o", color=GREY, capsize=2)
    labels = [f"{numbers}\n{FORMS[numbers][2].split()[0]}" for numbers in there()]
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel("numbers; ties inside tensors or across (grey: two units from the start)")
    axes.set_ylabel("share of 64 vectors that grok there")
    axes.set_ylim(0, 1.03)
    quiet(axes)
    figure.savefig(HERE / "small.svg", metadata={"Date": None})


if __name__ == "__main__":
    picture()
