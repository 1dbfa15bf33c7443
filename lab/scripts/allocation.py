"""Do seeds go where they count? Simulated studies whose configurations' true grok rates are known.

    python lab/scripts/allocation.py [--studies 40] [--json FILE]

Three questions (lab/2026-11-20-seeds-where-they-count): how often the interval has the true rate in it, at a fixed
number of seeds; how often it still has after seeds were allotted by what they showed; and how many seeds the
allocation needs for as many right verdicts as the same number of seeds for everyone gives. A verdict says on
which side of the threshold a rate is, and is right or wrong only where the interval excludes the threshold.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search.run.allocation import ConfigurationScore, select_for_more_seeds
from search.stats.counting import GrokRate
from search.stats.intervals import mid_p
from search.study.seeds import Allocation

FIRST = 8  # seeds of a round
RULE = Allocation(threshold=0.1, most=128, budget=None)
CONFIGURATIONS = 40
PRIORS = {
    "uniform": lambda rng, n: rng.uniform(0, 1, n),
    "log-uniform from 0.5 to 60 %": lambda rng, n: np.exp(rng.uniform(np.log(0.005), np.log(0.6), n)),
}


def coverage(prior: str, n: int, draws: int, rng: np.random.Generator) -> float:
    """Share of `draws` true rates from a prior that lie in the interval of k of n seeds."""
    rates = PRIORS[prior](rng, draws)
    intervals = [mid_p(int(k), n) for k in rng.binomial(n, rates)]
    return float(np.mean([low <= p <= high for p, (low, high) in zip(rates, intervals, strict=True)]))


@dataclass(frozen=True)
class Judged:
    """A simulated study: seeds spent, verdicts by what they are, and the share of intervals that hold."""

    seeds: int
    right: int
    wrong: int
    covered: float


def allotted(rates: np.ndarray, rule: Allocation, rng: np.random.Generator) -> Judged:
    """A study whose configurations get their seeds by the allocation."""
    grokked, n = rng.binomial(FIRST, rates), np.full(len(rates), FIRST)
    while True:
        standings = {
            str(i): ConfigurationScore(GrokRate(int(k), int(m)), 57, (k + 0.5) / (m + 2))
            for i, (k, m) in enumerate(zip(grokked, n, strict=True))
        }
        chosen = select_for_more_seeds(standings, rule)
        if not chosen:
            return judged(rates, grokked, n, rule.threshold)
        i = int(chosen[0])
        grokked[i] += rng.binomial(FIRST, rates[i])
        n[i] += FIRST


def uniform(rates: np.ndarray, seeds: int, threshold: float, rng: np.random.Generator) -> Judged:
    """A study whose configurations all get the same seeds."""
    return judged(rates, rng.binomial(seeds, rates), np.full(len(rates), seeds), threshold)


def judged(rates: np.ndarray, grokked: np.ndarray, n: np.ndarray, threshold: float) -> Judged:
    low, high = np.array([mid_p(int(k), int(m)) for k, m in zip(grokked, n, strict=True)]).T
    above, below = low > threshold, high < threshold
    right = (above & (rates > threshold)) | (below & (rates < threshold))
    covered = (low <= rates) & (rates <= high)
    return Judged(int(n.sum()), int(right.sum()), int((above | below).sum() - right.sum()), float(covered.mean()))


def compare(studies: int, rng: np.random.Generator) -> dict[str, Any]:
    """The allocation beside equal shares, over the same simulated studies; sums over all of them."""
    prior = PRIORS["log-uniform from 0.5 to 60 %"]
    worlds = [prior(rng, CONFIGURATIONS) for _ in range(studies)]
    allotted_studies = [allotted(rates, RULE, rng) for rates in worlds]
    equal = {n: [uniform(rates, n, RULE.threshold, rng) for rates in worlds] for n in range(16, 513, 16)}
    right = sum(j.right for j in allotted_studies)
    reached = [n for n, summary in equal.items() if sum(j.right for j in summary) >= right]
    summary = {
        "studies": studies,
        "configurations": CONFIGURATIONS,
        "rule": RULE.model_dump(),
        "allotted": _sums(allotted_studies),
        "equal_shares": {n: _sums(summary) for n, summary in equal.items() if n in (16, 64, 128, 256, 512)},
    }
    if reached:
        spent = sum(j.seeds for j in allotted_studies)
        summary |= {
            "equal_seeds_for_as_many_right": reached[0],
            "seeds_of_equal_shares": spent / (reached[0] * CONFIGURATIONS * studies),
        }
    return summary


def _sums(studies: list[Judged]) -> dict[str, float]:
    return {
        "seeds": sum(j.seeds for j in studies),
        "right": sum(j.right for j in studies),
        "wrong": sum(j.wrong for j in studies),
        "coverage": float(np.mean([j.covered for j in studies])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--studies", type=int, default=40)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    summary: dict[str, Any] = {
        "coverage": {p: {n: coverage(p, n, 20_000, rng) for n in (16, 36, 64, 128)} for p in PRIORS}
    }
    for prior, at in summary["coverage"].items():
        print(f"coverage at n seeds, prior {prior}: " + ", ".join(f"{n}: {c:.1%}" for n, c in at.items()))
    summary |= compare(args.studies, rng)
    for name, sums in {"allotted": summary["allotted"], **summary["equal_shares"]}.items():
        print(f"{name!s:>9}: " + ", ".join(f"{k} {v:,.4g}" for k, v in sums.items()))
    if "seeds_of_equal_shares" in summary:
        n = summary["equal_seeds_for_as_many_right"]
        share = summary["seeds_of_equal_shares"]
        print(f"as many right verdicts as with {n} seeds for everyone, with {share:.0%} of the seeds")
    if args.json:
        args.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
