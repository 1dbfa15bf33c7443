"""Table of grok rates by the number of numbers.

python lab/2026-11-24-law-of-size/make.py STUDY HOME    writes STUDY.csv of what a home has recorded: a row a seed
python lab/2026-11-24-law-of-size/make.py picture       draws law.svg of these tables
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import log_expit, xlogy
from scipy.stats import chi2

from lab.tables import BLUE, GREY, markdown, rate_of, read, vectors, with_interval
from reports.plots import new_figure, quiet
from search.analysis.frames import RecordSet
from search.stats.counting import GrokRate

FOLDER = Path(__file__).parent
THRESHOLD = 4
"""A ratio of neighbours' rates whose interval lies above it is a threshold, by the plan."""
LEAST = 1e-4
BEGINS = (10_000, 20_000)
"""Ages at which a seed began anew that had not reached half of the tokens (again_at, again_most)."""
COLUMNS = (
    "params", "configuration", "init_seed", "data_seed", "outcome", "steps", "grok_step", "held", "best_exact",
    "best_token", "proved", "tries", "screen",
)  # fmt: skip


def by_size() -> dict[int, pd.DataFrame]:
    """Return the rows of each number of numbers, the largest first."""
    rows = pd.concat([read(path.name) for path in FOLDER.glob("law-*.csv")])
    return {int(params): group for params, group in sorted(rows.groupby("params"), reverse=True)}


def law() -> str:
    """Return a line a size: seeds and vectors that grok, and how many of those are proved."""
    lines = []
    for params, group in by_size().items():
        grokked = group[group["outcome"] == "grokked"]
        proved = f"{grokked['proved'].eq(True).sum()} of {len(grokked)}"
        lines.append((params, with_interval(rate_of(group)), with_interval(vectors(group)), proved))
    return markdown(("numbers", "runs that grok", "of vectors", "proved right on all pairs"), lines)


def shape() -> str:
    """Return the plan's test: a line in the log odds against a rate a size, and neighbours that a threshold parts.

    Both are of runs as they were trained, with the screen; the last interval allows for what it ended wrongly.
    """
    rates = {params: rate_of(group) for params, group in by_size().items()}
    k_S, n_S = np.array([(rate.grokked, rate.n) for rate in rates.values()]).T
    numbers_S = np.array(list(rates)) / 10

    def loss(line: np.ndarray) -> float:
        odds_S = line[0] + line[1] * numbers_S
        return -float((k_S * log_expit(odds_S) + (n_S - k_S) * log_expit(-odds_S)).sum())

    best = -float((xlogy(k_S, k_S / n_S) + xlogy(n_S - k_S, 1 - k_S / n_S)).sum())
    ratio, freedom = 2 * (minimize(loss, np.zeros(2)).fun - best), len(rates) - 2
    text = f"Likelihood ratio {ratio:.1f}, {freedom} degrees of freedom, p = {chi2.sf(ratio, freedom):.2g}."
    for (more, one), (fewer, other) in pairwise(rates.items()):
        low, high = ratio_of(*(GrokRate(rate.grokked, rate.n) for rate in (one, other)))
        if low > THRESHOLD:
            least, most = ratio_of(one, other)
            text += (
                f" {more} against {fewer} numbers: {low:.1f} to {high:.0f} times as often; {least:.1f} to {most:.0f} "
            )
            text += "if the screen ended as many winners as its spared seeds allow."
    return text


def ratio_of(one: GrokRate, other: GrokRate) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of two rates: MOVER (Donner and Zou 2012) of their intervals."""
    (low, high), (other_low, other_high) = one.interval, other.interval
    share, other_share = one.grokked / one.n, other.grokked / other.n
    product = share * other_share

    def end(own: float, others: float, sign: int) -> float:
        below = others * (2 * other_share - others)
        root = np.sqrt(max(product**2 - own * (2 * share - own) * below, 0))
        return float((product + sign * root) / below) if below else np.inf

    return end(low, other_high, -1), end(high, other_low, 1)


def draw() -> None:
    """Draw the rates of runs and of vectors by size, with their intervals."""
    figure = new_figure(7.5, 3.6)
    axis = figure.subplots()
    quiet(axis)
    series = {"runs, of up to three vectors": rate_of, "vectors": vectors}
    for (label, rated), colour, shift in zip(series.items(), (BLUE, GREY), (-0.15, 0.15), strict=True):
        for params, group in by_size().items():
            rate = rated(group)
            k, n, (low, high) = rate.grokked, rate.n, rate.interval
            axis.plot([params + shift] * 2, [max(low, LEAST), high], color=colour, lw=2.5)
            mark = {"marker": "o"} if k else {"marker": "v", "fillstyle": "none"}
            axis.plot(params + shift, k / n if k else high, color=colour, ms=5, **mark)
        axis.plot([], [], "o-", color=colour, lw=2.5, label=label)
    axis.set(yscale="log", ylim=(LEAST, 1), xlabel="numbers", ylabel="share that groks (95 %)")
    axis.invert_xaxis()
    axis.set_xticks(list(by_size()))
    axis.tick_params(axis="x", labelsize=8)
    axis.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.3g}%")
    axis.legend(frameon=False, title="empty: none grokked, at most so much")
    figure.savefig(FOLDER / "law.svg")


def tries(curve: pd.DataFrame) -> int:
    """Return how many vectors a seed drew, by its curve."""
    begun = 1
    for step in BEGINS:
        seen = curve[curve["step"] <= step]
        if curve["step"].max() <= step or seen["token"].max() >= 0.5:
            break
        begun += 1
    return begun


def main(study: str, home: str) -> None:
    seeds = pd.DataFrame(RecordSet([study], home).seed_rows())
    files = Path(home).glob(f"artifacts/{study}/**/curves.parquet")
    curves = pd.concat(pd.read_parquet(file) for file in files)
    begun = {key: tries(curve) for key, curve in curves.groupby(["configuration", "init_seed"])}
    keys = zip(seeds["configuration"], seeds["init_seed"], strict=True)
    seeds["tries"] = pd.array([begun.get(key) for key in keys], dtype="Int64")
    ended = seeds.dropna(subset="tries")  # of the others nothing is recorded yet
    seeds = ended[list(COLUMNS)].sort_values(["params", "init_seed"])
    seeds.to_csv(FOLDER / f"{study}.csv", index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    draw() if sys.argv[1:] == ["picture"] else main(*sys.argv[1:])
