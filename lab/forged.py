"""forgeformer: a transformer whose weights are written by hand adds two numbers from 1 to 99.

Source: forgeformer, by aritro 'sortira' shome. Width 3, two attention layers of one head, no feed-forward
part, no norm, nothing learned; the tokens are the operands' digits and an end token. Layer 1 gathers the
units into the end token's accumulator, layer 2 the tens into its digit.

What the text leaves open is settled by its own example, 37 + 46 = 83 (lab/2026-11-20-forged goes through all
readings): weights stand on the right (x W), a row of scores is one token's softmax, both layers add to their
input, and the end token has no digit, 0. That reading is `PUBLISHED`, right on all 9,801 pairs. Scale and
causal mask change no answer; the text names neither, so there is neither.

`LITERAL` takes the end token's id, −1 in the published call, for its digit: layer 2 then adds −1 twice, in
the end token's own row and in the third of its attention that it pays to itself, and every sum is 20 short.
`CORRECTED` makes that right again with one number more: wv2[sign, digit] = 2.

Axes: T token (5), D dimension (3). Everything is float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

LOWEST, HIGHEST = 1, 99
TOKENS = ("tens a", "units a", "tens b", "units b", "eos")
DIMENSIONS = ("accumulator", "digit", "sign")
ACCUMULATOR, DIGIT, SIGN = range(3)
WEIGHTS = ("wq1", "wk1", "wv1", "wq2", "wk2", "wv2")
STATES = ("x1", "q1", "k1", "v1", "kq1", "attn1", "x2", "q2", "k2", "v2", "kq2", "attn2", "output")
EOS = -1
"""The end token's id, and its place."""

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Forging:
    """Weights by hand: six [D, D] matrices that stand to the right of what they act on."""

    family: ClassVar[str] = "forged"
    name: str
    about: str
    eos_digit: float = 0
    """Entry of the end token's vector where a digit token has its digit."""
    wq1: Matrix
    wk1: Matrix
    wv1: Matrix
    wq2: Matrix
    wk2: Matrix
    wv2: Matrix

    @property
    def params(self) -> int:
        """Numbers in the matrices."""
        return sum(self.budget().values())

    @property
    def nonzero(self) -> int:
        """Numbers in the matrices that are not 0."""
        return sum(self.budget(nonzero=True).values())

    def budget(self, nonzero: bool = False) -> dict[str, int]:
        """Return the size of each matrix by name; with `nonzero` the count of its numbers that are not 0."""
        return {name: sum(not nonzero or n != 0 for n in _flat(self, name)) for name in WEIGHTS}

    def weights(self) -> dict[str, Matrix]:
        """Return the matrices by name."""
        return {name: getattr(self, name) for name in WEIGHTS}


def _flat(forging: Forging, name: str) -> Iterable[float]:
    return (n for row in getattr(forging, name) for n in row)


def _single(row: int, column: int, value: float) -> Matrix:
    """Return a [D, D] matrix with one number in it."""
    return tuple(tuple(value if (r, c) == (row, column) else 0 for c in range(3)) for r in range(3))


PUBLISHED = Forging(
    name="published",
    about="the published matrices; the end token has no digit",
    wq1=_single(SIGN, SIGN, 10),
    wk1=_single(SIGN, SIGN, -10),
    wv1=_single(DIGIT, ACCUMULATOR, 2),
    wq2=_single(SIGN, SIGN, 10),
    wk2=_single(SIGN, SIGN, 10),
    wv2=_single(DIGIT, DIGIT, 3),
)
LITERAL = replace(
    PUBLISHED,
    name="literal",
    about="the published matrices; the end token's id, −1, taken for its digit",
    eos_digit=EOS,
)
CORRECTED = replace(
    LITERAL,
    name="corrected",
    about="literal, and wv2[sign, digit] = 2 makes up for the −1",
    wv2=((0, 0, 0), (0, 3, 0), (0, 2, 0)),
)
FORGINGS: dict[str, Forging] = {f.name: f for f in (PUBLISHED, LITERAL, CORRECTED)}


def forging(name: str) -> Forging:
    """Return a forging by name. Raises ValueError for an unknown name, with the nearest ones."""
    if name not in FORGINGS:
        raise ValueError(f"unknown forging {name!r}; {did_you_mean(name, FORGINGS)}")
    return FORGINGS[name]


