"""Arms of the constraint table: recorded configurations, read back from rows of a frame or of a file of one."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from model import Spec
from model.spec import family_class
from model.tied import Tied
from search.analysis.frames import SCALE
from search.errors import UserError
from search.stats.counting import COUNTED, ENDED_BY_RULES, GrokRate, missed
from search.stats.intervals import Interval
from search.stats.record import SeedRecord
from search.store.home import IDENTIFIER
from trainer import Recipe, Seed

COLUMNS = (
    "study", "configuration", "experiment_id", "run_id", "seeds", "grokked", "best_exact", "verified",
    "model.family",
)  # fmt: skip
"""Columns that a frame of configurations must have."""
Row = Mapping[str, Any]
SeedRows = dict[Seed, SeedRecord]


@dataclass(frozen=True)
class Arm:
    """One recorded configuration of one study.

    Seeds grok by training alone. Those that were finished by curvature (recipe.finish_above), which grok at the
    last step of the budget, are counted apart; so is one that training grokked exactly there. Where seeds may have
    been finished and are not recorded one by one, nothing is counted.
    """

    spec: Spec
    recipe: Recipe
    configuration: str
    study: str
    experiment_id: str
    run_id: str
    grokked: int
    n: int
    """Counted seeds."""
    best_exact: float
    verified: int
    """Seeds, of the best that grokked by training, that are verified."""
    ended: int = 0
    """Counted seeds that a rule ended before their budget was spent."""
    missed: float = 0.0
    """Upper bound on those that would have grokked."""
    scale: str = ""
    """The scale of which its study makes it the base."""
    stopped: bool = False
    """True if it went on until enough seeds had grokked, so that its rate is too high."""
    recorded_interval: Interval | None = None
    """The interval for that, where it stopped: of its row."""
    seeds: Mapping[Seed, bool] = field(default_factory=dict, compare=False)
    """True if the seed grokked by training, for each counted seed that was recorded one by one."""
    with_finished: Mapping[Seed, bool] = field(default_factory=dict, compare=False)
    """True if the seed grokked, by training or by curvature."""

    @property
    def finishes(self) -> bool:
        return self.recipe.finish_above < 1

    @property
    def grokked_with_finished(self) -> int:
        return max(self.grokked, sum(self.with_finished.values()))

    @property
    def rate(self) -> float:
        return self.grokked / self.n if self.n else 0.0

    @property
    def interval(self) -> Interval:
        """The interval of the rate."""
        return GrokRate(self.grokked, self.n, self.missed, recorded_interval=self.recorded_interval).interval

    @property
    def promised(self) -> float:
        """The rate; where it stopped at a success, which makes it too high, the least that is recorded of it."""
        if not self.stopped:
            return self.rate
        return self.recorded_interval[0] if self.recorded_interval else 0.0

    @property
    def page(self) -> str | None:
        """Path of its page in the MLflow UI, below the UI's address; None if it has none."""
        return f"#/experiments/{self.experiment_id}/runs/{self.run_id}" if self.run_id else None


def read_arms(configurations: Sequence[Row], seeds: Iterable[SeedRecord]) -> list[Arm]:
    """Return the recorded configurations, each of each study once: of repeats the one with the most seeds.

    Left out are those without a counted seed, and those that were taught (in a stage, too), tied, or started from other
    numbers: their rows name these in words, and they say nothing about training from random values. So are specs of
    users' code in stages, whose rows have no text of it.
    Raises UserError if the rows are no configurations, or name unknown fields.
    """
    for row in configurations:
        missing = [column for column in COLUMNS if column not in row]
        if missing:
            raise UserError(f"this is no frame of configurations: it has no column {', '.join(missing)}")

    # Without those of a confirmation, which only the best arms have.
    by_arm: dict[tuple[str, str], SeedRows] = {}
    for seed in seeds:
        if seed.outcome in COUNTED and not seed.confirmation:
            by_arm.setdefault((seed.study, seed.configuration), {})[seed.seed] = seed

    arms: dict[tuple[str, str], Arm] = {}
    # Of repeats the first has the most seeds.
    for row in sorted(configurations, key=lambda row: row["seeds"], reverse=True):
        key = str(row["study"]), str(row["configuration"])
        if key in arms:
            continue
        try:
            recipe = _recipe_fields(row)
            if not _is_derived(row, recipe):
                arms[key] = _arm(row, recipe, by_arm.get(key, {}))
        except (ValueError, TypeError, RecursionError) as error:
            raise UserError(f"configuration {row['configuration']!r:.80}: {error}") from None
    return [arm for arm in arms.values() if arm.n]


