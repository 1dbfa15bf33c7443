"""Records of combinations of constraints whose grok rates are known, as search.analysis.frames has them."""

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from model.fields import spelt
from search.stats.record import SeedRecord
from tests.reports.test_table import arm


def rates(study, mean, effects):
    """Return the grok rate of each listed configuration: `mean` in log odds, and effects of constraints and pairs."""
    log_odds = []
    for spec, _ in study.listed:
        applied = {spelt(*constraint) for constraint in spec.applied().items()}
        levels = {name: (name in applied) - 0.5 for name in study.combine}
        terms = [effect * np.prod([levels[name] for name in term]) for term, effect in effects.items()]
        log_odds.append(mean + sum(terms))
    return expit(np.array(log_odds))


def outcomes(rate_C, seeds, rng, alike=0.0, groups_C=0):
    """Return True where a seed grokked [C, S].

    alike: correlation between a seed's luck in two configurations of the same group (0 or 1).
    """
    shared = rng.normal(size=(2, seeds))[np.broadcast_to(groups_C, len(rate_C))]
    luck_CS = np.sqrt(alike) * shared + np.sqrt(1 - alike) * rng.normal(size=shared.shape)
    return norm.cdf(luck_CS) < rate_C[:, None]


def recorded(study, grokked_CS, first=None):
    """Return rows of the first few listed configurations (or of all) and of their seeds."""
    configurations = []
    seeds = []
    pairs = zip(study.listed[:first], grokked_CS, strict=False)
    for (spec, recipe), grokked_S in pairs:
        row = arm(spec, int(grokked_S.sum()), len(grokked_S), recipe=recipe, study=study.name)
        configurations.append(row)
        seeds += _seeds(row, grokked_S)
    return configurations, seeds


def _seeds(row, grokked_S):
    return [
        SeedRecord(
            study=row["study"],
            configuration=row["configuration"],
            init_seed=n,
            data_seed=n,
            outcome="grokked" if grokked else "failed",
            steps=1,
            grok_step=30_000 if grokked else None,
        )
        for n, grokked in enumerate(grokked_S, 1)
    ]  # fmt: skip
