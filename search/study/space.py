"""The `space` of a study: searched fields and their distributions.

A proposal is a number for each field, as Optuna stores it: for a choice that is a list its JSON, for a field with
`after` the length that is added. `resolve` turns numbers into values of the fields.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice, product
from random import Random
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from model import Spec
from model.fields import did_you_mean
from model.tasks import options_of
from trainer import Recipe

LARGEST_SEED = 2**31 - 1
MOST_TRIED = 1_000  # rows of the fields' end points, the first ones and as many at random
MOST_STEPS = 1_000_000  # of a float
MOST_POINTS = 10_000  # of a grid

Numbers = dict[str, Any]
Values = dict[str, Any]
"""Values of fields, by key path."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Distribution(Strict):
    """The distribution of a searched field: exactly one of float, int and choice."""

    float_: tuple[float, float] | None = Field(None, alias="float", strict=False, description="low and high")
    int_: tuple[int, int] | None = Field(None, alias="int", strict=False, description="low and high")
    choice: list[bool | int | float | str | list[list[int | float | str]] | None] | None = Field(
        None, min_length=1, max_length=MOST_TRIED, description="the values"
    )
    log: bool = Field(False, description="sample the logarithm")
    points: int | None = Field(
        None, ge=2, le=MOST_TRIED, description="take so many values from low to high, as a choice; evenly, or by log"
    )
    step: float | None = Field(None, gt=0, description="distance of the values of a float or int")
    after: str | None = Field(None, description="key path of a field whose value is added to the number")
    when: dict[str, bool | int | float | str | None] | None = Field(
        None,
        min_length=1,
        description="values of other fields at which this one is searched; else it is as in the base",
    )

    @model_validator(mode="after")
    def _meaningful(self) -> Self:
        given = [form for form in (self.float_, self.int_, self.choice) if form is not None]
        span = self.float_ or self.int_
        low, high = span or (1, 2)  # any that pass: a choice has no bounds
        step = self.step
        values = self.choice or []
        has_repeats = any(_is_listed(value, values[:n]) for n, value in enumerate(values))
        refuse(
            (len(given) != 1, "give exactly one of float, int, choice"),
            (not low < high, f"the first bound must be below the second, got {[low, high]}"),
            (self.log and low <= 0, "log needs bounds above 0"),
            (self.log and (not span or step), "log goes with float or int, and not with step"),
            (not span and step, "step goes with float or int"),
            (not span and self.after is not None, "after goes with float or int"),
            (has_repeats, "a value is listed twice"),
            (self.points and (not span or step), "points go with float or int, and not with step"),
            (self.points and self.after is not None, "points do not go with after"),
        )
        if step:
            size = high - low
            is_tiny = self.float_ and step * MOST_STEPS < size
            refuse(
                (step > size, f"step must be at most the distance of the bounds, got {step:g}"),
                (self.int_ and step % 1, f"step must be an integer where the values are, got {step:g}"),
                (is_tiny, f"step must leave at most {MOST_STEPS} values, got {step:g}"),
            )
        return self

    def values(self) -> Sequence[Any]:
        """Return every value; nothing for a continuum."""
        if self.choice is not None:
            return self.choice
        if self.points:
            return self._points(self.points)
        if self.int_:
            low, high = self.int_
            return range(low, high + 1, int(self.step or 1))
        if self.float_ and self.step:
            return _Steps(*self.float_, self.step)
        return ()

    def _points(self, count: int) -> list[Any]:
        """Return values from low to high, rounded to six digits, or to whole numbers where the bounds are."""
        low, high = self.int_ or self.float_ or (0, 1)
        points: list[Any] = [low]
        for n in range(1, count - 1):
            place = n / (count - 1)
            value = low * (high / low) ** place if self.log else low + (high - low) * place
            points.append(round(value) if self.int_ else float(f"{value:.6g}"))
        return list(dict.fromkeys([*points, high]))  # rounding may make close ones equal

    @property
    def is_choice(self) -> bool:
        """True if the values have no order for a sampler."""
        return self.choice is not None or self.points is not None

    def is_asked(self, values: Values) -> bool:
        """True if the field is searched where the others that are searched have these values."""
        conditions = (self.when or {}).items()
        return all(path in values and _are_same(values[path], wanted) for path, wanted in conditions)

    def ends(self) -> Sequence[Any]:
        """Return the values of a choice, or the least and the greatest."""
        values = self.values() or self.float_ or ()
        if self.choice is not None:
            return values
        return values[0], values[-1]

    def draw(self, random: Random) -> Any:
        """Return a number at random, as a sampler would draw its first."""
        if self.log and not self.points:
            low, high = map(math.log, self.ends())
            number = math.exp(random.uniform(low, high))
            return round(number) if self.int_ else number

        values = self.values()
        if values:
            return stored(random.choice(values))
        return random.uniform(*self.ends())

    def has(self, value: Any) -> bool:
        """True if `value` is one of `values`, or in the continuum."""
        if self.is_choice:
            return _is_listed(value, self.values())
        if self.int_:  # a range would be gone through for what is no integer
            return type(value) is int and value in self.values()
        low, high = self.ends()
        return isinstance(value, int | float) and low <= value <= high and bool(self.decoded(value) == value)

    def decoded(self, number: Any) -> Any:
        """Return the value of Optuna's `number`: the list that its JSON spells, or the nearest step.

        Raise ValueError for a number that is none of the choices.
        """
        values = self.values()
        if self.is_choice:
            for value in values:
                if _are_same(stored(value), number):
                    return value
            raise ValueError(f"{number!r} is none of {values}")
        return values.nearest(number) if isinstance(values, _Steps) else number