def _is_derived(row: Row, recipe: Row) -> bool:
    """True if a row says nothing about training from random values: see `read_arms`. Raises ValueError.

    recipe: the fields of its recipe.
    """
    stages = [stage for stage in recipe.get("stages", ()) if isinstance(stage, Mapping)]
    parts = [recipe, *(stage.get(name) for stage in stages for name in ("recipe", "longer"))]
    if any(part.get("teacher") or part.get("start") for part in parts if isinstance(part, Mapping)):
        return True
    family = family_class(row["model.family"])
    return family is Tied or (family.runs_code and bool(stages))


def _arm(row: Row, fields: Row, seeds: SeedRows) -> Arm:
    """Return the arm of a row. fields: of its recipe. Raises ValueError or TypeError."""
    spec = _spec(row)
    recipe = Recipe.from_record(_typed(Recipe, fields))
    end = recipe.steps if recipe.finish_above < 1 else None
    grokked = {}
    by_training = {}
    for number, seed in seeds.items():
        is_finished = end is not None and seed.grok_step == end
        grokked[number] = seed.has_grokked
        by_training[number] = seed.has_grokked and not is_finished

    # Only its seeds tell which of a study that finishes seeds grokked by training.
    if end or seeds:
        n = len(seeds)
        count = sum(by_training.values())
        wrongly = missed(list(seeds.values()))
    else:
        n = int(row["seeds"])
        count = int(row["grokked"])
        wrongly = float(row.get("wrongly") or 0.0)
    # The row's count is of all seeds: it has verified ones that curvature finished.
    verified = int(row["verified"])
    if end:
        right = spec.task.problems
        verified = sum(seed.verified == right for number, seed in seeds.items() if by_training[number])

    # A row's interval is of all that grokked: where curvature finished some, it is not that of training alone.
    has_stopped = row.get("stopped") in (True, 1)
    ends = _fields(row, "grok_rate_") if has_stopped and not end else {}
    names = {}
    for column in ("configuration", "study", "experiment_id", "run_id"):
        name = str(row[column] or "")
        # Names are shown, in links too, and a file may have any text there.
        if name and not IDENTIFIER.fullmatch(name):
            raise ValueError(f"{name!r:.80} is no name")
        names[column] = name
    return Arm(
        spec=spec,
        recipe=recipe,
        **names,
        grokked=count,
        n=n,
        best_exact=float(row["best_exact"]),
        verified=verified,
        missed=wrongly,
        ended=sum(int(row.get(name) or 0) for name in ENDED_BY_RULES),
        scale=_scale(row),
        stopped=has_stopped,
        recorded_interval=(float(ends["low"]), float(ends["high"])) if {"low", "high"} <= ends.keys() else None,
        seeds=by_training,
        with_finished=grokked,
    )


def _scale(row: Row) -> str:
    """Return the scale of which a study makes a row the base; empty where its text is none, or no line."""
    scale = row.get(SCALE)
    return scale if isinstance(scale, str) and scale.isprintable() else ""


def _spec(row: Row) -> Spec:
    """Return the spec of a row. No code of users runs."""
    model = _fields(row, "model.")
    family = family_class(model.pop("family"))
    return family.from_record(_typed(family, model), int(row["params"]))


def _fields(row: Row, prefix: str) -> dict[str, Any]:
    """Return the columns with a prefix, without it; those of other families are empty and left out."""
    fields = {}
    for name, value in row.items():
        is_empty = value is None or (isinstance(value, float) and isnan(value))
        if name.startswith(prefix) and not is_empty:
            fields[name.removeprefix(prefix)] = value
    return fields


def _recipe_fields(row: Row) -> dict[str, Any]:
    """Return the fields of a row's recipe, of which those that are lists may be JSON."""
    values = _fields(row, "recipe.")
    for name, recipe_field in Recipe.__dataclass_fields__.items():
        if isinstance(recipe_field.default, tuple) and name in values:
            entries = json.loads(values[name]) if isinstance(values[name], str) else values[name]
            values[name] = list(map(_entry, entries))
    return values


def _entry(value: Any) -> Any:
    """Return an entry of a list, a text, a stage or a list of numbers, as in a study file."""
    if isinstance(value, str | Mapping):
        return value
    return list(map(_number, value))


def _number(value: Any) -> Any:
    """Return a number as in a study file: frames turn whole ones into floats. A text stays as it is."""
    if isinstance(value, str):
        return value
    return int(value) if float(value).is_integer() else float(value)


def _typed(cls: Any, values: Row) -> dict[str, Any]:
    """Return values in the types of a class's fields: where families are mixed, integers are floats."""
    fields = cls.__dataclass_fields__
    typed = dict(values)
    for name, value in values.items():
        if name in fields and name != "task":  # make_spec reads a task's text
            typed[name] = type(fields[name].default)(value)
    return typed
