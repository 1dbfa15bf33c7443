"""What MLflow shows: parameters, tags, metrics by step. Metrics of a configuration are in search/stats/metrics.py.

Everything is a function of what is recorded. tracking/projection.py says when it is written, and draws pictures;
tracking/tracker.py writes what differs from what MLflow has.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import isfinite, nan
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from model import Spec
from model.spec import choices
from reports.markup import escape
from search.stats.counting import Counts
from search.stats.metrics import METRICS
from search.store.home import pull_command
from search.study.start import describe_step, ties_beyond_parent
from search.study.trial import CARRY_MIX, Configuration
from trainer import MEASURES
from trainer.outcomes import PROBE

if TYPE_CHECKING:
    from trainer import Result

FINAL, FIRST_SEEDS, TABLE = "final.", "first_seeds.", "table."
"""Prefixes: of metrics of all seeds of a configuration; of its first seeds, over steps; of its cell of a table."""
CONFIGURATION_JSON = "configuration.json"
ANCESTOR_TAGS, TIED_TAG = ("adder.parent", "adder.grandparent"), "adder.tied"
"""Tags of a configuration whose seeds start from another's θ: whose, and the ties beyond its parent's."""
NOTE = "mlflow.note.content"
"""Tag of a description: Markdown on its page, plain text in a list of experiments, so theirs has no markup."""
PAGE_TAG = "mlflow.adder.page"  # of an experiment: the study's own run; MLflow's lists leave out tags named so
PROVED_TAG, PROGRAM_TAG = "adder.proved", "adder.program"
"""Tags of a seed's run: the verdict on all pairs, as `word` has it, and the program that it is of."""
LONGEST_TAG = 4_000  # characters
MEANING = (
    "`first_seeds.*`: over steps, of its first seeds alone. `final.*`: of all its seeds, `final.confirmation_*` of "
    "those that confirm it; up to `wrongly` of those that rules ended might have grokked."
)


# Metrics of a configuration (search/stats/metrics.py)


def in_view(group: str) -> list[str]:
    """Return the metrics of a group of a view's columns, in their order."""
    places = {place: name for name, place in METRICS.items() if place.startswith(group)}
    return [f"{FINAL}{places[place]}" for place in sorted(places)]


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
    lines = [f"{_title(escape(name))}, {params:,} parameters; {whole}", ""]
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


def word(value: bool | None) -> str:
    """Return a tag's text of what is so or not, or not decided."""
    return {True: "yes", False: "no", None: "undecided"}[value]