@dataclasses.dataclass(frozen=True)
class _Steps(Sequence[float]):
    """The values of a float with a step. Decimal, as the file has them: the third tenth is 0.3."""

    low: float
    high: float
    step: float

    def __len__(self) -> int:
        span = _decimal(self.high) - _decimal(self.low)
        return int(span // _decimal(self.step)) + 1

    def __getitem__(self, i: Any) -> Any:
        place = range(len(self))[i]
        return float(_decimal(self.low) + place * _decimal(self.step))

    def nearest(self, number: float) -> float:
        place = round((number - self.low) / self.step)
        return float(self[min(max(place, 0), len(self) - 1)])


def _decimal(number: float) -> Decimal:
    return Decimal(str(number))


def _are_same(first: Any, second: Any) -> bool:
    """True if two values are equal, and both or neither are true or false: in Python 1 is True."""
    return bool(first == second) and isinstance(first, bool) == isinstance(second, bool)


def _is_listed(value: Any, values: Sequence[Any]) -> bool:
    return any(_are_same(value, other) for other in values)


def stored(value: Any) -> Any:
    """Return a choice as Optuna stores it."""
    return json.dumps(value) if isinstance(value, list) else value


Space = Mapping[str, Distribution]


def order(space: Space) -> list[str]:
    """Return the fields in the file's order, each behind those that it depends on: by `after`, or by `when`.

    Raise ValueError at the key path of a field that depends on itself.
    """
    needed: dict[str, list[str]] = {}
    for path, field in space.items():
        needed[path] = [other for other in (field.after, *(field.when or ())) if other in space]
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]  # each waits for the next
        key = "after" if space[circle[0]].after == circle[1] else "when"
        raise error_at(f"space.{circle[0]}.{key}", f"depends on itself ({' -> '.join(circle)})") from None

    placed: list[str] = []
    while waiting := [path for path in space if path not in placed]:
        placed.append(next(path for path in waiting if set(needed[path]) <= set(placed)))
    return placed


def conditions(space: Space, path: str) -> Values:
    """Return the values of others at which a field is searched: those of its `when`, and at which these are."""
    wanted: Values = {}
    for other, value in (space[path].when or {}).items():
        wanted |= {other: value, **conditions(space, other)}
    return wanted


def resolve(space: Space, numbers: Numbers, base: Values) -> Values:
    """Return the values of a proposal's fields, by key path; `base` has all others.

    Raise ValueError if the numbers are not those that the space asks for.
    """
    values: Values = {}
    for path in order(space):
        field = space[path]
        if not field.is_asked(values):
            continue
        if path not in numbers:
            raise ValueError(f"numbers of {sorted(numbers)}, not of {sorted(space)}")
        value = field.decoded(numbers[path])
        if field.after:
            value += (base | values)[field.after]
        values[path] = value

    if numbers.keys() != values.keys():  # some are of fields that are not searched here
        raise ValueError(f"numbers of {sorted(numbers)}, not of {sorted(values)}")
    return values


def numbers_by(space: Space, draw: Callable[[str, Distribution], Any]) -> Numbers:
    """Return a number for each field that is searched where the fields before it have the values that were drawn."""
    numbers: Numbers = {}
    values: Values = {}
    for path in order(space):
        field = space[path]
        if field.is_asked(values):
            numbers[path] = draw(path, field)
            values[path] = field.decoded(numbers[path])
    return numbers


def fixed(spec: Spec, recipe: Recipe) -> Values:
    """Return the values of a configuration. Tuples are lists, as in a file."""
    model = {"task": spec.task.title, **spec.shown()}
    parts = {"model": model, "recipe": recipe.as_dict(), "task": options_of(spec.task)}
    return {f"{part}.{name}": value for part, fields in parts.items() for name, value in fields.items()}


def points(space: Space) -> list[Numbers]:
    """Return the points of a grid."""
    return list(_proposals(space, product(*(space[path].values() for path in order(space)))))


def corners(space: Space, **given: Sequence[Any]) -> Iterator[Numbers]:
    """Yield the proposals with each field at an end; of many some. given: other values of some fields."""
    columns = [given.get(path, space[path].ends()) for path in order(space)]
    chance = Random(0)  # of many fields only the last ones change in the first rows
    drawn = ([chance.choice(column) for column in columns] for _ in range(MOST_TRIED))
    return _proposals(space, chain(islice(product(*columns), MOST_TRIED), drawn))


