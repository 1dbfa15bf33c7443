"""The spec: a family of transformers with all of its constraints and sizes. Frozen, hashable, complete.

A family is one subclass of `Spec` in one file; its fields, made by `model.fields.option`, are its
constraints and sizes. What a constraint saves is not written anywhere: it is the difference of two
layouts.

Axes: S seed, B problem, T position, A answer position, V vocabulary, P parameters.
Problems are the innermost axis everywhere, so that every operation runs along contiguous memory.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import check, check_combination, did_you_mean
from model.layout import Layout, Shapes
from model.structures import Words, of_matrices

if TYPE_CHECKING:
    from torch import Tensor

    from model.ops import Tensors

Probe = Callable[[Any, "Tensor"], "Tensor"]
"""A named read-out of θ: of a spec and θ [S, P] (float64) one number a seed [S]. Its docstring says what."""
FAMILIES: dict[str, type[Spec]] = {}
MAKERS: dict[str, Callable[..., Spec]] = {}
"""What makes specs over other specs from plain values, by the name that stands for a family's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(ABC):
    """What every family offers. Instances are values: equal specs train the same model."""

    family: ClassVar[str]
    about: ClassVar[str]
    """The family in one sentence."""
    roles: ClassVar[dict[str, str]]
    """What each slice of θ that some spec of the family has is for."""
    prompt: ClassVar[int] = 22
    """Tokens before the first answer digit."""
    essential: ClassVar[tuple[str, ...]] = ()
    """Slices of θ that must not be all zero: without them every answer is the same."""

    def __init_subclass__(cls, listed: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if listed:  # a spec over other specs is no family that one can list
            FAMILIES[cls.family] = cls

    def __post_init__(self) -> None:
        check(self)
        check_combination(self)

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Tokens in the table; 0 to 9 are the digits."""

    @property
    @abstractmethod
    def decoded(self) -> int:
        """How many tokens greedy decoding asks for: 11, or 12 where one of them is to end the answer."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """A: positions whose next token is asked for, the first of them the prompt's last."""

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.shapes())

    @property
    def params(self) -> int:
        """P: the AdderBoard parameter count."""
        return self.layout.size

    @abstractmethod
    def shapes(self) -> Shapes:
        """The trainable tensors of one seed, by name."""

    @abstractmethod
    def initial(self, seed: int) -> Tensor:
        """θ [P] at step 0, float32 on CPU, a function of the seed alone."""

    @abstractmethod
    def expand(self, theta_SP: Tensor) -> Tensors:
        """The wide tensors [S, ...] by name: what θ comes to before any problem is seen, all constraints in
        it."""

    @abstractmethod
    def apply(self, wide: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
        """Logits for the token after each position from `first` on, from wide tensors: V tensors [S, A, B].

        tokens_STB may have S = 1, when all seeds see the same problems, and be the beginning of a sequence,
        down to the prompt.
        """

    def kernel(self) -> Kernel | None:
        """What does the same as `apply`, and its gradient, in C++; None: nothing."""
        return None

    def forward(self, theta_SP: Tensor, tokens_STB: Tensor, first: int) -> list[Tensor]:
        """Logits for the token after each position from `first` on: V tensors [S, A, B]; see `apply`."""
        return self.apply(self.expand(theta_SP), tokens_STB, first)

    @abstractmethod
    def sequence(self, x: list[Tensor], y: list[Tensor], z: list[Tensor]) -> list[Tensor]:
        """The whole token sequence (prompt, answer, end) from digit columns, units first.

        x, y: 10 tensors of digits; z: 11, or fewer to get the beginning of a sequence.
        """

    def folds(self) -> list[Fold]:
        """The exact rewritings to smaller specs that the family knows for this one."""
        return []

    def probes(self) -> dict[str, Probe]:
        """Named read-outs of θ that say early where a seed is going, of those that the family knows for this
        spec; none where nothing is known. See `Probe` and `read`.
        """
        return {}

    def read(self, theta_SP: Tensor) -> Tensor:
        """What all probes read of θ [S, P], in their order: [S, R], float64. Of no probes [S, 0]."""
        import torch

        wide_SP = theta_SP.double()
        read = [probe(self, wide_SP) for probe in self.probes().values()]
        return torch.stack(read, dim=1) if read else wide_SP[:, :0]

    def recycled(self) -> Callable[[Any, Tensor], Tensor] | None:
        """A function of the spec and θ [S, P] (float32, on the CPU) that gives hidden units of no use another
        one, θ [S, P]: the same where there are none. None where the family does not know.
        """
        return None

    def hard_wired(self) -> dict[str, float]:
        """The constants of this architecture that are no parameter and neither 0 nor a sign, by name."""
        return {}

    def structures(self) -> dict[str, list[Words]]:
        """Constraints that belong together, by kind, in the words of model/tied.py: what any matrix can have,
        and what the family adds.
        """
        return of_matrices(self.shapes())

    def trained(self) -> Spec:
        """This spec without what only its initial values depend on: equal ones read θ in the same way."""
        return self

    def as_dict(self) -> dict[str, Any]:
        """Family and every field, as plain values."""
        return {"family": self.family, **dataclasses.asdict(self)}

    def applied(self) -> dict[str, Any]:
        """The constraints that are applied here, by name, with their values."""
        known = self.constraints().items()
        return {name: v for name, f in known if (v := getattr(self, name)) != f.metadata["off"]}

    def without(self, constraint: str) -> Spec:
        """The spec that lacks a constraint, and with it those that need it.

        Raises ValueError for an unknown constraint, with the nearest ones.
        """
        known = self._known(constraint)
        gone = [constraint]
        for name in gone:  # grows while it is walked
            gone += [n for n in self.applied() if name in known[n].metadata["needs"] and n not in gone]
        return dataclasses.replace(self, **{n: known[n].metadata["off"] for n in gone})

    def constrained(self, constraint: str, value: Any = True) -> Spec:
        """The spec that has a constraint, and with it what it needs, and lacks what goes with neither.

        Raises ValueError for an unknown constraint, or a value that it cannot have here.
        """
        known = self._known(constraint)
        names, wanted = [constraint], {constraint: value}
        for name in names:  # grows while it is walked
            for other, needed in known[name].metadata["needs"].items():
                names += [other] if other in known and other not in wanted else []
                wanted.setdefault(other, needed)
        excluded = {other for name in names for other in known[name].metadata["excludes"]}
        excluded |= {name for name in known if set(known[name].metadata["excludes"]) & set(names)}
        off = {name: known[name].metadata["off"] for name in excluded - wanted.keys()}
        return dataclasses.replace(self, **wanted, **off)

    def toggled(self, constraint: str, value: Any = True) -> Spec:
        """`without` a constraint where it is applied, `constrained` by it where it is not."""
        return (
            self.without(constraint) if constraint in self.applied() else self.constrained(constraint, value)
        )

    def _known(self, constraint: str) -> dict[str, dataclasses.Field[Any]]:
        """The constraints, of which this must be one."""
        known = self.constraints()
        if constraint not in known:
            raise ValueError(
                f"unknown constraint {constraint!r} of {self.family}; {did_you_mean(constraint, known)}"
            )
        return known

    def saved_by(self, constraint: str) -> int:
        """Parameters that a constraint takes away here: P of `without` it less P with it."""
        return self.without(constraint).params - self.params

    @classmethod
    def constraints(cls) -> dict[str, dataclasses.Field[Any]]:
        """The fields that can be switched off, by name."""
        return {f.name: f for f in dataclasses.fields(cls) if f.metadata.get("off") is not None}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A C++ source and the shape for which it is compiled: what model/cpp/kernel.h declares. It reads the
    numbers of the wide tensors of a seed one after the other, in the order in which `expand` has them.
    """

    source: Path
    shape: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Fold:
    """One exact rewriting: what it does, the spec it leads to, and how the tensors change.

    `rewrite` takes the named tensors of one seed (float64) and returns those of `to`; it may return more. It
    returns None where this θ cannot be rewritten (a division by zero).
    """

    description: str
    to: Spec
    rewrite: Callable[[Tensors], Tensors | None]


def make_spec(family: str, **options: Any) -> Spec:
    """A spec by family name. Raises ValueError for an unknown family or option, naming the nearest."""
    if family in MAKERS:
        return MAKERS[family](**options)
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r:.80}; {did_you_mean(family, FAMILIES)}")
    cls = FAMILIES[family]
    known = [f.name for f in dataclasses.fields(cls)]
    for name in options:
        if name not in known:
            raise ValueError(f"unknown constraint {name!r:.80} of {family}; {did_you_mean(name, known)}")
    return cls(**options)
