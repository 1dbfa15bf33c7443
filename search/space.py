"""What is searched: the fields of a study's space, what each may be, and who proposes.

Pydantic reads it as a part of the study file (search/study.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from model import Spec
from model.fields import nearest
from trainer import Recipe

LARGEST_SEED = 2**31 - 1
MOST_TRIED = 1_000  # combinations of the other fields' end points


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Distribution(Strict):
    """What a searched field may be: exactly one of float, int and choice."""

    float_: tuple[float, float] | None = Field(None, alias="float", strict=False, description="low and high")
    int_: tuple[int, int] | None = Field(None, alias="int", strict=False, description="low and high")
    choice: list[bool | int | float | str] | None = Field(None, min_length=1, description="the values")
    log: bool = Field(False, description="sample the logarithm")
    step: int | None = Field(None, ge=1, description="distance of the values of an int")

    @model_validator(mode="after")
    def _one_kind(self) -> Distribution:
        if sum(kind is not None for kind in (self.float_, self.int_, self.choice)) != 1:
            raise ValueError("give exactly one of float, int, choice")
        span = self.float_ or self.int_
        if span and not span[0] < span[1]:
            raise ValueError(f"the first bound must be below the second, got {list(span)}")
        if self.log and span and span[0] <= 0:
            raise ValueError("log needs bounds above 0")
        if self.log and (self.choice is not None or self.step is not None):
            raise ValueError("log goes with float or int, and not with step")
        if self.step is not None and self.int_ is None:
            raise ValueError("step goes with int")
        return self

    def ends(self) -> Sequence[Any]:
        """The values of a choice, or the two bounds."""
        return self.choice or self.float_ or self.int_ or ()


class Sampler(Strict):
    """How Optuna proposes configurations. Used where the study has a search space."""

    name: Literal["tpe", "random"] = Field("tpe", description="Optuna's sampler")
    configurations: int = Field(16, ge=1, description="how many are proposed; unit: configurations")
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="of the sampler's own generator")


def check_space(
    space: Mapping[str, Distribution], spec: Spec, build: Callable[[dict[str, Any]], object]
) -> None:
    """Raise ValueError at the key path of a field that `spec` or the recipe has not, or of a value of it that
    no values of the other searched fields make possible. `build`: a configuration from values by key path.
    """
    known = {
        "recipe": [f.name for f in dataclasses.fields(Recipe)],
        "model": [f.name for f in dataclasses.fields(spec)],
    }
    for path in space:
        part, _, name = path.partition(".")
        if name not in known.get(part, ()):
            valid = [f"{p}.{n}" for p, names in known.items() for n in names]
            raise at(f"space.{path}", f"unknown field; {nearest(path, valid)}")
    for path in space:
        _check_values(space, path, build)


def _check_values(
    space: Mapping[str, Distribution], path: str, build: Callable[[dict[str, Any]], object]
) -> None:
    """Refuse a value or end point that no values of the other searched fields make possible."""
    others = {p: d.ends() for p, d in space.items() if p != path}
    for value in space[path].ends():
        problem = None
        for rest in islice(product(*others.values()), MOST_TRIED):
            try:
                build({**dict(zip(others, rest, strict=True)), path: value})
                break
            except ValueError as error:
                problem = problem or error
        else:
            raise at(f"space.{path}", str(problem).removeprefix(f"{path}: "))


def at(path: str, problem: str | Exception) -> ValueError:
    """A problem at a key path of the study file, or at the field that an error's text begins with."""
    name, _, rest = str(problem).partition(" ")
    if isinstance(problem, Exception) and rest.startswith("must be"):
        path, problem = f"{path}.{name}", rest
    return ValueError(f"{path}: {problem}")
