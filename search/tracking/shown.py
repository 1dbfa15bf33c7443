"""What MLflow shows: one table. Metrics, parameters, tags and the columns of views are declared here and nowhere else.

Everything is a function of what is recorded. search/analysis/projection.py says when it is written, and draws pictures;
search/tracking/tracker.py writes what differs from what MLflow has.
"""

from __future__ import annotations

import getpass
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import isfinite, nan
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from model import Spec
from model.spec import choices
from search.markup import escape
from search.plugins import rules
from search.record import COLUMNS, SeedRecord
from search.stats.counting import (
    COUNTED,
    Counts,
    GrokRate,
    Until,
    by_phase,
    common_counts,
    missed_by,
    names_of_counts,
    proof_counts,
)
from search.stats.stages import stage_counts
from search.store.home import pull_command
from search.study.start import describe_step, ties_beyond_parent
from search.study.trial import CARRY_MIX, Configuration
from trainer import MEASURES, Outcome
from trainer.outcomes import PROBE

if TYPE_CHECKING:
    from trainer import Result

FINAL, FIRST_SEEDS, TABLE = "final.", "first_seeds.", "table."
"""Prefixes: of metrics of all seeds of a configuration; of its first seeds, over steps; of its cell of a table."""
CONFIGURATION_JSON = "configuration.json"
ANCESTOR_TAGS, TIED_TAG = ("adder.parent", "adder.grandparent"), "adder.tied"
"""Tags of a configuration whose seeds start from another's θ: whose, and the ties beyond its parent's."""
NOTE = "mlflow.note.content"
LONGEST_TAG = 4_000  # characters
MEANING = (
    "`first_seeds.*`: over steps, of its first seeds alone. `final.*`: of all its seeds, `final.confirmation_*` of "
    "those that confirm it; up to `wrongly` of those that rules ended might have grokked."
)


# Metrics of a configuration

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
OF_RULES = {
    name: ""
    for rule in rules().values()
    for name in (*names_of_counts(rule), *([] if rule.is_default else [f"{rule.ended}_wrongly"]))
}
METRICS = {"ranked_by": ""} | OF_RULES | OF_SEARCH | OF_CONFIRMATION | OF_COLUMNS
"""Names below `final.`, with their columns in views: a group, and a place in it (search/tracking/views.py)."""
MAY_BE_ZERO = OF_RULES.keys() | {
    "failed", "diverged", "given_up", "screened", "censored", "stopped", "wrongly", "proofs_claimed",
    "confirmation_grokked", "confirmation_seeds", "confirmation_given_up", "confirmation_wrongly",
}  # fmt: skip
"""Counts that are left out where they are 0 from the start."""


def in_view(group: str) -> list[str]:
    """Return the metrics of a group of a view's columns, in their order."""
    places = {place: name for name, place in METRICS.items() if place.startswith(group)}
    return [f"{FINAL}{places[place]}" for place in sorted(places)]


def final_metrics(rows: Sequence[SeedRecord], until: Until | None = None) -> dict[str, float]:
    """Return the metrics of a configuration's rows, by their names in METRICS. What is unknown has none.

    All are of the search's seeds but those that begin with `confirmation`. What was checked is `count_checks`.

    until: where the study stops a configuration.
    """
    searched, fresh = by_phase(rows)
    rate, confirmation = GrokRate.of(searched, until), GrokRate.of(fresh)
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


# Metrics over training steps, of a configuration's first seeds and of a seed

CHARTS = tuple(f"{FIRST_SEEDS}{name}" for name in ("grok_rate", "best_exact", "median_exact", "loss"))
"""Those that a view draws."""


def readings(result: Result, spec: Spec) -> list[dict[str, float]]:
    """Return a seed's measures and probes by name, one row per evaluation."""
    names = [*MEASURES, *(f"{PROBE}{name}" for name in spec.probes())]
    probes = result.probes_ER.tolist() or [[]] * len(result.curve_EM)
    rows = zip(result.curve_EM.tolist(), probes, strict=True)
    return [dict(zip(names, [*row, *more], strict=False)) for row, more in rows]


