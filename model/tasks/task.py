"""A task: what a net is asked. A frozen dataclass of options, like a family, and a field of every spec.

A problem is two numbers: the operands of a sum, or the number of a row and 0. What they mean, and in which tokens they
are asked and answered, is the task's: `Columns` (numbers in a base), `Rows` (a finite table with a split), or a
subclass in another package. Problems of training steps are a function of (data seed, step) alone.

Axes: R row (a seed at a step), B problem, T position, A answer position.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from model import doors
from model.doors import known
from model.fields import check, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

Pairs = list[tuple[int, int]]
"""Problems, as integers."""
TASKS: dict[str, type[Task]] = {}
"""Tasks by name."""
OURS = "model.tasks."
"""What the modules of our tasks begin with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """The interface of every task. Instances are values: equal tasks ask the same problems."""

    name: ClassVar[str]
    carries: ClassVar[bool] = False
    """True if a recipe's carry problems are problems of the task."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            TASKS[cls.name] = cls

    def __post_init__(self) -> None:
        check(self)

    @property
    def is_measured(self) -> bool:
        """True for ten-digit addition, on which the rules that end seeds were measured. On other tasks they are off."""
        return self == TASKS["addition"]()  # by name: sums.py imports this file

    @property
    def macros(self) -> dict[str, int] | None:
        """Return what the engine's C++ is compiled for: nothing for addition; None for a task that it does not know."""
        return None

    @property
    def title(self) -> str:
        """The task in a name; short where `str` is long."""
        return str(self)

    # ---- tokens

    @property
    @abstractmethod
    def prompt(self) -> int:
        """Tokens before the first of the answer, in `written`."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """A: tokens of the answer. All of them count."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Tokens that are read: 0 to this, less one."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Tokens that an answer can have, which are the first of the vocabulary."""

    @abstractmethod
    def written(self, a: Tensor, b: Tensor) -> list[Tensor]:
        """Return the tokens of problems, prompt and answer: one int64 tensor [..., B] per position."""

    def asked(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Turn problems that were drawn into those that are asked. All are tensors of the same shape."""
        return a, b

    # ---- problems

    def sample(self, data_seed_R: Tensor, step_R: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """Draw the problems of training steps: two tensors [R, B] of float64 integers.

        data_seed_R, step_R: int64; with `batch` all that they may depend on (model/counter.py). A task of columns is
        drawn by the recipe's curriculum instead (trainer/data/problems.py).
        """
        raise NotImplementedError

    def selection(self, count: int) -> tuple[Tensor, Tensor]:
        """Return at most `count` problems [1, B] that no step trains on. They decide what has grokked."""
        raise NotImplementedError

    @abstractmethod
    def pairs(self) -> Pairs:
        """Return the problems that verify a net, as they are asked: all of them, if there are not too many."""

    @property
    @abstractmethod
    def problems(self) -> int:
        """How many `pairs` has."""

    def check_pairs(self, a: Sequence[int], b: Sequence[int]) -> None:
        """Raise ValueError for problems that cannot be asked."""
        if len(a) != len(b):
            raise ValueError(f"operands must come in pairs, got {len(a)} and {len(b)}")

    # ---- words

    def read(self, answer_AB: Sequence[Tensor]) -> Tensor:
        """Return the numbers [B] that answers spell, the most significant token first; -1 for what is no answer."""
        import torch

        spelt_B = torch.zeros_like(answer_AB[0])
        is_answer_B = spelt_B == 0
        for token_B in answer_AB:
            spelt_B = spelt_B * self.outputs + token_B
            is_answer_B = is_answer_B & (token_B < self.outputs)
        return torch.where(is_answer_B, spelt_B, -1)

    def value(self, a: Any, b: Any) -> Any:
        """Return the right answers as numbers [B], as `read` has them. a, b: int64 tensors, or integers."""
        import torch

        # From the tokens themselves, so that no task says its answer twice.
        is_number = isinstance(a, int)
        tokens = self.written(torch.as_tensor(a), torch.as_tensor(b))
        numbers_B = self.read(tokens[self.prompt :])
        return int(numbers_B) if is_number else numbers_B

    def words(self, a: int, b: int) -> str:
        """Return a problem in words: by default the tokens of its prompt."""
        import torch

        tokens = self.written(torch.tensor(a), torch.tensor(b))
        return " ".join(str(int(token)) for token in tokens[: self.prompt])

    def shown(self, value: int) -> str:
        """Return an answer's number in words."""
        return str(value)

    def __str__(self) -> str:
        """Return the task as one writes it, and as `make_task` reads it: `subtraction base=3 digits=4`."""
        words = [self.name]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                # true, as YAML has it; a text has capitals of its own.
                text = str(value).lower() if isinstance(value, bool) else value
                words.append(f"{field.name}={text}")
        return " ".join(words)


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
    cls = known(name, TASKS, doors.TASKS, "task")
    fields = {field.name: field.default for field in dataclasses.fields(cls)}
    chosen = {key: value for key, value in options.items() if key != "name"}
    for key, value in chosen.items():
        if key not in fields:
            raise ValueError(f"unknown option {key!r:.80} of {name}; {did_you_mean(key, fields)}")
        # YAML has typed its values; a text's words are typed by the option's default.
        if isinstance(given, str):
            chosen[key] = _typed(value, type(fields[key]))
    return cls(**chosen)


def has_own(task: Task, names: Collection[str]) -> bool:
    """True if a class of another package says for itself what some of the names are."""
    others = [cls for cls in type(task).__mro__ if not cls.__module__.startswith(OURS)]
    return any(name in vars(cls) for cls in others for name in names)


def options_of(task: Task) -> dict[str, Any]:
    """Return a task's options by name."""
    return {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}


def changed(task: Task, changes: Mapping[str, Any]) -> Task:
    """Return a task with some options changed. Raises ValueError as `make_task` does."""
    return make_task({"name": task.name, **options_of(task), **changes})


def _parsed(text: str) -> dict[str, Any]:
    """Return name and options of a task as `Task.__str__` writes it, the options as texts."""
    name, *chosen = text.split() or [""]  # of no words: a name that nobody has
    options = (word.partition("=") for word in chosen)
    return {"name": name} | {key: value for key, _, value in options}


def _typed(text: str, kind: type) -> Any:
    """Return the value of a kind that a text spells; the text itself if it spells none, which a check refuses."""
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    try:
        return kind(text)
    except ValueError:
        return text


def only_addition(task: Task, what: str) -> None:
    """Raise ValueError unless a task is that which `what` is about: ten-digit addition in base ten."""
    if not task.is_measured:
        raise ValueError(
            f"{what} is about addition in base 10 with 10 digits alone, and this model's task is {task.title}"
        )