@dataclass(frozen=True)
class Forged:
    """One addition with every intermediate state.

    states: by the published names; x, q, k, v and output [T, D], kq and attn [T, T].
    """

    a: int
    b: int
    forging: Forging
    states: dict[str, Tensor]
    units_sum: int
    tens_sum: int
    carry: int
    answer: int

    @property
    def correct(self) -> bool:
        return self.answer == self.a + self.b

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "a": self.a,
            "b": self.b,
            "forging": self.forging.name,
            "tokens": tokens(self.a, self.b),
            "states": {name: state.tolist() for name, state in self.states.items()},
            "units_sum": self.units_sum,
            "tens_sum": self.tens_sum,
            "carry": self.carry,
            "answer": self.answer,
            "correct": self.correct,
        }


def forge(a: int, b: int, forging: Forging = PUBLISHED) -> Forged:
    """Add two numbers and keep every intermediate state.

    Raises ValueError unless both are integers from 1 to 99.
    """
    import torch

    states = forward(torch.tensor(tokens(a, b)), forging)
    sums = {name: int(value) for name, value in read_out(states["output"]).items()}
    return Forged(a, b, forging, states, **sums)


def tokens(a: int, b: int) -> list[int]:
    """Return the five token ids: tens and units of a, tens and units of b, the end token.

    Raises ValueError unless both are integers from 1 to 99.
    """
    for n in (a, b):
        if isinstance(n, bool) or not isinstance(n, int) or not LOWEST <= n <= HIGHEST:
            raise ValueError(f"forgeformer adds integers from {LOWEST} to {HIGHEST}, not {n!r}")
    return [a // 10, a % 10, b // 10, b % 10, EOS]


def forward(tokens: Tensor, forging: Forging) -> dict[str, Tensor]:
    """Return all states by published name for token ids [..., T]: [..., T, D], scores and weights [..., T, T].

    The softmax is taken after subtracting the largest score: exp(100) does not fit into float32.
    """
    import torch

    states: dict[str, Tensor] = {}
    x = embed(tokens, forging)
    for layer in (1, 2):
        wq, wk, wv = (torch.tensor(getattr(forging, f"w{kind}{layer}"), dtype=torch.float64) for kind in "qkv")
        q, k, v = x @ wq, x @ wk, x @ wv
        kq = q @ k.mT
        attn = torch.softmax(kq, dim=-1)
        layer_states = {"x": x, "q": q, "k": k, "v": v, "kq": kq, "attn": attn}
        states |= {f"{name}{layer}": state for name, state in layer_states.items()}
        x = x + attn @ v
    return states | {"output": x}


def embed(tokens: Tensor, forging: Forging) -> Tensor:
    """Embed token ids [..., T] as [..., T, D]: 0, the digit, the sign of the place (+1, −1, +1, −1, +1)."""
    import torch

    digit = torch.where(tokens == EOS, forging.eos_digit, tokens.double())
    sign = torch.tensor([1, -1, 1, -1, 1], dtype=torch.float64).expand_as(digit)
    return torch.stack([torch.zeros_like(digit), digit, sign], dim=-1)


def read_out(output: Tensor) -> dict[str, Tensor]:
    """Read sums, carry and answer, integers [...], from the end token of the last output [..., T, D].

    Both sums are rounded first: thirds leave a tens sum of `CORRECTED` up to 2e-15 beside its integer.
    """
    units = output[..., EOS, ACCUMULATOR].round().long()
    tens = output[..., EOS, DIGIT].round().long()
    carry = (units >= 10).long()
    answer = (tens + carry) * 10 + units % 10
    return {"units_sum": units, "tens_sum": tens, "carry": carry, "answer": answer}


def every_pair() -> tuple[Tensor, Tensor]:
    """Return the operands of all 9,801 additions: two integer tensors [9801]."""
    import torch

    numbers = torch.arange(LOWEST, HIGHEST + 1)
    a, b = torch.cartesian_prod(numbers, numbers).unbind(-1)
    return a, b


def count_correct(forging: Forging) -> int:
    """Count the correct ones of the 9,801 additions."""
    import torch

    a, b = every_pair()
    ids = torch.stack([a // 10, a % 10, b // 10, b % 10, torch.full_like(a, EOS)], dim=-1)
    answer = read_out(forward(ids, forging)["output"])["answer"]
    return int((answer == a + b).sum())
