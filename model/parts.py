"""Parts of a net that can go one at a time, such as hidden units, and what of θ is theirs.

A family names its kinds of parts in `Spec.parts`. Training can begin with more parts than a spec shall have in the
end, and drop those that the net needs least (trainer/road).

Axes: P entries of θ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import TYPE_CHECKING

from model.tied import Tied, Ties, canonical, free

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Parts, Spec


class NoParts(ValueError):
    """A kind of parts that a spec has not."""


def parts_of(spec: Spec, name: str) -> Parts:
    """Return a kind of parts of a spec. Raises NoParts if the family names none so."""
    if name not in spec.parts:
        names = ", ".join(spec.parts) or "no parts that can go"
        raise NoParts(f"{spec.label} with these constraints has {names}, and no {name!r:.80}")
    return spec.parts[name]


def count_of(spec: Spec, name: str) -> int:
    """Return how many parts of a kind a spec has. Raises NoParts as `parts_of` does."""
    return spec.value_of(parts_of(spec, name).size)


def keep(spec: Spec, name: str, chosen: Sequence[int]) -> tuple[Spec, list[int]]:
    """Return the spec that keeps only the chosen parts of a kind, and where in θ [P] each entry of its own θ lies.

    >>> from dataclasses import replace
    >>> from model import preset
    >>> wide = replace(preset("67p"), hidden=8)
    >>> smaller, index = keep(wide, "units", [5, 2])
    >>> smaller.params, len(index)
    (67, 67)
    """
    kind = parts_of(spec, name)
    smaller = spec.replaced({kind.size: len(chosen)})
    shapes = smaller.shapes()
    entries = []
    for tensor, place in _places(smaller):
        axis = kind.axes.get(tensor)
        if axis is not None:
            # A part may have several entries side by side on its axis, as a head has.
            each = shapes[tensor][axis] // len(chosen)
            part, within = divmod(place[axis], each)
            moved = chosen[part] * each + within
            place = (*place[:axis], moved, *place[axis + 1 :])
        entries.append((tensor, place))
    number = {entry: n for n, entry in enumerate(_places(spec))}
    return smaller, [number[entry] for entry in entries]


def _places(spec: Spec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield tensor and place of each entry of θ, in order."""
    for tensor, shape in spec.shapes().items():
        for place in product(*map(range, shape)):
            yield tensor, place


def only(spec: Spec, name: str, chosen: Sequence[int]) -> Ties:
    """Return the ties of a spec in which all parts of a kind are zero but the chosen ones."""
    kept = set(keep(spec, name, chosen)[1])
    return canonical(k if p in kept else 0 for p, k in enumerate(free(spec.params)))


def orders(spec: Spec) -> Iterator[list[int]]:
    """Yield indices of θ [P] by which parts of a spec trade places: all orders of one kind, then of the next."""
    yield list(range(spec.params))
    for name in spec.parts:
        for order in permutations(range(count_of(spec, name))):
            if list(order) != sorted(order):
                yield keep(spec, name, order)[1]


def inside(base: Spec, target: Spec) -> tuple[Ties, list[int]]:
    """Return the ties under which a base is a smaller spec, and for each of their numbers its index in the target's θ.

    The target is the base with ties, or has tensors that are others of its own, as the wide tensors show.
    Raises ValueError if it is none of both.
    """
    if getattr(target, "base", None) == base:
        return target.ties, list(range(target.params))  # type: ignore[attr-defined]
    # The target's numbers are told apart by writing 1, 2, 3 ... for them: what the base then reads says its ties.
    index = [int(value) for value in _filled(base, target).tolist()]
    ties = canonical(index)
    places: dict[int, int] = {}
    for k, place in zip(ties, index, strict=True):
        if k > 0:
            places.setdefault(k, place)
    order = [places[k] - 1 for k in sorted(places)]
    # Each number is read, and nothing was lost that is no tie, such as a product or a sum of two.
    is_each_once = sorted(order) == list(range(target.params))
    if not is_each_once or not _agree(base, ties, target, order):
        raise ValueError("its θ is not the larger model's with ties")
    return ties, order


def _agree(base: Spec, ties: Ties, target: Spec, order: Sequence[int]) -> bool:
    """True if a base under ties computes what the target does, on a θ whose entries all differ."""
    import torch

    theta_1P = torch.linspace(0.1, 0.9, target.params)[None]
    tied, tied_1R = Tied(base=base, ties=ties), theta_1P[:, list(order)]
    others = tied.all_tensors(tied_1R)
    for name, tensor in target.all_tensors(theta_1P).items():
        if name not in others or not torch.equal(tensor, others[name]):
            return False
    return target.answers_as(theta_1P, tied, tied_1R)


def _filled(base: Spec, target: Spec) -> Tensor:
    """Return a base's θ [P] in which each entry is the place, from 1 on, of the target's number that it would read."""
    import torch

    if base.label != target.label:
        raise ValueError(f"a {base.label} does not become a {target.label}")
    places_P = torch.arange(1, target.params + 1, dtype=torch.float32)
    wide = {name: t_1[0] for name, t_1 in target.all_tensors(places_P[None]).items()}
    # The target's own tensors come last: a wide one of the same name may have a norm's weights in it.
    return base.layout.join({**wide, **target.layout.split_one(places_P)})
