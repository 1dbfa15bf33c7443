"""Ties: linear constraints on θ as data. Each entry of a base's θ is 0, or plus or minus one of P' numbers.

A tied spec is a spec like any other: its θ is the P' numbers, and its forward pass, wide tensors and kernel
are its base's, on θ spread over the base's entries. So no constraint of this kind takes a line of code, and
none costs anything: the engine's tape reads a number as often as it is used.

Axes: S seed, P entries of the base's θ, R numbers that are stored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import did_you_mean
from model.layout import Shapes
from model.spec import MAKERS, Fold, Kernel, Probe, Spec, make_spec

if TYPE_CHECKING:
    from torch import Tensor

    from model.ops import Tensors
    from model.structures import Words

Ties = tuple[int, ...]
"""For each entry of θ: 0 for zero, k or -k for plus or minus the k-th number, from 1 on."""
CONSTRAINT = re.compile(r"\s*(\w+\[[^]=]*\])\s*=\s*(?:(0)|(-?)\s*(\w+\[[^]=]*\]))\s*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tied(Spec, listed=False):
    """A base and its ties, in canonical form: numbers count from 1 in the order in which entries first read
    them, and an entry that is the first to read its number reads it with a plus.
    """

    family: ClassVar[str] = "tied"
    about: ClassVar[str] = "any spec whose θ is fewer numbers, by ties that are data"
    base: Spec
    ties: Ties

    def __post_init__(self) -> None:
        if not isinstance(self.base, Spec) or isinstance(self.base, Tied):
            raise ValueError("base must be a spec that is not tied itself")
        if len(self.ties) != self.base.params:
            raise ValueError(f"ties must be {self.base.params} entries for this base, got {len(self.ties)}")
        object.__setattr__(self, "ties", canonical(self.ties))
        for name, mine in self.by_tensor().items():
            if name in self.base.essential and not any(mine):
                raise ValueError(f"ties leave nothing but zeros in {name}, without which the model is mute")

    @property
    def vocabulary(self) -> int:
        return self.base.vocabulary

    @property
    def decoded(self) -> int:
        return self.base.decoded

    @property
    def answers(self) -> int:
        return self.base.answers

    @property
    def roles(self) -> dict[str, str]:  # type: ignore[override]
        return self.base.roles

    @cached_property
    def numbers(self) -> int:
        """R, how many numbers are stored."""
        return max(map(abs, self.ties), default=0)

    def by_tensor(self) -> dict[str, list[int]]:
        """The ties of each of the base's tensors, flat."""
        entries = iter(self.ties)
        return {name: [next(entries) for _ in range(n)] for name, n in self.base.layout.budget().items()}

    def shapes(self) -> Shapes:
        """A number is in the slice of the tensor that reads it first."""
        seen: set[int] = set()
        shapes: Shapes = {}
        for name, mine in self.by_tensor().items():
            new = {abs(k) for k in mine} - seen - {0}
            seen |= new
            shapes |= {name: (len(new),)} if new else {}
        return shapes

    def initial(self, seed: int) -> Tensor:
        """The projection of the base's: a number is the mean of the entries that read it."""
        return project(self.ties, self.base.initial(seed)[None])[0]

    def untie(self, theta_SR: Tensor) -> Tensor:
        """The base's θ [S, P]."""
        import torch

        index = torch.tensor([abs(k) - 1 if k else 0 for k in self.ties])
        sign = torch.tensor([float((k > 0) - (k < 0)) for k in self.ties], dtype=theta_SR.dtype)
        made: Tensor = theta_SR.index_select(1, index.to(theta_SR.device)) * sign.to(theta_SR.device)
        return made

    def expand(self, theta_SP: Tensor) -> Tensors:
        return self.base.expand(self.untie(theta_SP))

    def apply(self, wide: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
        return self.base.apply(wide, tokens_STB, first)

    def kernel(self) -> Kernel | None:
        return self.base.kernel()

    def sequence(self, x: list[Tensor], y: list[Tensor], z: list[Tensor]) -> list[Tensor]:
        return self.base.sequence(x, y, z)

    def folds(self) -> list[Fold]:
        return []

    def probes(self) -> dict[str, Probe]:
        """The base's, of the θ that it reads."""
        return {name: _of_base(probe) for name, probe in self.base.probes().items()}

    def recycled(self) -> Callable[[Any, Tensor], Tensor] | None:
        """The base's, and from there the nearest θ that keeps the ties."""
        its = self.base.recycled()
        return None if its is None else _kept_tied(its)

    def trained(self) -> Tied:
        return dataclasses.replace(self, base=self.base.trained())

    def hard_wired(self) -> dict[str, float]:
        return self.base.hard_wired()

    def structures(self) -> dict[str, list[Words]]:
        return self.base.structures()

    def as_dict(self) -> dict[str, Any]:
        return {"family": self.family, "base": self.base.as_dict(), "ties": self.by_tensor()}

    def spelt(self) -> list[str]:
        """Every tie as one writes it, an entry and an earlier one: `form[0,2] = 0`, `fc1[1,4] = -arc[0]`."""
        names, first, said = entries_of(self.base), dict[int, str](), []
        for name, k in zip(names, self.ties, strict=True):
            if abs(k) in first:
                said.append(f"{name} = {'-' * (k < 0)}{first[abs(k)]}")
            elif k:
                first[k] = name
            else:
                said.append(f"{name} = 0")
        return said


def _of_base(probe: Probe) -> Probe:
    @wraps(probe)
    def read(spec: Tied, theta_SR: Tensor) -> Tensor:
        return probe(spec.base, spec.untie(theta_SR))

    return read


def _kept_tied(change: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    def make(spec: Tied, theta_SR: Tensor) -> Tensor:
        return project(spec.ties, change(spec.base, spec.untie(theta_SR)))

    return make


@dataclasses.dataclass(frozen=True)
class Count:
    """How many numbers a model is, in three columns. Zeros and signs are structure and count in none.

    inside: with ties inside tensors alone, equal numbers of two tensors counted twice; across: every number
    that is stored; constants: those, and every hard-wired constant of the architecture that is not 0 or a
    sign.
    """

    inside: int
    across: int
    constants: int


def count(spec: Spec) -> Count:
    """The three columns of a spec; without ties, the first two are P."""
    inside = spec.params
    if isinstance(spec, Tied):
        inside = sum(len({abs(k) for k in mine} - {0}) for mine in spec.by_tensor().values())
    return Count(inside, spec.params, spec.params + len(spec.hard_wired()))


def tied(base: Any = None, ties: Any = None, **unknown: Any) -> Spec:
    """A tied spec from plain values. base: as `as_dict` has it. ties: as there, or constraints in words.

    Raises ValueError for a base or tie that is none.
    """
    if unknown:
        raise ValueError(f"a tied spec has base and ties, and no {next(iter(unknown))!r:.80}")
    if not isinstance(base, Mapping) or not isinstance(base.get("family"), str):
        raise ValueError("base must be a mapping with a family")
    spec = make_spec(**base)
    if isinstance(ties, str) or not isinstance(ties, Mapping | Sequence):
        raise ValueError(f"ties must be lists by tensor, or a list of constraints, got {ties!r:.80}")
    if not isinstance(ties, Mapping):
        return Tied(base=spec, ties=constrained(spec, ties))
    budget = spec.layout.budget()
    for name, mine in ties.items():
        if name not in budget:
            raise ValueError(f"ties: this base has no tensor {name!r:.80}; {did_you_mean(name, budget)}")
        if not isinstance(mine, list | tuple) or not all(type(k) is int for k in mine):
            raise ValueError(f"ties.{name} must be a list of integers, got {mine!r:.80}")
        if len(mine) != budget[name]:
            raise ValueError(f"ties.{name} must have {budget[name]} entries, got {len(mine)}")
    if missing := [name for name in budget if name not in ties]:
        raise ValueError(f"ties: {missing[0]} is missing")
    return Tied(base=spec, ties=tuple(k for name in budget for k in ties[name]))


def tie(spec: Spec, ties: Ties) -> Spec:
    """A spec's base with other ties; the base itself where there are none."""
    base = spec.base if isinstance(spec, Tied) else spec
    return base if canonical(ties) == free(base.params) else Tied(base=base, ties=ties)


def ties_of(spec: Spec) -> tuple[Spec, Ties]:
    """The base and ties of any spec; an untied one's are all free."""
    return (spec.base, spec.ties) if isinstance(spec, Tied) else (spec, free(spec.params))


def free(params: int) -> Ties:
    """No tie at all."""
    return tuple(range(1, params + 1))


def canonical(ties: Iterable[int]) -> Ties:
    """Ties whose numbers count from 1 as they first appear, each then with a plus."""
    known: dict[int, int] = {0: 0}
    made = []
    for k in ties:
        if abs(k) not in known:
            known[abs(k)] = len(known) if k > 0 else -len(known)
        made.append(known[abs(k)] if k > 0 else -known[abs(k)])
    return tuple(made)


def zeroed(ties: Ties, i: int) -> Ties:
    """With entry i zero, and all that is tied to it."""
    return canonical(0 if abs(k) == abs(ties[i]) else k for k in ties)


def equated(ties: Ties, i: int, j: int, sign: int) -> Ties:
    """With entry i equal to sign · entry j. Raises ValueError where the ties say that it is the opposite."""
    a, b = ties[i], ties[j]
    if not a or not b:
        return zeroed(ties, i if a else j)
    if a == -sign * b:
        raise ValueError("contradicts another tie, by which it is the opposite")
    sign = sign if (a > 0) == (b > 0) else -sign
    return canonical((sign if k > 0 else -sign) * abs(b) if abs(k) == abs(a) else k for k in ties)


def retied(ties: Ties, p: int, k: int) -> Ties:
    """With entry p alone reading k instead of what it read: 0, or plus or minus a number."""
    return canonical((*ties[:p], k, *ties[p + 1 :]))


def entries_of(spec: Spec) -> list[str]:
    """The name of each entry of θ: `arc[0]`, `form[0,2]`."""
    return spec.layout.entries()


def constrained(spec: Spec, constraints: Iterable[str], ties: Ties | None = None) -> Ties:
    """The ties that constraints in words come to, beside `ties`: `form[0,2] = 0`, `fc1[1,4] = -arc[0]`.

    Raises ValueError for one that is none, names no number, or contradicts those before it.
    """
    place = {name: n for n, name in enumerate(entries_of(spec))}
    ties = free(spec.params) if ties is None else ties
    for text in constraints:
        found = CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
        if not found:
            raise ValueError(f"tie {text!r:.80}: write it as `form[0,2] = 0` or `fc1[1,4] = -arc[0]`")
        left, zero, minus, right = found.groups()
        names = [re.sub(r"\s", "", name) for name in (left, right) if name]
        for name in names:
            if name not in place:
                raise ValueError(
                    f"tie {text!r:.80}: {name} is no number of this model; {did_you_mean(name, place)}"
                )
        i, j = place[names[0]], place[names[-1]]
        try:
            ties = zeroed(ties, i) if zero else equated(ties, i, j, -1 if minus else 1)
        except ValueError as error:
            raise ValueError(f"tie {text!r:.80}: {error}") from None
    return ties


def describe_new(base: Spec, before: Ties, after: Ties) -> list[str]:
    """The ties that one set has beyond another."""
    known, said = before, []
    for text in Tied(base=base, ties=after).spelt():
        grown = constrained(base, [text], known)
        if grown != known:
            said.append(text)
            known = grown
    return said


def describe_change(base: Spec, before: Ties, after: Ties) -> tuple[list[str], list[str]]:
    """What leads from one set to another: the ties that are loosened, and those that are new.

    `before`, as `Tied.spelt` has it, without the first and with the second, is `after`.
    """
    said = Tied(base=base, ties=before).spelt()
    loosened = [text for text in said if not _holds(base, text, after)]
    still = constrained(base, [text for text in said if text not in loosened])
    return loosened, describe_new(base, still, after)


def _holds(base: Spec, text: str, ties: Ties) -> bool:
    try:
        return constrained(base, [text], ties) == ties
    except ValueError:  # it contradicts them
        return False


def shared(one: Ties, other: Ties) -> Ties:
    """The ties that two sets both have."""
    known: dict[tuple[int, int], int] = {}
    made = []
    for a, b in zip(one, other, strict=True):
        sign = 1 if (a or b) > 0 else -1
        made.append(sign * known.setdefault((sign * a, sign * b), len(known) + 1) if a or b else 0)
    return canonical(made)


def selection_matrix(ties: Ties) -> Tensor:
    """The matrix [R, P], float64, by which numbers are read: 1 or -1 where an entry reads one, else 0."""
    import torch

    rows = torch.zeros(max(map(abs, ties), default=0), len(ties), dtype=torch.float64)
    for p, k in enumerate(ties):
        if k:
            rows[abs(k) - 1, p] = 1.0 if k > 0 else -1.0
    return rows


def project(ties: Ties, theta_SP: Tensor) -> Tensor:
    """The numbers [S, R] nearest to a base's θ: each the mean of what reads it, with signs."""
    rows = selection_matrix(ties)
    made: Tensor = theta_SP.double() @ (rows / rows.abs().sum(1, keepdim=True)).T
    return made.to(theta_SP.dtype)


def projector(ties: Ties) -> Tensor:
    """Π [P, P], float32: the orthogonal projector on the θ that keep the ties."""
    import torch

    k = torch.tensor(ties)
    shares = (k[:, None].abs() == k[None].abs()) & (k[:, None] != 0)
    signs = torch.sign(k)[:, None] * torch.sign(k)[None]
    made: Tensor = (shares * signs).float()
    return made / shares.sum(1, keepdim=True).clamp(min=1)


MAKERS[Tied.family] = tied
