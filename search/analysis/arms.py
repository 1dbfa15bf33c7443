"""Arms of the constraint table: recorded configurations, read back from rows of a frame or of a file of one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from operator import attrgetter
from typing import Any

from model import Spec, make_spec
from model.spec import FAMILIES
from search.errors import UserError
from search.stats.counting import COUNTED, GrokRate
from trainer import FALSE_KILLS_UPPER, Outcome, Recipe
from trainer.bank.futility import MEASURED

COLUMNS = (
    "study", "configuration", "experiment_id", "run_id", "seeds", "grokked", "given_up", "best_exact",
    "median_grok_step", "verified", "verify_tried", "model.family",
)  # fmt: skip
"""Columns that a frame of configurations must have."""


@dataclass(frozen=True)
class Arm:
    """One recorded configuration."""

    spec: Spec
    recipe: Recipe
    configuration: str
    study: str
    experiment_id: str
    run_id: str
    rate: GrokRate
    best_exact: float
    median_grok_step: float | None
    verified: int
    """Seeds, of the `decoded` best grokked ones, that are right on all 10,010 additions."""
    decoded: int
    seeds: Mapping[tuple[int, int], bool] = field(default_factory=dict, compare=False)
    """True if the seed grokked, for each counted seed that was recorded one by one."""

    @property
    def page(self) -> str:
        """Path of its page in the MLflow UI, below the UI's address."""
        return f"#/experiments/{self.experiment_id}/runs/{self.run_id}"


ARM_VALUES: dict[str, Callable[[Arm], Any]] = {
    "grokked": attrgetter("rate.grokked"),
    "seeds": attrgetter("rate.n"),
    "given_up": attrgetter("rate.given_up"),
    "rate": attrgetter("rate.rate"),
    "low": lambda arm: arm.rate.interval[0],
    "high": lambda arm: arm.rate.interval[1],
    "params": attrgetter("spec.params"),
    **{name: attrgetter(name) for name in ("best_exact", "median_grok_step", "verified", "decoded")},
    **{name: attrgetter(name) for name in ("study", "configuration", "run_id", "page")},
}
"""Columns of a tidy row about an arm, and how each is read."""
Arms = dict[tuple[Spec, Recipe], Arm]
SeedOutcomes = dict[tuple[str, str], dict[tuple[int, int], bool]]
"""Study and configuration -> seed -> True if it grokked."""


def read_arms(configurations: Sequence[Mapping[str, Any]], seeds: Iterable[Mapping[str, Any]]) -> Arms:
    """Return the recorded configurations by spec and recipe.

    A configuration of several studies is read from the study with the most configurations, then from that with
    the most seeds. One that was taught is left out: its row has its teacher's title alone.
    Raises UserError if the rows are no configurations, or name unknown fields.
    """
    for row in configurations:
        if missing := [column for column in COLUMNS if column not in row]:
            raise UserError(f"this is no frame of configurations: it has no column {', '.join(missing)}")
    sizes, outcomes = Counter(row["study"] for row in configurations), _outcomes(seeds)
    arms: Arms = {}
    ordered = sorted(
        configurations, key=lambda r: (sizes[r["study"]], r["seeds"], str(r["study"])), reverse=True
    )
    for row in ordered:
        teacher = row.get("recipe.teacher")
        if isinstance(teacher, str) and teacher:
            continue
        try:
            arm = _arm(row, outcomes)
        except (ValueError, TypeError) as error:
            raise UserError(f"configuration {row['configuration']}: {error}") from None
        arms.setdefault((arm.spec, arm.recipe), arm)
    return arms


def _outcomes(seeds: Iterable[Mapping[str, Any]]) -> SeedOutcomes:
    outcomes: SeedOutcomes = {}
    for row in seeds:
        if row["outcome"] in COUNTED:
            by_seed = outcomes.setdefault((str(row["study"]), str(row["configuration"])), {})
            by_seed[int(row["init_seed"]), int(row["data_seed"])] = row["outcome"] == Outcome.GROKKED
    return outcomes


def _arm(row: Mapping[str, Any], outcomes: SeedOutcomes) -> Arm:
    model, step = _fields(row, "model."), float(row["median_grok_step"])
    family = model.pop("family")
    return Arm(
        spec=make_spec(family, **_typed(FAMILIES.get(family, Spec), model)),
        recipe=_recipe(_fields(row, "recipe.")),
        **{name: str(row[name]) for name in ("configuration", "study", "experiment_id", "run_id")},
        rate=_rate(row),
        best_exact=float(row["best_exact"]),
        median_grok_step=None if isnan(step) else step,
        verified=int(row["verified"]),
        decoded=int(row["verify_tried"]),
        seeds=outcomes.get((str(row["study"]), str(row["configuration"])), {}),
    )


def _rate(row: Mapping[str, Any]) -> GrokRate:
    """Return the grok rate of a row; one without `wrongly` may have missed any seed that was given up."""
    grokked, n, given_up = (int(row[name]) for name in ("grokked", "seeds", "given_up"))
    missed = given_up * (FALSE_KILLS_UPPER if row["configuration"] in MEASURED else 1.0)
    interval = (row["grok_rate_low"], row["grok_rate_high"]) if row.get("stopped") in (True, 1) else None
    return GrokRate(grokked, n, given_up, float(row.get("wrongly", missed)), recorded_interval=interval)


def _fields(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the columns with a prefix, without it; those of other families are empty and left out."""
    columns = {name.removeprefix(prefix): v for name, v in row.items() if name.startswith(prefix)}
    return {name: v for name, v in columns.items() if not (v is None or (isinstance(v, float) and isnan(v)))}


def _recipe(values: dict[str, Any]) -> Recipe:
    for name, recipe_field in Recipe.__dataclass_fields__.items():
        if isinstance(recipe_field.default, tuple) and name in values:
            entries = json.loads(values[name]) if isinstance(values[name], str) else values[name]
            values[name] = [e if isinstance(e, str) else [_number(part) for part in e] for e in entries]
    return Recipe.from_record(_typed(Recipe, values))


def _number(entry: Any) -> Any:
    """Return a list's entry as in a study file: frames turn whole numbers into floats."""
    return entry if isinstance(entry, str) else int(entry) if float(entry).is_integer() else float(entry)


def _typed(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in the types of a class's fields: where families are mixed, integers are floats."""
    fields = cls.__dataclass_fields__
    return {name: type(fields[name].default)(v) if name in fields else v for name, v in values.items()}
