"""Coverage of the intervals of `table --interactions`, and its false pairs, by simulated runs of a study.

    python lab/scripts/interaction_coverage.py STUDY [N]

For the first few and all combinations of STUDY: N simulated runs (200) with known effects, a quarter of the pairs
beyond the sum. The correlation is of a seed's luck in any two combinations, or only in those that have the first
constraint, and in those that have not (`by the first`).

Axes: C combinations, S seeds.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from lab.interactions.model import Lattice, interactions
from model.fields import spelt
from reports.arms import Arm
from search.study.file import load_study
from trainer import Recipe

MEANS, CORRELATIONS = (0.0, -2.0, -4.0), ((0.0, False), (0.1, False), (0.3, False), (0.3, True))


def lattice_of(study, first):
    applied = [{spelt(*c) for c in spec.applied().items()} for spec, _ in study.listed[:first]]
    blank = {"experiment_id": "", "run_id": "", "grokked": 0, "n": 0, "best_exact": 0.0, "verified": 0}
    arms = tuple(Arm(spec, Recipe(), spec.family, study.name, **blank) for spec, _ in study.listed[:first])
    levels = tuple(tuple(name in names for name in study.combine) for names in applied)
    return Lattice(study.name, tuple(study.combine), arms, levels, {})


def draw_effects(lattice, rng):
    """Return effects of constraints and pairs; of a pair none where a kind of combination is missing."""
    effects = {(name,): rng.normal(-0.5, 0.6) for name in lattice.constraints}
    for a, b in combinations(range(len(lattice.constraints)), 2):
        is_whole = len({(levels[a], levels[b]) for levels in lattice.levels}) == 4
        pair = lattice.constraints[a], lattice.constraints[b]
        effects[pair] = rng.normal() if is_whole and rng.random() < 0.25 else 0.0
    return effects


def simulated(lattice, rate_C, seeds, correlation, by_first, rng):
    """Return the lattice with outcomes of `seeds` seeds."""
    groups_C = np.array([levels[0] and by_first for levels in lattice.levels], dtype=int)
    shared_CS = rng.normal(size=(2, seeds))[groups_C]
    luck_CS = np.sqrt(correlation) * shared_CS + np.sqrt(1 - correlation) * rng.normal(size=shared_CS.shape)
    grokked_CS = norm.cdf(luck_CS) < rate_C[:, None]
    arms = (
        replace(arm, seeds={(s, s): bool(x) for s, x in enumerate(grokked_S)})
        for arm, grokked_S in zip(lattice.arms, grokked_CS, strict=True)
    )
    return replace(lattice, arms=tuple(arms))


def coverage(lattice, mean, correlation, by_first, runs, seeds, rng):
    """Return the mean rate, the coverage in all and of the worst effect, and shares of pairs reported: null, others."""
    effects = draw_effects(lattice, rng)
    levels_CF = np.array(lattice.levels) - 0.5
    places = {name: i for i, name in enumerate(lattice.constraints)}
    columns = {term: levels_CF[:, [places[name] for name in term]].prod(1) for term in effects}
    rate_C = expit(mean + sum(effect * columns[term] for term, effect in effects.items()))
    hits, reports = {}, {False: [], True: []}
    for _ in range(runs):
        model = interactions(simulated(lattice, rate_C, seeds, correlation, by_first, rng))
        for effect in (*model.effects, *model.pairs):
            if effect.coefficient and not effect.mixed_with:
                low, high = effect.coefficient.interval
                truth = effects[effect.constraints]
                hits.setdefault(effect.constraints, []).append(low <= truth <= high)
                if len(effect.constraints) == 2:
                    reports[truth != 0].append(effect.is_discovery)
    everything = np.concatenate([*hits.values()])
    shares = [np.mean(reports[kind]) if reports[kind] else np.nan for kind in (False, True)]
    return rate_C.mean(), everything.mean(), min(map(np.mean, hits.values())), *shares


def main():
    study, runs = load_study(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200
    rng, seeds, size = np.random.default_rng(0), len(study.first_seeds), len(study.listed)
    head = ("combinations", "mean rate", "correlation", "coverage", "least", "null pairs reported", "others")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for first in dict.fromkeys((size // 2, 128, size)):
        for mean in MEANS if first <= size else ():
            for correlation, by_first in CORRELATIONS:
                lattice = lattice_of(study, first)
                shares = coverage(lattice, mean, correlation, by_first, runs, seeds, rng)
                alike = f"{correlation} by the first" if by_first else f"{correlation}"
                texts = (f"{first}", f"{shares[0]:.2f}", alike, *(f"{x:.3f}" for x in shares[1:]))
                print(f"| {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
