"""The `space` of a study: searched fields and their distributions.

A proposal is a number for each field that exists in it, as Optuna stores it: for a choice that is a list its
JSON, for a field with `after` the length that is added. `resolve` turns numbers into values of the fields.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from model import Spec
from model.fields import did_you_mean
from trainer import Recipe
from trainer.retired import RETIRED, Retired

LARGEST_SEED = 2**31 - 1
MOST_TRIED = 1_000  # combinations of the other fields' end points
MOST_STEPS = 1_000_000  # of a float
MOST_POINTS = 10_000  # of a grid

Numbers = dict[str, Any]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Distribution(Strict):
    """The distribution of a searched field: exactly one of float, int and choice, with its conditions."""

    float_: tuple[float, float] | None = Field(None, alias="float", strict=False, description="low and high")
    int_: tuple[int, int] | None = Field(None, alias="int", strict=False, description="low and high")
    choice: list[bool | int | float | str | list[list[int | float | str]]] | None = Field(
        None, min_length=1, max_length=MOST_TRIED, description="the values"
    )
    log: bool = Field(False, description="sample the logarithm")
    step: float | None = Field(None, gt=0, description="distance of the values of a float or int")
    after: str | None = Field(None, description="key path of a field whose value is added to the number")
    when: dict[str, Any] = Field(
        default_factory=dict, description="key paths and values (or lists of them) that the field needs"
    )

    @model_validator(mode="after")
    def _meaningful(self) -> Distribution:
        span, step, values = self.float_ or self.int_, self.step, self.choice or []
        low, high = span or (1, 2)
        size, kinds = high - low, [k for k in (self.float_, self.int_, self.choice) if k is not None]
        refuse(
            (len(kinds) != 1, "give exactly one of float, int, choice"),
            (not low < high, f"the first bound must be below the second, got {[low, high]}"),
            (self.log and low <= 0, "log needs bounds above 0"),
            (self.log and (not span or step), "log goes with float or int, and not with step"),
            (not span and step, "step goes with float or int"),
            (not span and self.after is not None, "after goes with float or int"),
            (any(v in values[:i] for i, v in enumerate(values)), "a value is listed twice"),
        )
        if step:
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
        if self.int_:
            return range(self.int_[0], self.int_[1] + 1, int(self.step or 1))
        return _Steps(*self.float_, self.step) if self.float_ and self.step else ()

    def ends(self) -> Sequence[Any]:
        """Return the values of a choice, or the least and the greatest."""
        values = self.values() or self.float_ or ()
        return values if self.choice is not None else (values[0], values[-1])

    def has(self, value: Any) -> bool:
        """True if `value` is one of `values`."""
        if self.int_:  # a range would be gone through for what is no integer
            return type(value) is int and value in self.values()
        return value in self.values()

    def decoded(self, number: Any) -> Any:
        """Return the value of Optuna's `number`: the list that its JSON spells, or the nearest step.

        Raise ValueError for a number that is none of the choices.
        """
        if self.choice is not None:
            for value in self.choice:
                if stored(value) == number:
                    return value
            raise ValueError(f"{number!r} is none of {self.choice}")
        values = self.values()
        return values.nearest(number) if isinstance(values, _Steps) else number


@dataclasses.dataclass(frozen=True)
class _Steps(Sequence[float]):
    """The values of a float with a step. Decimal, as the file has them: the third tenth is 0.3."""

    low: float
    high: float
    step: float

    def __len__(self) -> int:
        return int((_decimal(self.high) - _decimal(self.low)) // _decimal(self.step)) + 1

    def __getitem__(self, i: Any) -> Any:
        place = range(len(self))[i]
        return float(_decimal(self.low) + place * _decimal(self.step))

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and abs(value) < math.inf and self.nearest(value) == value

    def nearest(self, number: float) -> float:
        place = round((number - self.low) / self.step)
        return float(self[min(max(place, 0), len(self) - 1)])


def _decimal(number: float) -> Decimal:
    return Decimal(str(number))


def stored(value: Any) -> Any:
    """Return a choice as Optuna stores it."""
    return json.dumps(value) if isinstance(value, list) else value


Space = Mapping[str, Distribution]


def order(space: Space) -> list[str]:
    """Return the fields in the file's order, each behind those that it depends on.

    Raise ValueError at the key path of a field that depends on itself.
    """
    placed: list[str] = []
    while waiting := [path for path in space if path not in placed]:
        ready = (path for path in waiting if not any(p in waiting for p, _ in _needs(space, path)))
        if (path := next(ready, None)) is None:
            raise _cycle(space, waiting)
        placed.append(path)
    return placed


def _needs(space: Space, path: str) -> list[tuple[str, str]]:
    """Return the fields that `path` depends on, searched or not, each with the key that names it."""
    field = space[path]
    return [(p, "when") for p in field.when] + ([(field.after, "after")] if field.after else [])


def _cycle(space: Space, unplaced: Sequence[str]) -> ValueError:
    """Return the error for fields that wait for one another, at the first that comes round to itself."""
    trail = [unplaced[0]]
    while trail.count(trail[-1]) == 1:
        trail.append(next(p for p, _ in _needs(space, trail[-1]) if p in unplaced))
    circle = trail[trail.index(trail[-1]) :]
    key = dict(_needs(space, circle[0]))[circle[1]]
    return error_at(f"space.{circle[0]}.{key}", f"depends on itself ({' -> '.join(circle)})")


def exists(space: Space, path: str, numbers: Mapping[str, Any]) -> bool:
    """True if a field exists in a proposal with these `numbers` of the fields before it.

    A condition on a field that does not exist does not hold; conditions on fixed fields always do.
    """
    conditions = ((p, wanted) for p, wanted in space[path].when.items() if p in space)
    return all(
        p in numbers and space[p].decoded(numbers[p]) in allowed_values(wanted) for p, wanted in conditions
    )


def allowed_values(wanted: Any) -> list[Any]:
    """Return the values that a condition allows: one, or a list of them."""
    return wanted if isinstance(wanted, list) else [wanted]


def draw(space: Space, number: Callable[[str], Any]) -> Numbers:
    """Return a proposal: `number` of each field that exists, those that it depends on first."""
    numbers: Numbers = {}
    for path in order(space):
        if exists(space, path, numbers):
            numbers[path] = number(path)
    return numbers


def resolve(space: Space, numbers: Mapping[str, Any], base: Callable[[str], Any]) -> dict[str, Any]:
    """Return the values of the fields that exist in a proposal, by key path; `base` has all others.

    Raise ValueError if the numbers are not those that the space asks for.
    """
    values: dict[str, Any] = {}
    for path in order(space):
        if exists(space, path, numbers) != (path in numbers):
            raise ValueError(f"{path}: has a number and does not exist, or has none")
        if path in numbers:
            field = space[path]
            value = field.decoded(numbers[path])
            if field.after:
                value += values[field.after] if field.after in values else base(field.after)
            values[path] = value
    return values


def fixed(spec: Spec, recipe: Recipe) -> Callable[[str], Any]:
    """Return a function from key path (`model.NAME`, `recipe.NAME`) to value. Tuples are lists, as in a file."""
    parts = {"model": spec.as_dict(), "recipe": recipe.as_dict()}
    values = {f"{part}.{name}": value for part, fields in parts.items() for name, value in fields.items()}
    return values.get


def points(space: Space) -> list[Numbers]:
    """Return every proposal of a grid, each once."""
    return list(_combinations(space, {path: d.values() for path, d in space.items()}))


def grid_size(space: Space) -> int:
    """Return the number of points of a grid. Raise ValueError for too many."""
    if any(d.when for d in space.values()):
        proposals = _combinations(space, {path: d.values() for path, d in space.items()})
        size = sum(1 for _ in islice(proposals, MOST_POINTS + 1))
    else:
        size = math.prod(len(d.values()) for d in space.values())
    if size > MOST_POINTS:
        raise error_at("space", f"a grid has at most {MOST_POINTS} points, this one more")
    return size


def _combinations(space: Space, candidates: Mapping[str, Sequence[Any]]) -> Iterator[Numbers]:
    """Yield every proposal of the candidates of each field, as far as the field exists."""

    def rest(paths: Sequence[str], numbers: Numbers) -> Iterator[Numbers]:
        if not paths:
            yield numbers
        elif exists(space, paths[0], numbers):
            for value in candidates[paths[0]]:
                yield from rest(paths[1:], {**numbers, paths[0]: stored(value)})
        else:
            yield from rest(paths[1:], numbers)

    return rest(order(space), {})


def check_space(space: Space, spec: Spec, build: Callable[[dict[str, Any]], tuple[Spec, Recipe]]) -> None:
    """Raise ValueError at the key path of a field that spec and recipe lack, of a condition that never
    holds, or of a value that no values of the other searched fields make possible.

    build: makes a configuration from values by key path.
    """
    base = fixed(*build({}))
    names = [f"model.{f.name}" for f in dataclasses.fields(spec)]
    names += [f"recipe.{f.name}" for f in dataclasses.fields(Recipe)]
    for path, field in space.items():
        _check_path(path, names)
        for name, key in _needs(space, path):
            where = f"space.{path}.{key}"
            if name not in names and base(name) is None:
                raise error_at(where, f"unknown field {name!r}; {did_you_mean(name, names)}")
            if key == "after" and type(base(name)) not in (int, float):
                raise error_at(where, f"{name} is not a number")
            if key == "when":
                _check_condition(space, name, allowed_values(field.when[name]), base, where)
    order(space)
    _check_fields(space, lambda some, numbers: build(resolve(some, numbers, base)))


def _check_path(path: str, names: Sequence[str]) -> None:
    """Raise ValueError for an unknown field."""
    if (field := path.removeprefix("recipe.")) in RETIRED:
        raise error_at(f"space.{path}", f"removed; commit {RETIRED[field][1]} has it")
    if path not in names:
        raise error_at(f"space.{path}", f"unknown field; {did_you_mean(path, names)}")


def _check_condition(
    space: Space, name: str, wanted: Sequence[Any], base: Callable[[str], Any], where: str
) -> None:
    """Raise ValueError for a condition on a field that never has a wanted value."""
    if name not in space:
        refuse((base(name) not in wanted, f"{where}: never holds, {name} is {base(name)}"))
        return
    field, right = space[name], "a choice, or an int or float with a step, and have no after"
    refuse(
        (not field.values() or field.after, f"{where}: {name} must be {right}"),
        (not any(map(field.has, wanted)), f"{where}: never holds, {name} is searched elsewhere"),
    )


def _check_fields(space: Space, build: Callable[[Space, Numbers], object]) -> None:
    """Raise ValueError for an end point that nothing makes possible, at a field that is to blame: if others have such
    end points without it too, one of theirs is why.
    """
    for path in space:
        try:
            _check_values(space, path, partial(build, space))
        except ValueError:
            _check_fields({p: d for p, d in space.items() if p != path and path not in d.when}, build)
            raise


def _check_values(space: Space, path: str, build: Callable[[Numbers], object]) -> None:
    """Raise ValueError for an end point that no values of the other searched fields make possible."""
    candidates = _candidates(space, path)
    for value in space[path].ends():
        problem = None
        for numbers in islice(_combinations(space, {**candidates, path: [value]}), MOST_TRIED):
            try:
                build(numbers)
                break
            except ValueError as error:
                problem = problem or error
        else:
            if problem is None:
                raise error_at(f"space.{path}.when", "never holds, its conditions exclude one another")
            raise error_at(f"space.{path}", str(problem).removeprefix(f"{path}: "))


def _candidates(space: Space, target: str) -> dict[str, list[Any]]:
    """Return the values to check of each field: its ends, and those that conditions name.

    Of fields that `target` depends on, only values that its conditions allow.
    """
    candidates = {path: list(d.ends()) for path, d in space.items()}
    for field in space.values():
        for path in field.when.keys() & space.keys():
            wanted = [v for v in allowed_values(field.when[path]) if space[path].has(v)]
            candidates[path] += [v for v in wanted if v not in candidates[path]]
    needed = [target]
    for path in needed:  # grows by the conditions of conditions
        for name, wanted in space[path].when.items():
            if name in space:
                candidates[name] = [v for v in candidates[name] if v in allowed_values(wanted)]
                needed.append(name)
    return candidates


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
    if isinstance(problem, Retired):
        return ValueError(path.removesuffix("recipe") + str(problem))
    name, _, rest = str(problem).partition(" ")
    if isinstance(problem, Exception) and rest.startswith("must be"):
        path, problem = f"{path}.{name}", rest
    return ValueError(f"{path}: {problem}")