def grid_size(space: Space) -> int:
    """Return the number of points of a grid. Raise ValueError for too many."""
    # The product first: it is an upper bound, and costs nothing where listing the points would take for ever.
    size = math.prod(len(field.values()) for field in space.values())
    if size > MOST_POINTS:
        raise error_at("space", f"a grid has at most {MOST_POINTS} points, this one more")
    is_conditional = any(field.when for field in space.values())
    return len(points(space)) if is_conditional else size


def _proposals(space: Space, rows: Iterable[Sequence[Any]]) -> Iterator[Numbers]:
    """Yield the proposals of rows of values, in the fields' `order`, each once. A field that is not searched there has
    no number.
    """
    paths = order(space)
    seen = set[str]()
    for values in rows:
        asked: Values = {}
        for path, value in zip(paths, values, strict=True):
            if space[path].is_asked(asked):
                asked[path] = value
        numbers = {path: stored(value) for path, value in asked.items()}

        # Rows that differ only in fields that are not searched there are one proposal.
        point = repr(numbers)
        if point not in seen:
            seen.add(point)
            yield numbers


def check_space(space: Space, build: Callable[[Values], tuple[Spec, Recipe]]) -> None:
    """Check that spec and recipe have the fields, and that every end is possible with some ends of the others.

    build: makes a configuration from values by key path. Raise ValueError at the key path of a field.
    """
    base = fixed(*build({}))
    names = [path for path in base if path != "model.family"]

    for path, field in space.items():
        if path not in names:
            raise error_at(f"space.{path}", f"unknown field; {did_you_mean(path, names)}")
        _check_when(space, path)
        after = field.after
        if not after:
            continue
        if after not in names and base.get(after) is None:
            raise error_at(f"space.{path}.after", f"unknown field {after!r}; {did_you_mean(after, names)}")
        if type(base.get(after)) not in (int, float):
            raise error_at(f"space.{path}.after", f"{after} is not a number")

    order(space)  # fields that depend on themselves are named before any value is tried
    _check_fields(space, lambda some, numbers: build(resolve(some, numbers, base)))


def _check_when(space: Space, path: str) -> None:
    """Raise ValueError for a condition on what is no choice of the space, or on a value that it has not."""
    for other, wanted in (space[path].when or {}).items():
        if other not in space or not space[other].is_choice:
            choices = [name for name, field in space.items() if field.is_choice and name != path]
            raise error_at(f"space.{path}.when", f"{other} is no choice of this space; {did_you_mean(other, choices)}")
        if not space[other].has(wanted):
            values = list(space[other].values())
            raise error_at(f"space.{path}.when", f"{other} is never {wanted!r}; its values are {values}")


def _check_fields(space: Space, build: Callable[[Space, Numbers], object]) -> None:
    """Raise ValueError for an end point that nothing makes possible, at a field that is to blame."""
    for path in space:
        try:
            _check_values(space, path, partial(build, space))
        except ValueError:
            # A wrong field makes those of others impossible too. If some are so without this one, one of them is why.
            _check_fields(_without(space, path), build)
            raise


def _without(space: Space, path: str) -> Space:
    """Return a space without a field, and without those that are searched at some of its values."""
    left: Space = {name: field for name, field in space.items() if name != path}
    for name, field in space.items():
        if path in (field.when or ()):
            left = _without(left, name)
    return left


def _check_values(space: Space, path: str, build: Callable[[Numbers], object]) -> None:
    """Raise ValueError for an end point that no values of the other searched fields make possible."""
    given = {other: [wanted] for other, wanted in conditions(space, path).items()}
    for value in space[path].ends():
        first_problem = None
        for numbers in corners(space, **given, **{path: [value]}):
            if path not in numbers:
                raise error_at(f"space.{path}.when", "can never hold: its fields are not searched with these values")
            try:
                build(numbers)
                break
            except ValueError as error:
                first_problem = first_problem or error
        else:  # none was possible
            raise error_at(f"space.{path}", str(first_problem).removeprefix(f"{path}: "))


def refuse(*rules: tuple[object, str]) -> None:
    """Raise ValueError with the text of the first rule whose condition holds."""
    for condition, text in rules:
        if condition:
            raise ValueError(text)


@contextmanager
def errors_at(path: str) -> Iterator[None]:
    """Re-raise a TypeError or ValueError of the block as a ValueError at a key path."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise error_at(path, error) from None


def error_at(path: str, problem: str | Exception) -> ValueError:
    """Return a ValueError for a problem at a key path, or at the field that an error's text begins with."""
    name, _, rest = str(problem).partition(" ")
    if isinstance(problem, Exception) and rest.startswith("must be"):  # as model.fields and trainer.fields say it
        path, problem = f"{path}.{name}", rest
    return ValueError(f"{path}: {problem}")
