"""The study file: what is held fixed, what is searched, how, and on what resources.

Pydantic lives here and nowhere else. Every field says what it counts; an error names the file, the key
path, what is wrong and what would be right.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Iterator, Sequence
from importlib.resources import files
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from model import Spec, make_spec, rung
from model.fields import nearest
from search.errors import UserError
from trainer import Recipe, Seed

LARGEST_SEED = 2**31 - 1
LARGEST_FILE = 1 << 20  # bytes
MOST_TRIED = 1_000  # combinations of the other fields' end points
LONGEST_LINE = 1_000  # characters of an error

SeedNumber = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SeedRange(Strict):
    """Consecutive seeds; one number sets both the initial values and the data."""

    first: SeedNumber = Field(description="the first seed's number")
    count: int = Field(ge=1, le=1_000_000, description="how many; unit: seeds")


class Until(Strict):
    """When a study ends before or after its list of seeds."""

    grokked: int | None = Field(None, ge=1, description="stop once so many seeds grokked; unit: seeds")
    max_seeds: int | None = Field(
        None, ge=1, le=1_000_000, description="while fewer grokked, go on in rounds up to this; unit: seeds"
    )


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


class Resources(Strict):
    """What one trial gets, and how many seeds it trains at once."""

    cpu: int = Field(1, ge=1, description="cores of a trial, and its threads; unit: cores")
    gpu: float | Literal["auto"] = Field(
        "auto", description="share of a GPU; auto: one where there is one, else none; unit: GPUs"
    )
    seeds_per_trial: int = Field(8, ge=1, le=65_536, description="slots of a trial's bank; unit: seeds")
    compiled: bool = Field(True, description="compile the train step (off: eager, slow, for tests)")
    save_every: int = Field(5, ge=1, description="distance of saved bank states; unit: evaluations")

    @field_validator("gpu")
    @classmethod
    def _share(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and not (0 <= value <= 1 or (value > 1 and value % 1 == 0)):
            raise ValueError(f"must be from 0 to 1, or a whole number, or auto, got {value}")
        return value


class Study(Strict):
    """One question. `model` is a rung's name, or a mapping: rung or family, and constraints."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="letters, digits, dot, dash, underscore; names the MLflow experiment",
    )
    about: str = Field("", description="one line: what the study asks")
    model: str | dict[str, Any] = Field(description="the spec")
    recipe: dict[str, Any] = Field(default_factory=dict, description="how it is trained; see Recipe")
    seeds: SeedRange | list[SeedNumber] = Field(description="first and count, or a list")
    until: Until = Field(default=Until())
    space: dict[str, Distribution] = Field(
        default_factory=dict, description="searched fields: recipe.NAME or model.NAME"
    )
    sampler: Sampler = Field(default=Sampler())
    resources: Resources = Field(default=Resources())
    tracking_uri: str | None = Field(None, description="MLflow server to use instead of the home's store")

    @field_validator("name")
    @classmethod
    def _own_experiment(cls, value: str) -> str:
        if value == "Default":
            raise ValueError("Default is MLflow's own experiment, choose another name")
        return value

    @field_validator("about")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("must be one line of printable text")
        return value

    @field_validator("seeds")
    @classmethod
    def _some_seeds(cls, value: SeedRange | list[int]) -> SeedRange | list[int]:
        if isinstance(value, list) and not value:
            raise ValueError("give at least one seed")
        if isinstance(value, list) and len(set(value)) < len(value):
            raise ValueError("a seed is listed twice")
        if isinstance(value, SeedRange) and value.first + value.count - 1 > LARGEST_SEED:
            raise ValueError(f"seeds go up to {LARGEST_SEED}")
        return value

    @model_validator(mode="after")
    def _meaningful(self) -> Study:
        self.spec()
        self.base_recipe()
        for path in self.space:
            self._check_path(path)
        for path, distribution in self.space.items():
            self._check_values(path, distribution)
        limit, count = self.until.max_seeds, len(self.first_seeds())
        if limit is not None and limit < count:
            raise _at("until.max_seeds", f"must be at least the number of seeds ({count}), got {limit}")
        if limit is not None and self.until.grokked is None:
            raise _at("until", "max_seeds needs grokked: how many grokked seeds to go on for")
        if limit is not None and max(self.first_seeds()) + limit - count > LARGEST_SEED:
            raise _at("until.max_seeds", f"the last round would pass the largest seed, {LARGEST_SEED}")
        return self

    def _check_path(self, path: str) -> None:
        part, _, name = path.partition(".")
        known = {
            "recipe": [f.name for f in dataclasses.fields(Recipe)],
            "model": [f.name for f in dataclasses.fields(self.spec())],
        }
        valid = [f"{p}.{n}" for p, names in known.items() for n in names]
        if name not in known.get(part, ()):
            raise _at(f"space.{path}", f"unknown field; {nearest(path, valid)}")

    def _check_values(self, path: str, distribution: Distribution) -> None:
        """Refuse a value or end point that no values of the other searched fields make possible."""
        others = {p: d.ends() for p, d in self.space.items() if p != path}
        for value in distribution.ends():
            problem = None
            for rest in islice(product(*others.values()), MOST_TRIED):
                try:
                    self.configuration({**dict(zip(others, rest, strict=True)), path: value})
                    break
                except ValueError as error:
                    problem = problem or error
            else:
                raise _at(f"space.{path}", str(problem).removeprefix(f"{path}: "))

    def spec(self, **changes: Any) -> Spec:
        """The study's spec, with some fields changed. Raises ValueError at its key path."""
        options = {"rung": self.model} if isinstance(self.model, str) else dict(self.model)
        for name in {"rung", "family"} & options.keys():
            if not isinstance(options[name], str):
                raise _at(f"model.{name}", f"must be a string, got {options[name]!r}")
        try:
            if "rung" in options:
                base = rung(options.pop("rung"))
                options = {**base.as_dict(), **options}
            elif "family" not in options:
                raise ValueError(f"give a rung or a family; keys found: {', '.join(options) or 'none'}")
            return make_spec(**options | changes)
        except (TypeError, ValueError) as error:
            raise _at("model", error) from None

    def base_recipe(self, **changes: Any) -> Recipe:
        """The study's recipe, with some fields changed. Raises ValueError at its key path."""
        known = [f.name for f in dataclasses.fields(Recipe)]
        for name in self.recipe:
            if name not in known:
                raise _at(f"recipe.{name}", f"unknown key; {nearest(name, known)}")
        try:
            return Recipe(**self.recipe | changes)
        except (TypeError, ValueError) as error:
            raise _at("recipe", error) from None

    def configuration(self, values: dict[str, Any]) -> tuple[Spec, Recipe]:
        """Spec and recipe with the values of a proposal, by key path."""
        split: dict[str, dict[str, Any]] = {"model": {}, "recipe": {}}
        for path, value in values.items():
            part, _, name = path.partition(".")
            split[part][name] = value
        return self.spec(**split["model"]), self.base_recipe(**split["recipe"])

    def first_seeds(self) -> list[int]:
        """The numbers of the first round."""
        if isinstance(self.seeds, list):
            return self.seeds
        return list(range(self.seeds.first, self.seeds.first + self.seeds.count))

    def rounds(self) -> Iterator[list[Seed]]:
        """The seeds of each round: the list, then as many again, up to `until.max_seeds`."""
        numbers = self.first_seeds()
        left = (self.until.max_seeds or len(numbers)) - len(numbers)
        yield [Seed.of(n) for n in numbers]
        following = max(numbers) + 1
        while left > 0:
            count = min(left, len(numbers))
            yield [Seed.of(n) for n in range(following, following + count)]
            following, left = following + count, left - count


