"""The layout: which slice of the flat parameter vector θ is what.

The trainable parameters of one seed are one vector of exactly P numbers, P being the AdderBoard
count. Frozen constants are not in it, and a tied tensor is a slice that the forward pass reads twice,
so the count cannot lie.

Axes: S seed, P parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from model.fields import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

Shapes = dict[str, tuple[int, ...]]


def linear(name: str, reads: int, writes: int, rank: int = 0) -> Shapes:
    """Return the tensors of a matrix: in torch's orientation, or two factors, read as x · A · B.

    rank: the factors' inner dimension; 0 for a full matrix.

    >>> linear("out", 7, 7, rank=2)
    {'out_A': (7, 2), 'out_B': (2, 7)}
    """
    if rank:
        return {f"{name}_A": (reads, rank), f"{name}_B": (rank, writes)}
    return {name: (writes, reads)}


@dataclass(frozen=True)
class Layout:
    """Named slices of θ, in order.

    >>> layout = Layout.of({"arc": (3,), "form": (2, 2)})
    >>> layout.size, layout.budget()
    (7, {'arc': 3, 'form': 4})
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, shapes: Shapes) -> Layout:
        """Make a layout of shapes by name, in their order."""
        return cls(tuple(shapes), tuple(shapes.values()))

    @property
    def size(self) -> int:
        """P, the number of trainable parameters."""
        return sum(map(prod, self.shapes))

    def budget(self) -> dict[str, int]:
        """Return the parameters by component, as in the 57p paper, section 2.8."""
        return dict(zip(self.names, map(prod, self.shapes), strict=True))

    def entries(self) -> list[str]:
        """Return the name of each entry of θ: `arc[0]`, `form[0,2]`."""
        names = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            for place in product(*map(range, shape)):
                names.append(f"{name}[{','.join(map(str, place))}]")
        return names

    def places(self, name: str) -> list[int]:
        """Return the indices in θ of a tensor's entries, or of one entry.

        Raises ValueError for another name, with the nearest ones.
        """
        entries = self.entries()
        indices = []
        for p, entry in enumerate(entries):
            tensor, _, _ = entry.partition("[")
            if name in (entry, tensor):
                indices.append(p)
        if not indices:  # the nearest of what was meant: entries, or tensors
            valid = entries if "[" in name else self.names
            raise ValueError(f"there is no {name!r:.80}; {did_you_mean(name, valid)}")
        return indices

    def split(self, theta_SP: Tensor) -> dict[str, Tensor]:
        """Split θ [S, P] into named tensors [S, *shape] (views)."""
        sizes = [prod(shape) for shape in self.shapes]
        parts = theta_SP.split(sizes, dim=1)
        named = zip(self.names, self.shapes, parts, strict=True)
        return {name: part.reshape(-1, *shape) for name, shape, part in named}

    def split_one(self, theta_P: Tensor) -> dict[str, Tensor]:
        """Split one seed's θ [P] into named tensors [*shape]."""
        return {name: t[0] for name, t in self.split(theta_P[None]).items()}

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Join one seed's named tensors [*shape] to θ [P]; the inverse of `split_one`.

        Raises ValueError if a tensor is missing or its size is not its slice's.
        """
        import torch

        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            if name not in tensors or tensors[name].numel() != prod(shape):
                actual = tuple(tensors[name].shape) if name in tensors else "nothing"
                raise ValueError(f"{name} must have shape {shape}, found {actual}")
            parts.append(tensors[name].detach().reshape(-1))  # a module's parameters track gradients
        return torch.cat(parts)
