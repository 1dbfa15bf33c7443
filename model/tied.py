"""Ties: linear constraints on θ as data. Each entry of a base's θ is 0, or plus or minus one of R numbers.

A tied spec is a spec like any other: its θ is the R numbers; its forward pass, wide tensors and kernel are its
base's, on the untied θ. So a tie takes no line of code and costs nothing: the engine's tape reads a number as
often as it is used.

Axes: S seed, P entries of the base's θ, R numbers that are stored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import did_you_mean
from model.layout import Shapes
from model.spec import Fold, Kernel, MakeKernel, Probe, Spec, make_spec

if TYPE_CHECKING:
    from torch import Tensor

    from model.ops import Tensors
    from model.structures import Words

Ties = tuple[int, ...]
"""For each entry of θ: 0 for zero, k or -k for plus or minus the k-th number, from 1 on."""
MOST_PRODUCTS = 1 << 24
"""Of entries and numbers, in memory at once where θ are projected: 128 MB."""
UNTIED = "base must be a spec that is not tied itself"
CONSTRAINT = re.compile(r"\s*(\w+\[[^]=]*\])\s*=\s*(?:(0)|(-?)\s*(\w+\[[^]=]*\]))\s*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tied(Spec, listed=False):
    """A base and its ties, in canonical form: numbers count from 1 in the order in which entries first read
    them, and an entry that is the first to read its number reads it with a plus.
    """

    family: ClassVar[str] = "tied"
    about: ClassVar[str] = "any spec whose θ is fewer numbers, by ties that are data"
    operands: ClassVar[tuple[int, ...]] = ()  # its base's
    base: Spec
    ties: Ties

    def __post_init__(self) -> None:
        if not isinstance(self.base, Spec) or isinstance(self.base, Tied):
            raise ValueError(UNTIED)
        if len(self.ties) != self.base.params:
            raise ValueError(f"ties must be {self.base.params} entries for this base, got {len(self.ties)}")
        # Frozen, but still being made: ties that say the same must be one spec, with one key.
        object.__setattr__(self, "ties", canonical(self.ties))
        object.__setattr__(self, "task", self.base.task)
        for name, ties in self.by_tensor().items():
            if name in self.base.essential and not any(ties):
                raise ValueError(f"ties leave nothing but zeros in {name}, without which the model is mute")

    @classmethod
    def from_values(cls, base: Any = None, ties: Any = None, **unknown: Any) -> Spec:
        """Return a tied spec of plain values.

        base: as in `as_dict`. ties: as there, or a list of constraints as text.
        Raises ValueError for a base or tie that is none.
        """
        if unknown:
            raise ValueError(f"a tied spec has base and ties, and no {next(iter(unknown))!r:.80}")
        if not isinstance(base, Mapping) or not isinstance(base.get("family"), str):
            raise ValueError("base must be a mapping with a family")
        if base["family"] == cls.family:  # before it is made: it may have a base in a base, hundreds deep
            raise ValueError(UNTIED)
        spec = make_spec(**base)
        if isinstance(ties, str) or not isinstance(ties, Mapping | Sequence):
            raise ValueError(f"ties must be lists by tensor, or a list of constraints, got {ties!r:.80}")
        if isinstance(ties, Mapping):
            return cls(base=spec, ties=_flat(ties, spec.layout.budget()))
        return cls(base=spec, ties=constrained(spec, ties))

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
    def tokens(self) -> int:
        return self.base.tokens

    @property
    def logits(self) -> int:
        return self.base.logits

    @property
    def prompt(self) -> int:
        return self.base.prompt

    @property
    def roles(self) -> dict[str, str]:  # type: ignore[override]
        return self.base.roles

    def by_tensor(self) -> dict[str, list[int]]:
        """Return the ties of each of the base's tensors, flat."""
        entries = iter(self.ties)
        budget = self.base.layout.budget()
        return {name: [next(entries) for _ in range(n)] for name, n in budget.items()}

    def shapes(self) -> Shapes:
        """Return shapes with each number in the slice of the tensor that reads it first."""
        seen: set[int] = {0}  # a zero is no number
        shapes: Shapes = {}
        for name, ties in self.by_tensor().items():
            new = {abs(k) for k in ties} - seen
            seen |= new
            if new:
                shapes[name] = (len(new),)
        return shapes

    def initial(self, seed: int) -> Tensor:
        """Project the base's initial values: a number is the mean of the entries that read it."""
        return project(self.ties, self.base.initial(seed)[None])[0]

    def untie(self, theta_SR: Tensor) -> Tensor:
        """Return the base's θ [S, P] of the numbers [S, R]."""
        import torch

        ties = torch.tensor(self.ties, device=theta_SR.device)
        # A zero reads the first number, times a sign of 0.
        place_P = (ties.abs() - 1).clamp(min=0)
        numbers_SP = theta_SR.index_select(1, place_P)
        return numbers_SP * ties.sign().to(theta_SR.dtype)

    def expand(self, theta_SP: Tensor) -> Tensors:
        return self.base.expand(self.untie(theta_SP))

    def all_tensors(self, theta_SP: Tensor) -> Tensors:
        return self.base.all_tensors(self.untie(theta_SP))

    def apply(self, wide: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
        return self.base.apply(wide, tokens_STB, first)

    def kernel(self) -> Kernel | MakeKernel | None:
        return self.base.kernel()

    def sequence(self, *columns: list[Tensor]) -> list[Tensor]:
        return self.base.sequence(*columns)

    def tokens_of(self, a: Tensor, b: Tensor) -> list[Tensor]:
        return self.base.tokens_of(a, b)

    def prompt_of(self, a: Tensor, b: Tensor) -> list[Tensor]:
        return self.base.prompt_of(a, b)

    def read_answer(self, answer_AB: Tensor) -> Tensor:
        return self.base.read_answer(answer_AB)

    def places(self) -> set[str]:
        return self.base.places()

    @property
    def adds(self) -> bool:
        return self.base.adds

    def check_asked(self) -> None:
        self.base.check_asked()

    def check_trained(self) -> None:
        self.base.check_trained()

    def files(self, theta_P: Tensor) -> dict[str, bytes]:
        return self.base.files(self.untie(theta_P[None])[0])

    def folds(self) -> list[Fold]:
        return []  # a fold of the base need not keep its ties

    def probes(self) -> dict[str, Probe]:
        """Return the base's probes, of the untied θ."""
        return {name: _of_base(probe) for name, probe in self.base.probes().items()}

    def recycled(self) -> Callable[[Any, Tensor], Tensor] | None:
        """Return the base's function, followed by the projection on the ties."""
        change = self.base.recycled()
        return None if change is None else _then_project(change)

    def trained(self) -> Tied:
        return dataclasses.replace(self, base=self.base.trained())

    def hard_wired(self) -> dict[str, float]:
        return self.base.hard_wired()

    def structures(self) -> dict[str, list[Words]]:
        return self.base.structures()

    def as_dict(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "base": self.base.as_dict(),
            "ties": self.by_tensor(),
        }

    def spelt(self) -> list[str]:
        """Return every tie as one writes it, an entry and an earlier one: `form[0,2] = 0`, `fc1[1,4] = -arc[0]`."""
        first = dict[int, str]()
        texts = []
        for name, k in zip(self.base.layout.entries(), self.ties, strict=True):
            if k == 0:
                texts.append(f"{name} = 0")
            elif abs(k) in first:
                sign = "-" if k < 0 else ""
                texts.append(f"{name} = {sign}{first[abs(k)]}")
            else:  # with a plus, since ties are canonical
                first[k] = name
        return texts


def _of_base(probe: Probe) -> Probe:
    """Return a base's probe as one of the tied spec."""

    @wraps(probe)
    def read(spec: Tied, theta_SR: Tensor) -> Tensor:
        return probe(spec.base, spec.untie(theta_SR))

    return read


def _then_project(change: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """Return a base's function of θ, followed by the projection on the ties."""

    def make(spec: Tied, theta_SR: Tensor) -> Tensor:
        changed_SP = change(spec.base, spec.untie(theta_SR))
        return project(spec.ties, changed_SP)

    return make


@dataclasses.dataclass(frozen=True)
class Count:
    """Size of a model, counted in four ways. Zeros and signs are structure and never count.

    inside: ties hold inside tensors only, so equal numbers of two tensors count twice; across: every stored
    number; hidden: those, and hard-wired constants in tensors that are trained; constants: those, and all
    hard-wired constants other than 0 and signs.
    """

    inside: int
    across: int
    hidden: int
    constants: int


def count(spec: Spec) -> Count:
    """Count a spec's numbers in all four ways; without ties, the first two are P.

    >>> from model import preset
    >>> count(preset("46p"))
    Count(inside=46, across=46, hidden=47, constants=49)
    """
    inside = spec.params
    if isinstance(spec, Tied):
        inside = 0
        for ties in spec.by_tensor().values():
            inside += len({abs(k) for k in ties} - {0})
    constants = spec.hard_wired()
    base, _ = ties_of(spec)
    # A constant such as out_B[0] hides in a tensor of which the rest is trained.
    tensors = [name.partition("[")[0] for name in constants]
    hidden = sum(name in base.layout.names for name in tensors)
    return Count(inside, spec.params, spec.params + hidden, spec.params + len(constants))


def _flat(ties: Mapping[Any, Any], budget: Mapping[str, int]) -> Ties:
    """Return ties that are given by tensor. Raises ValueError where they do not fit the budget.

    budget: entries of each of the base's tensors.
    """
    # Checked one by one, since anyone may have written them.
    for name, entries in ties.items():
        if name not in budget:
            raise ValueError(f"ties: this base has no tensor {name!r:.80}; {did_you_mean(name, budget)}")
        is_list = isinstance(entries, list | tuple)
        if not is_list or not all(type(k) is int for k in entries):
            raise ValueError(f"ties.{name} must be a list of integers, got {entries!r:.80}")
        if len(entries) != budget[name]:
            raise ValueError(f"ties.{name} must have {budget[name]} entries, got {len(entries)}")
    for name in budget:
        if name not in ties:
            raise ValueError(f"ties: {name} is missing")
    return tuple(k for name in budget for k in ties[name])


def tie(spec: Spec, ties: Ties) -> Spec:
    """Return a spec's base with these ties; the base itself where there are none."""
    base, _ = ties_of(spec)
    # Without a tie it is the base: one model must not have two specs, and so two keys.
    is_free = canonical(ties) == free(base.params)
    return base if is_free else Tied(base=base, ties=ties)


def ties_of(spec: Spec) -> tuple[Spec, Ties]:
    """Return the base and ties of any spec; an untied spec's are all free."""
    return (spec.base, spec.ties) if isinstance(spec, Tied) else (spec, free(spec.params))


def untied(spec: Spec, theta_P: Tensor) -> tuple[Spec, Tensor]:
    """Return a spec without its ties, and its θ [P] from one of the spec."""
    if not isinstance(spec, Tied):
        return spec, theta_P
    return spec.base, spec.untie(theta_P[None])[0]


def free(params: int) -> Ties:
    """Return the ties of a θ without ties."""
    return tuple(range(1, params + 1))


def canonical(ties: Iterable[int]) -> Ties:
    """Renumber ties from 1 in the order of first appearance, each first with a plus.

    >>> canonical([7, -7, 0, -3, 3])
    (1, -1, 0, 2, -2)
    """
    numbers: dict[int, int] = {0: 0}
    renumbered = []
    for k in ties:
        if abs(k) not in numbers:
            new = len(numbers)
            numbers[abs(k)] = new if k > 0 else -new
        number = numbers[abs(k)]
        renumbered.append(number if k > 0 else -number)
    return tuple(renumbered)


def zeroed(ties: Ties, i: int) -> Ties:
    """Return the ties with entry i zero, and all that is tied to it."""
    number = abs(ties[i])
    return canonical(0 if abs(k) == number else k for k in ties)


def equated(ties: Ties, i: int, j: int, sign: int) -> Ties:
    """Return the ties with entry i equal to sign · entry j. Raises ValueError if they say it is the opposite.

    >>> equated((1, 2, -1), 0, 1, -1)
    (1, -1, -1)
    """
    a, b = ties[i], ties[j]
    if not a or not b:  # what equals a zero is one, and all that reads its number
        return zeroed(ties, i if a else j)
    if a == -sign * b:
        raise ValueError("contradicts another tie, by which it is the opposite")

    # every entry that reads a's number now reads b's
    number = abs(b) if (a > 0) == (b > 0) else -abs(b)
    changed = []
    for k in ties:
        if abs(k) == abs(a):
            k = sign * number if k > 0 else -sign * number
        changed.append(k)
    return canonical(changed)


def constrained(spec: Spec, constraints: Iterable[str], ties: Ties | None = None) -> Ties:
    """Add constraints to ties: `form[0,2] = 0`, `fc1[1,4] = -arc[0]`.

    ties: of the spec; free by default.
    Raises ValueError for one that is none, names no number, or contradicts those before it.
    """
    places = {name: n for n, name in enumerate(spec.layout.entries())}
    ties = free(spec.params) if ties is None else ties
    for text in constraints:
        match = CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise ValueError(f"tie {text!r:.80}: write it as `form[0,2] = 0` or `fc1[1,4] = -arc[0]`")
        # Of `= 0` there is no second entry: the first and the last name are then the same.
        entry, zero, minus, earlier = match.groups()
        names = [re.sub(r"\s", "", name) for name in (entry, earlier) if name]
        for name in names:
            if name not in places:
                hint = did_you_mean(name, places)
                raise ValueError(f"tie {text!r:.80}: {name} is no number of this model; {hint}")
        i, j = places[names[0]], places[names[-1]]
        try:
            ties = zeroed(ties, i) if zero else equated(ties, i, j, -1 if minus else 1)
        except ValueError as error:
            raise ValueError(f"tie {text!r:.80}: {error}") from None
    return ties


def describe_new(base: Spec, before: Ties, after: Ties) -> list[str]:
    """Return as text the ties of `after` that `before` lacks."""
    # One after another: a tie that follows from those already said is not said again.
    ties, texts = before, []
    for text in Tied(base=base, ties=after).spelt():
        extended = constrained(base, [text], ties)
        if extended != ties:
            texts.append(text)
            ties = extended
    return texts


def shared(first: Ties, second: Ties) -> Ties:
    """Return the ties that hold in both."""
    numbers: dict[tuple[int, int], int] = {}
    ties = []
    for a, b in zip(first, second, strict=True):
        if not (a or b):
            ties.append(0)
            continue

        # entries are equal in both where both numbers are, up to one sign
        sign = 1 if (a or b) > 0 else -1
        pair = (sign * a, sign * b)
        number = numbers.setdefault(pair, len(numbers) + 1)
        ties.append(sign * number)
    return canonical(ties)


@lru_cache(64)
def selection_matrix(ties: Ties) -> Tensor:
    """Return the matrix [R, P], float64, that maps numbers to θ: ±1 where an entry reads a number, else 0."""
    import torch

    # float64, so that a mean of float32 entries is rounded once.
    rows = torch.zeros(max(map(abs, ties), default=0), len(ties), dtype=torch.float64)
    for p, k in enumerate(ties):
        if k:
            rows[abs(k) - 1, p] = 1.0 if k > 0 else -1.0
    return rows


def project(ties: Ties, theta_SP: Tensor) -> Tensor:
    """Return the numbers [S, R] nearest to a base's θ: each the signed mean of the entries that read it.

    Entries are added in their order, to the same bits on every machine.
    """
    import torch

    rows = selection_matrix(ties)
    # Some at a time: there may be 40,000 ways to narrow a net.
    some = theta_SP.double().split(1 + MOST_PRODUCTS // (1 + rows.numel()))
    # By cumsum: torch.sum adds in an order of its own.
    sums_SR = torch.cat([(part_SP[:, None] * rows).cumsum(-1)[..., -1] for part_SP in some])
    return (sums_SR / rows.abs().sum(1)).to(theta_SP.dtype)