def _at(path: str, problem: str | Exception) -> ValueError:
    """A problem at a key path of the study file, or at the field that an error's text begins with."""
    name, _, rest = str(problem).partition(" ")
    if isinstance(problem, Exception) and rest.startswith("must be"):
        path, problem = f"{path}.{name}", rest
    return ValueError(f"{path}: {problem}")


def shipped() -> dict[str, str]:
    """The studies that come with the package: their YAML by name."""
    folder = files("studies")
    texts = {Path(f.name).stem: f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".yaml")}
    return dict(sorted(texts.items()))


def load_study(name: str) -> Study:
    """A study by path, or by the name of one that comes with the package. Raises UserError."""
    path = Path(name)
    try:
        if path.is_file():
            if path.stat().st_size > LARGEST_FILE:
                raise UserError(f"{name}: larger than any study file ({path.stat().st_size} bytes)")
            return parse_study(path.read_text("utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        raise UserError(f"{name}: no such study file")
    if name not in shipped():
        raise UserError(f"unknown study {name!r}; {nearest(name, shipped())}")
    return parse_study(shipped()[name], f"{name} (comes with the package)")


class _Loader(yaml.SafeLoader):
    """YAML as data: no key twice, no aliases, and 1e-3 is a number, as YAML 1.2 has it."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise _marked("aliases are not used in study files", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise _marked(f"key given twice: {key.value}", key.start_mark)
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (
            ValueError,
            LookupError,
            AttributeError,
            TypeError,
            OverflowError,
        ):  # PyYAML's own, for !!int abc and the like
            raise _marked(f"no {node.tag.rpartition(':')[2]}: {node.value!s:.80}", node.start_mark) from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _marked(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _read_yaml(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except RecursionError:
        raise UserError(f"{source}: not valid YAML (nested too deeply)") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise UserError(_printable(f"{source}: {where}not valid YAML ({problem})")) from None


def parse_study(text: str, source: str) -> Study:
    """A study from YAML. Raises UserError naming source, key path and what would be right."""
    data = _read_yaml(text, source)
    if not isinstance(data, dict):
        raise UserError(f"{source}: must be a mapping with name, model and seeds")
    try:
        return Study.model_validate(data)
    except ValidationError as error:
        raise UserError("\n".join(_printable(f"{source}: {line}") for line in _lines(error))) from None


def _printable(line: str) -> str:
    """One line whatever a user's text holds, and not a page long."""
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    return plain if len(plain) <= LONGEST_LINE else plain[:LONGEST_LINE] + " ..."


KINDS = {
    "dict": "a mapping", "model": "a mapping", "list": "a list", "tuple": "a list", "string": "a string",
    "int": "an integer", "float": "a number", "bool": "true or false",
}  # fmt: skip


def _lines(error: ValidationError) -> Iterator[str]:
    """One line a problem; the arms of a union that the input was never meant for are left out."""
    wrong_type: dict[str, dict[str, Any]] = {}
    lines: dict[str, None] = {}
    for problem in error.errors():
        keys = _keys(problem["loc"])
        path, message = ".".join(keys), problem["msg"].removeprefix("Value error, ")
        kind, found = problem["type"], problem["input"]
        if kind == "extra_forbidden":
            message = f"unknown key; {nearest(keys[-1], _siblings(keys))}"
        elif kind == "missing":
            message = "missing"
        elif kind.endswith("_type") or kind == "literal_error":
            expected = KINDS.get(kind.removesuffix("_type"), message.removeprefix("Input should be "))
            wrong_type.setdefault(path, {})[expected] = found
            continue
        elif kind != "value_error":
            message = re.sub("^(Input|String) should", "must", message)
            message = f"{message[0].lower()}{message[1:]}, got {found!r:.80}"
        lines[f"{path}: {message}" if path else message] = None
    for path, kinds in wrong_type.items():
        deeper = [*lines, *(f"{other}:" for other in wrong_type if other != path)]
        if not any(line.startswith((f"{path}:", f"{path}.")) for line in deeper):
            lines[f"{path}: must be {' or '.join(kinds)}, got {next(iter(kinds.values()))!r:.80}"] = None
    yield from lines


def _keys(loc: tuple[str | int, ...]) -> list[str]:
    """The key path in a pydantic location: without the arm of a union, and `[key]` for a key of a mapping."""
    arm = {"seeds": 1, "model": 1, "resources": 2, "space": 4}.get(str(loc[0])) if loc else None
    keys = [str(k) for i, k in enumerate(loc) if i != arm]
    return keys[:-1] if len(keys) > 1 and keys[-1] == "[key]" else keys


def _siblings(keys: list[str]) -> list[str]:
    """The valid keys beside an unknown one."""
    sections: dict[str, type[Strict]] = {
        "until": Until, "sampler": Sampler, "resources": Resources, "seeds": SeedRange, "space": Distribution,
    }  # fmt: skip
    model = Study if len(keys) == 1 else sections.get(keys[0], Study)
    return [f.alias or name for name, f in model.model_fields.items()]