def step_metrics(step: int, rows: Sequence[Counts]) -> dict[str, float]:
    """Return a configuration's metrics at a training step, as MLflow has them.

    rows: exact, token, loss, grok_step and probes of its first seeds. A probe's metric is its mean over seeds.
    """
    finite = [row for row in rows if isfinite(row["loss"])] or rows  # a diverged seed has no median
    grok_steps = [row["grok_step"] for row in rows]
    values = {
        "grok_rate": sum(at is not None and at <= step for at in grok_steps) / len(rows),
        "best_exact": max(row["exact"] for row in finite),
        "median_exact": median(row["exact"] for row in finite),
        "median_token": median(row["token"] for row in finite),
        "loss": median(row["loss"] for row in finite),
    }
    for probe in (name for name in rows[0] if name.startswith(PROBE)):
        known = [row[probe] for row in rows if isfinite(row.get(probe, nan))]
        values |= {probe: fmean(known)} if known else {}
    return {f"{FIRST_SEEDS}{name}": value for name, value in values.items()}


# What a configuration is in the study's table of constraints

ROLE_PARAMS = ("scale", "constraint", "toggled")
ROLE_TAGS = ("trains", "cost", "keeps_half", "paper", "agrees")
RATIO = ("ratio", "ratio_low", "ratio_high", "pairs")
ROLE_METRICS = (
    *RATIO, "rate_with", "rate_without", "ratio_finished", "ratio_finished_low", "ratio_finished_high",
)  # fmt: skip
"""Names below `table.`, but for the parameters; a view has columns of RATIO."""


# Parameters and tags of a configuration

ALWAYS = (
    "rung", "params", "model.family", "model.task", "model.ties", "recipe.steps", "recipe.batch", "recipe.lr",
    "recipe.weight_decay", "recipe.curriculum", "recipe.start",
)  # fmt: skip
"""Fields of a configuration that its run always has as parameters."""


def main_params(configuration: Configuration, varied: Iterable[str]) -> dict[str, Any]:
    """Return of a configuration's fields what a study varies, and what of the recipe is not its default."""
    recipe = configuration.recipe
    carries = () if recipe.carry_shares else CARRY_MIX
    names = {*ALWAYS, *carries, *varied, *(f"recipe.{name}" for name in choices(recipe))}
    values = {name: value for name, value in configuration.as_params().items() if name in names}
    return {"preset": values.pop("rung"), **values}


def describe_configuration(study: str, name: str, configuration: Configuration) -> dict[str, str]:
    """Return MLflow's own tags of a run: its source, its user, and a description with the commands for it."""
    params, whole = configuration.spec.params, f"whole model and recipe in `{CONFIGURATION_JSON}`"
    commands = (pull_command(study, configuration.key), f"adder-search report {study} -o {study}.html")
    lines = [f"{_title(escape(name))}, {params} parameters; {whole}", ""]
    lines += [*(f"    {command}" for command in commands), "", MEANING]
    tags = {
        NOTE: "\n".join(lines),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": f"adder-search run {study}",
    }
    with suppress(OSError, KeyError):  # a container's user may have no name
        tags["mlflow.user"] = getpass.getuser()
    return tags


def _title(name: str) -> str:
    return f"**{name}**"


def describes(note: str, name: str) -> bool:
    """True if a description is that of a run of this name, so that no user has written another."""
    return note.startswith((_title(escape(name)), _title(name)))


def ancestor_tags(configuration: Configuration) -> dict[str, str]:
    """Return tags of what led to the θ that a configuration starts from."""
    steps = configuration.start.lineage if configuration.start else ()
    if not steps:
        return {}
    tags = dict(zip(ANCESTOR_TAGS, map(describe_step, reversed(steps)), strict=False))
    ties = ", ".join(ties_beyond_parent(steps[-1].get("spec"), configuration.spec))
    return tags | ({TIED_TAG: ties[:LONGEST_TAG]} if ties else {})
