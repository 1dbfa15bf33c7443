"""A seed's record: each of its columns is declared once, in `SeedRecord`.

From the declarations follow the ledger's table (a home that lacks a column gets it), what a worker reports of a seed,
data frames, Parquet and JSON, and the metrics of configurations that summarise a column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import nan
from statistics import median
from types import NoneType, UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from model.verdict import is_right
from trainer import Outcome, Seed

SeedKey = tuple[str, int, int]
"""A configuration's key, init_seed, data_seed."""
ENOUGH = "enough had grokked"
"""Reason of seeds that were censored because `until` needed no more."""
MAX, MEDIAN, SUM = "max", "median", "sum"
SUMMARIES: Mapping[str, Callable[[list[Any]], float]] = {
    MEDIAN: lambda values: float(median(values)),
    SUM: sum,
    MAX: max,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """What is declared of a column. Its name and type are the field's."""

    help: str
    default: Any = None
    """Its value where nothing else was written, as in homes that lacked it."""
    unit: str = ""
    measured: bool = False
    """True if it is a field of the trainer's `Result`, of the same name."""
    shown: bool = True
    """True if data frames and their files have it."""
    summary: str = ""
    """MEDIAN, SUM or MAX over a configuration's seeds that have it: a metric, and a column of its frame."""
    stored: bool = True
    """False if another table than `ledger` has it."""
    name: str = ""
    kind: type = NoneType
    """Type of its values, if they are not None."""
    is_optional: bool = True

    def typed(self, value: Any) -> Any:
        """Return a value as the column's type: frames and files have whole numbers as fractions."""
        if value is None or self.kind not in (bool, int, float):
            return value
        return self.kind(value)

    @property
    def metric(self) -> str:
        """Name of its summary; empty if it has none."""
        if not self.summary:
            return ""
        return f"median_{self.name}" if self.summary == MEDIAN else self.name

    def summarise(self, records: Iterable[SeedRecord]) -> float | None:
        """Return its summary over the seeds that have a value; None if no seed has one, but 0 for a sum."""
        values = [value for record in records if (value := record[self.name]) is not None]
        if not values and self.summary != SUM:
            return None
        return SUMMARIES[self.summary](values)


def column(help: str, default: Any = None, **declared: Any) -> Any:
    """Declare a column of a seed's record by the fields of `Column`.

    >>> SeedRecord.__dataclass_fields__["steps"].metadata["column"].unit
    'steps'
    """
    return dataclasses.field(default=default, metadata={"column": Column(help=help, default=default, **declared)})


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SeedRecord:
    """One seed of a configuration of a study, and what became of it: a row of the table `ledger`."""

    study: str = column("its study's name", "")
    configuration: str = column("its configuration's key", "")
    init_seed: int = column("number of its initial values", 0)
    data_seed: int = column("number of its stream of problems", 0)
    confirmation: bool = column("true if it confirms what a search had chosen", False)
    outcome: str = column("what became of it", Outcome.QUEUED.value)
    reason: str | None = column("why it was ended from outside")
    steps: int = column("how far it trained", 0, unit="steps", measured=True)
    grok_step: int | None = column("its first perfect evaluation", unit="steps", measured=True, summary=MEDIAN)
    held: bool | None = column("true if it was still perfect `recipe.hold` steps later", measured=True, summary=SUM)
    hopeless_step: int | None = column("when the hopeless rule would end it, or did", unit="steps", measured=True)
    screen: str | None = column("rung of the screen that would end it, or did", measured=True)
    stages: str | None = column("stages that it was trained in (`trainer.recipe.passed`), as JSON", measured=True)
    best_step: int | None = column("when its exact match was highest", unit="steps", measured=True)
    best_exact: float | None = column("highest exact match", unit="fraction", measured=True, summary=MAX)
    best_token: float | None = column("highest token accuracy", unit="fraction", measured=True)
    verified: int | None = column("right answers of AdderBoard's 10,010, if it was decoded")
    proof: dict[str, Any] | None = column(  # noqa: RUF009
        "verdict on all pairs (model/verdict.py)", shown=False, stored=False
    )
    core_s: float | None = column("its share of its bank's work, if the C++ engine trained it", unit="core-seconds")
    environment: dict[str, Any] | None = column(  # noqa: RUF009
        "code, versions and hardware that trained it"
    )
    seed_steps_per_s: float | None = column(
        "speed of its bank, of all slots together", unit="seed-steps a second", shown=False
    )
    owner: str | None = column("the driver that trains it", shown=False)
    lease_until: float | None = column(
        "end of its owner's lease, by the database's clock", unit="seconds since 1970", shown=False
    )
    verify_calls: int = column("how often it was decoded", 0, shown=False)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return a record with these values. What they lack, or is NaN as in frames, is the column's default."""
        return cls(**cls.known(values))

    @staticmethod
    def known(values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns among some values, as their types. Raises ValueError, TypeError or OverflowError."""
        known = {}
        for name, column in COLUMNS.items():
            value = values.get(name, nan)
            if value == value:  # NaN, in frames, is no value
                known[name] = column.typed(value)
        return known

    def __getitem__(self, name: str) -> Any:
        """Return the value of a column whose name is in a variable."""
        return getattr(self, name)

    @property
    def seed(self) -> Seed:
        return Seed(self.init_seed, self.data_seed)

    @property
    def key(self) -> SeedKey:
        return self.configuration, self.init_seed, self.data_seed

    @property
    def is_final(self) -> bool:
        """True if it needs no more training. Censored seeds go on when the study does."""
        return self.outcome not in (Outcome.QUEUED, Outcome.RUNNING, Outcome.CENSORED)

    @property
    def has_grokked(self) -> bool:
        return self.outcome == Outcome.GROKKED

    @property
    def proved(self) -> bool | None:
        """True if it is right on all pairs, False if not; None where that is not decided."""
        return is_right(self.proof)


def _columns() -> Iterator[Column]:
    hints = get_type_hints(SeedRecord)
    for field in dataclasses.fields(SeedRecord):
        hint = hints[field.name]
        kind, *none = get_args(hint) if isinstance(hint, UnionType) else [hint]  # int | None
        kind = get_origin(kind) or kind  # dict of dict[str, Any]
        yield dataclasses.replace(field.metadata["column"], name=field.name, kind=kind, is_optional=bool(none))


COLUMNS = {column.name: column for column in _columns()}
"""The columns by name, in order."""
MEASURED = tuple(name for name, column in COLUMNS.items() if column.measured)
"""Columns that say what training a seed came to."""
UNMEASURED = {name: COLUMNS[name].default for name in MEASURED}
"""Their values in a seed that did not train to its end."""
