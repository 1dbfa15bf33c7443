"""A task: problems as columns of tokens, those of the prompt and those of the answer.

A task is a frozen dataclass of options, like a family, and a field of every spec. A family puts its columns in
order, between delimiters of its own (`Spec.sequence`). Nothing here imports torch.

Axes: R row (a seed at a step), B problem of a step, M problem.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import check, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

TASKS: dict[str, type[Task]] = {}
"""Tasks by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Interface of every task. Instances are values: equal tasks ask the same problems."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What is asked, in one sentence."""
    recipe_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of the recipe that are about the problems of this task."""

    @property
    def is_measured(self) -> bool:
        """True if the rules that end seeds were measured on it. On other tasks they are off."""
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            TASKS[cls.name] = cls

    def __post_init__(self) -> None:
        check(self)

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Tokens of a column: 0 to vocabulary - 1."""

    @property
    @abstractmethod
    def operands(self) -> tuple[int, ...]:
        """Columns of each part of the prompt."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """Columns of the answer. All of them count."""

    @property
    @abstractmethod
    def problems(self) -> int:
        """Problems that verify a net; 0 where nothing does."""

    @abstractmethod
    def verification(self) -> list[Tensor]:
        """Return those problems: columns [M] of the prompt, then of the answer. Nothing is selected by them."""

    @property
    def macros(self) -> dict[str, int] | None:
        """Return what the engine is compiled for; None where torch alone can train the task."""
        return None

    def strata(self) -> dict[str, list[Tensor]]:
        """Return further problems by what is hard about them, each as `verification`."""
        return {}

    def words(self, parts: Sequence[int]) -> str:
        """Return a problem in words. parts: the prompt's as numbers in base `vocabulary`, units first."""
        return " ".join(map(str, parts))

    def __str__(self) -> str:
        """Return the task as one writes it, and as `make_task` reads it: `subtraction base=3 digits=4`."""
        values = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        return " ".join(
            [self.name, *(f"{name}={value}".lower() for name, value, default in values if value != default)]
        )


def make_task(given: Any) -> Task:
    """Make a task of a mapping with its name and options, or of a text.

    Raises ValueError for an unknown name or option, naming the nearest, and for a value out of bounds.

    >>> make_task("subtraction base=3 digits=4").answers
    5
    """
    if isinstance(given, Task):
        return given
    options = _parsed(given) if isinstance(given, str) else given
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        raise ValueError(f"task must be a name, or a mapping with a name, got {given!r:.80}")
    name = options["name"]
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r:.80}; {did_you_mean(name, TASKS)}")
    fields = [field.name for field in dataclasses.fields(TASKS[name])]
    chosen = {key: value for key, value in options.items() if key != "name"}
    for key in chosen:
        if key not in fields:
            raise ValueError(f"unknown option {key!r:.80} of {name}; {did_you_mean(key, fields)}")
    return TASKS[name](**chosen)


def options_of(task: Task) -> dict[str, Any]:
    """Return a task's options by name."""
    return {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}


def changed(task: Task, changes: Mapping[str, Any]) -> Task:
    """Return a task with some options changed. Raises ValueError as `make_task` does."""
    return make_task({"name": task.name, **options_of(task), **changes})


def _parsed(text: str) -> dict[str, Any]:
    """Return name and options of a task as `Task.__str__` writes it."""
    name, *options = text.split() or [""]
    values: dict[str, Any] = {"name": name}
    for option in options:
        key, _, value = option.partition("=")
        words = {"true": True, "false": False}
        values[key] = int(value) if value.isdecimal() else words.get(value, value)
    return values


def only_addition(task: Task, what: str) -> None:
    """Raise ValueError unless a task is that which `what` is about: ten-digit addition in base ten."""
    if task != TASKS["addition"]():
        raise ValueError(f"{what} is about addition in base 10 with 10 digits alone, and this model's task is {task}")
