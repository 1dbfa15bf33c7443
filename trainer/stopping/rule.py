"""What a stopping rule is: it calls seeds by what they have shown, and a bank ends those that it called.

A rule is a frozen dataclass: a class for each kind, a value for each set of its options. What is said and counted of a
kind is in its class, so a new one is one file (docs/extending.md). A random tenth of the seeds is spared: what a rule
calls of them is noted, and they run on. They measure the rule anew in every study.

Axes: L seed that was just evaluated, E evaluation.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from trainer.outcomes import BEST, Outcome

if TYPE_CHECKING:
    from torch import Tensor

MEASURED = json.loads(Path(__file__).with_name("measured.json").read_bytes())
"""What was measured of rules, and the experiments behind it."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What the seeds `pair_L` of a bank have shown so far. Tensors are on the CPU.

    pairs: all of the bank. records: theirs (trainer/bank/tracker.py). places: where a measure or probe is in them.
    eval_every: steps between two evaluations.
    """

    pairs: Sequence[Any]
    pair_L: Tensor
    records: Mapping[str, Tensor]
    places: Mapping[str, tuple[str, int]]
    eval_every: int

    @property
    def step_L(self) -> Tensor:
        """Steps that each seed has trained."""
        return self.records["steps"][self.pair_L]

    @property
    def recipes(self) -> list[Any]:
        """The recipe of each seed."""
        return [self.pairs[n].recipe for n in self.pair_L.tolist()]

    def best(self, name: str) -> Tensor:
        """Return the highest exact match or token accuracy of each seed [L], a fraction; `name` is one of BEST."""
        return self.records["best"][self.pair_L, BEST.index(name)]

    def newest(self, name: str, count: int = 1) -> Tensor:
        """Return a measure or probe at the newest `count` evaluations [L, E], in their order.

        It is NaN where a seed has had fewer. name: one of MEASURES (trainer/outcomes.py), or of the spec's probes.
        """
        import torch  # not at the head: counting seeds needs the rules and no torch

        record, column = self.places[name]
        last_L = self.step_L // self.eval_every - 1
        place_LE = last_L[:, None] - torch.arange(count - 1, -1, -1)
        # A place below 0 would be read from the end of the table.
        found_LE = self.records[record][self.pair_L[:, None], place_LE.clamp(min=0), column]
        return found_LE.masked_fill(place_LE < 0, torch.nan)


@dataclasses.dataclass(frozen=True)
class Rule:
    """A stopping rule. Fields made by `model.fields.option` are the keys of its section in a study file.

    A subclass says its `key` and `help`, and has a method `calls`; all else has defaults. Of a package with a class
    `Rising` in adder_rising.py, in its pyproject.toml:

    [project.entry-points."adder_search.stopping"]
    rising = "adder_rising:Rising"
    """

    key: ClassVar[str]
    """Its key below `stop` in a study file; a list of sections where `most` is above 1."""
    help: ClassVar[str]
    """What it ends, in a line: `ends seeds whose loss rises`."""
    most: ClassVar[int] = 1
    """How many rules of the kind a study may have."""
    is_default: ClassVar[bool] = False
    """True if studies have it unless they say `off`. It has no options, and looks at the seeds that confirm too."""
    outcome: ClassVar[Outcome] = Outcome.SCREENED
    """Outcome of seeds that it ends: GIVEN_UP, or SCREENED of those that a study chooses."""
    column: ClassVar[str] = "screen"
    """The column of a seed's record that says which rule called it first."""
    ended: ClassVar[str]
    """The name of its number of ended seeds in `--json` and MLflow, and without underscores in text; the key."""
    prefix: ClassVar[str]
    """What the names of its other numbers begin with; the key."""
    title: ClassVar[str]
    """What plans and reports call it: `Rising rule`."""

    def __init_subclass__(cls) -> None:
        # Names of another package's rule follow from its key, unless it says them itself.
        names = {"ended": cls.key, "prefix": f"{cls.key}_", "title": f"{cls.key.capitalize()} rule"}
        for name, text in names.items():
            if name not in vars(cls):
                setattr(cls, name, text)

    def calls(self, seen: Seen) -> Tensor:
        """Return which seeds it calls [L] (bool): of those that train on, and have not grokked."""
        raise NotImplementedError

    def suits(self, task: Any) -> bool:
        """True if its constants hold for a task (model/tasks); else it is off there."""
        return True

    def applies(self, pair: Any) -> bool:
        """True if it looks at a pair (trainer/recipe/seed.py) at all."""
        return True

    def check(self, spec: Any, recipe: Any) -> None:
        """Raise ValueError, beginning with the key of an option, where it asks for what a configuration lacks."""

    @classmethod
    def check_together(cls, rules: Sequence[Self]) -> None:
        """Raise ValueError, beginning with a rule's place, where the rules of a study do not go together."""

    def note(self, step: int) -> Any:
        """Return what its column has of a seed that it called first at a step."""
        return str(self)

    @classmethod
    def called(cls, noted: Any) -> str | None:
        """Return the name of the rule of this kind that called a seed, by its column; None if another kind did.

        Seeds that rules of equal names called are counted together. noted: None of a seed that a rule with this
        outcome ended, where the column is not known.
        """
        is_own = noted is not None and str(noted).startswith(f"{cls.key}: ")
        return str(noted) if is_own else None

    @classmethod
    def measured(cls, configuration: str, called: str) -> float | tuple[int, int] | None:
        """Return what was measured before of a rule with a configuration; None if nothing was.

        Either an upper bound on the share of the seeds that it ends that would have grokked, or, of seeds that it
        called and that ran on: how many grokked, and how many there were. Only for what it was measured with: a rule
        that ends no winner of one recipe or task may end those of another. configuration: a key. called: its name.
        """
        return None

    @classmethod
    def describe(cls, rules: Sequence[Self]) -> str:
        """Return in words what the rules of this kind in a study do."""
        return f"{cls.help} ({'; '.join(map(str, rules))})"

    def __str__(self) -> str:
        """Short, and unique among all rules, as records have it: `rising: times 3`."""
        options = ", ".join(f"{f.name} {getattr(self, f.name)}" for f in dataclasses.fields(self))
        return f"{self.key}: {options}"
