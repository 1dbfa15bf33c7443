"""A missing switch, given by hand. The plan is in README.md.

    python lab/2026-11-29-flipped-unit/flipped.py            # writes flipped.csv: one row per seed and arm
    python lab/2026-11-29-flipped-unit/flipped.py compare    # prints the differences of flipped.csv's arms, and their p

Axes: S seed, P entry of θ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from scipy.stats import binom
from torch import Tensor

from lab.paired import PairedArms
from lab.plans import load_plan
from model import preset
from trainer import Bank, Pair, Recipe, Seed
from trainer.bank.bank import IDLE

HERE = Path(__file__).parent
SPEC = preset("57p")
RECIPE: Recipe = load_plan("57p-faded").listed[0][1]
FIRST, CHANGED_AT, WANTED = 996_001, 8_000, 64
AT_ONCE = 64
Change = Callable[[Tensor], Tensor]
"""From θ [P] to what it becomes [P]."""


def bank_at(seeds: range) -> Bank:
    """Return a bank of seeds, trained to the step of the change."""
    bank = Bank(SPEC, [Pair(RECIPE, Seed.of(seed)) for seed in seeds])
    for _ in range(CHANGED_AT // bank.eval_every):
        bank.advance()
    return bank


def flipped(theta_P: Tensor) -> Tensor:
    """Return θ with the idle unit made the opposite of the one that switches."""
    recycled = SPEC.recycled()
    assert recycled is not None
    return recycled(SPEC, theta_P[None])[0]


def copied(theta_P: Tensor) -> Tensor:
    """Return θ with the idle unit made equal to the one that switches."""
    changed_P = flipped(theta_P)
    return torch.where(changed_P != theta_P, -changed_P, theta_P)


def kind_of(theta_P: Tensor) -> str:
    """Return where a seed stands at the step of the change: `even`, `one way`, `both ways` or `no way`."""
    values = {name: float(read(SPEC, theta_P[None].double())[0]) for name, read in SPEC.probes().items()}
    if values["odd"] <= 0.9:
        return "even"
    if not torch.equal(flipped(theta_P), theta_P):
        return "one way"
    return "both ways" if values["switches"] == 1 else "no way"


def change(bank: Bank, by: Change) -> None:
    """Change θ of every pair of a bank; the optimiser's moments of changed entries begin anew."""
    for slot, n in enumerate(bank.pair_S.tolist()):
        if n == IDLE:
            continue
        theta_P = bank.state["theta"][slot].clone()
        is_new_P = by(theta_P) != theta_P
        for name, tensor in bank.state.items():
            if name != "theta" and tensor.is_floating_point() and tensor.shape[1:] == theta_P.shape:
                tensor[slot][is_new_P] = 0
        bank.state["theta"][slot] = by(theta_P)


def trained_on(seeds: list[int], states: list[bytes], by: Change) -> list[dict[str, object]]:
    """Train seeds on from their states, changed. Return a row per seed."""
    bank = Bank(SPEC, [Pair(RECIPE, Seed.of(seed)) for seed in seeds])
    assert len(bank.restore_all(dict(enumerate(states)))) == len(seeds)
    change(bank, by)
    while bank.advance():
        pass
    results = [bank.result(n) for n in range(len(seeds))]
    return [
        {"seed": seed, "outcome": its.outcome.value, "grok_step": its.grok_step, "best_exact": round(its.best_exact, 6)}
        for seed, its in zip(seeds, results, strict=True)
    ]


def compare() -> None:
    """Print flipped against both other arms: pairs that differ, the difference's interval, McNemar's mid-P."""
    rows = pd.read_csv(HERE / "flipped.csv")
    by_arm = {arm: dict(zip(its["seed"], its["outcome"] == "grokked", strict=True)) for arm, its in rows.groupby("arm")}
    for other in ("alone", "copied"):
        paired = PairedArms.of([(by_arm["flipped"][seed], won) for seed, won in by_arm[other].items()])
        fewer = min(paired.first, paired.second)
        differing = binom(paired.first + paired.second, 0.5)
        mid_p = 2 * (differing.cdf(fewer) - differing.pmf(fewer) / 2)
        low, high = (100 * end for end in paired.interval)
        print(f"{other}: {paired.first} and {paired.second}, {low:.1f} to {high:.1f} points, mid-P {mid_p:.3f}")


def main() -> None:
    torch.set_num_threads(1)
    chosen: dict[str, list[tuple[int, bytes]]] = {"one way": [], "both ways": []}
    counts: dict[str, int] = {}
    first = FIRST
    while len(chosen["one way"]) < WANTED:
        seeds = range(first, first + AT_ONCE)
        bank = bank_at(seeds)
        states = bank.save_all(range(len(seeds)))
        theta_of = dict(zip(bank.pair_S.tolist(), bank.state["theta"], strict=True))
        for n, seed in enumerate(seeds):
            if len(chosen["one way"]) == WANTED:
                break
            kind = kind_of(theta_of[n]) if n in theta_of else "ended"
            counts[kind] = counts.get(kind, 0) + 1
            if kind in chosen:
                chosen[kind].append((seed, states[n]))
        first += AT_ONCE
    print(counts, flush=True)
    rows = []
    arms: list[tuple[str, str, Change]] = [
        ("alone", "one way", torch.clone),
        ("flipped", "one way", flipped),
        ("copied", "one way", copied),
        ("both ways", "both ways", torch.clone),
    ]
    for arm, kind, by in arms:
        seeds_, states_ = zip(*chosen[kind], strict=True)
        rows += [{"arm": arm, **row} for row in trained_on(list(seeds_), list(states_), by)]
        print(arm, sum(row["arm"] == arm and row["outcome"] == "grokked" for row in rows), len(seeds_), flush=True)
    pd.DataFrame(rows).to_csv(HERE / "flipped.csv", index=False)
    (HERE / "drawn.txt").write_text(repr(counts) + "\n")


if __name__ == "__main__":
    compare() if sys.argv[1:] == ["compare"] else main()
