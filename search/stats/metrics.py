"""Metrics of a configuration: what its seeds come to, by name, as MLflow and data frames have them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from search.plugins import rules
from search.stats.counting import (
    COUNTED,
    GrokRate,
    Until,
    by_phase,
    common_counts,
    missed_by,
    names_of_counts,
    proof_counts,
)
from search.stats.record import COLUMNS, SeedRecord
from search.stats.stages import stage_counts
from trainer import Outcome

OF_SEARCH = {
    "seeds": "answer 4", "grokked": "", "failed": "", "diverged": "", "given_up": "", "screened": "", "censored": "",
    "grok_rate": "answer 1", "grok_rate_low": "answer 2", "grok_rate_high": "answer 3", "best_exact": "more 2",
    "stopped": "", "screened_wrongly": "", "seed_steps": "", "grokked_per_million": "more 1", "core_s_per_grokked": "",
    "median_grok_step": "", "held": "more 3",
    "verified": "more 4", "verify_tried": "", "proved": "more 5", "prove_tried": "", "proofs_claimed": "",
}  # fmt: skip
OF_CONFIRMATION = {
    "confirmation_grokked": "", "confirmation_seeds": "confirmed 4", "confirmation_given_up": "", "wrongly": "",
    "confirmation_wrongly": "", "confirmation_rate": "confirmed 1", "confirmation_low": "confirmed 2",
    "confirmation_high": "confirmed 3",
}  # fmt: skip
OF_COLUMNS = {column.metric: "" for column in COLUMNS.values() if column.metric and column.metric not in OF_SEARCH}
"""Those of columns of a seed's record that declare a summary, and are not named above."""
OF_RULES: dict[str, str] = {}
for _rule in rules().values():
    OF_RULES |= dict.fromkeys(names_of_counts(_rule), "")
    if not _rule.is_default:
        OF_RULES[f"{_rule.ended}_wrongly"] = ""
METRICS = {"ranked_by": ""} | OF_RULES | OF_SEARCH | OF_CONFIRMATION | OF_COLUMNS
"""All of them, with their columns in views: a group, and a place in it (tracking/views.py)."""
MAY_BE_ZERO = OF_RULES.keys() | {
    "failed", "diverged", "given_up", "screened", "censored", "stopped", "wrongly", "proofs_claimed",
    "confirmation_grokked", "confirmation_seeds", "confirmation_given_up", "confirmation_wrongly",
}  # fmt: skip
"""Counts that are left out where they are 0 from the start."""


def final_metrics(rows: Sequence[SeedRecord], until: Until | None = None) -> dict[str, float]:
    """Return the metrics of a configuration's rows, by their names in METRICS, without those that are unknown.

    All are of the search's seeds but those that begin with `confirmation`. `count_checks` has what was checked.

    until: where the study stops a configuration.
    """
    searched, fresh = by_phase(rows)
    rate = GrokRate.of(searched, until)
    confirmation = GrokRate.of(fresh)
    counts = Counter(row.outcome for row in searched)

    ranked_by = rate.interval[0] if rate.n else None
    if confirmation.n:
        ranked_by = 1 + confirmation.interval[0]  # the confirmed ones go first
    values = {
        **common_counts(searched),
        **rate.named("grok_rate", "grok_rate_low", "grok_rate_high"),
        **confirmation.named("confirmation_rate", "confirmation_low", "confirmation_high"),
        **{outcome.value: counts[outcome] for outcome in (*COUNTED, Outcome.CENSORED)},
        **{f"{rule.ended}_wrongly": missed_by(rule, searched) for rule in rules().values() if not rule.is_default},
        **{column.metric: column.summarise(searched) for column in COLUMNS.values() if column.summary},
        "ranked_by": ranked_by,
        "seeds": rate.n,
        "stopped": float(bool(rate.tries)),
        "wrongly": rate.missed,
        "confirmation_grokked": confirmation.grokked,
        "confirmation_seeds": confirmation.n,
        "confirmation_given_up": sum(row.outcome == Outcome.GIVEN_UP for row in fresh),
        "confirmation_wrongly": confirmation.missed,
        **{f"left.{_plain(name)}": float(count.left) for name, count in stage_counts(searched).items()},
    }
    return {name: value for name, value in values.items() if value is not None}


def _plain(name: str) -> str:
    """Return a stage's name as MLflow takes it for a metric's."""
    return re.sub(r"[^A-Za-z0-9_. -]", "_", name)


def count_checks(rows: Iterable[SeedRecord], problems: int) -> dict[str, int]:
    """Return how many grokked seeds were decoded or proved, and how many of them are right.

    problems: how many verify the configuration's task.
    """
    grokked = [row for row in rows if row.has_grokked]
    decoded = [row.verified for row in grokked if row.verified is not None]
    return {"verified": decoded.count(problems), "verify_tried": len(decoded), **proof_counts(grokked)}
