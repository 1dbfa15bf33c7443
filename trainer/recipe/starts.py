"""Starts: θ at step 0, as part of the recipe.

By default a seed starts from its spec's own initial values. `init` replaces those of some tensors; the others start as
they would without it. The start depends on spec, recipe and `init_seed` alone.

Axes: P parameters.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING, Any

from model.fields import LARGEST, did_you_mean, option
from trainer.fields import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from model.spec import Spec

MOST_ROWS = 64
HOW = ("scaled", "normal", "uniform", "xavier", "kaiming", "at")
FORM = f"rows [tensor, how, numbers], how being {', '.join(HOW)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Starts(Group):
    init: tuple[tuple[Any, ...], ...] = option(
        (),
        f"{FORM}: these tensors start as the sum of their rows instead of as the spec has them; "
        "scaled: the spec's own start times a number",
        unit="tensor, how, numbers",
        source="xavier: Glorot and Bengio 2010; kaiming: He et al. 2015, for uniform numbers, times a gain",
        max_length=MOST_ROWS,
        entries="rows",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        rows = tuple(map(_checked, recipe.init))
        object.__setattr__(recipe, "init", rows)


def _checked(row: Any) -> tuple[Any, ...]:
    """Return a row of `init` with its numbers as floats. Raise ValueError for one of another form."""
    is_row = isinstance(row, tuple) and len(row) > 2
    if not is_row or not all(isinstance(word, str) for word in row[:2]):
        raise ValueError(f"init must be {FORM}, got {row!r:.80}")
    name, how, *numbers = row
    # NaN is not below LARGEST either.
    if not all(type(n) in (int, float) and abs(n) <= LARGEST for n in numbers):
        raise ValueError(f"init must be {FORM}, got {row!r:.80}")
    if how not in HOW:
        raise ValueError(f"init must be {FORM}; unknown {how!r:.80}; {did_you_mean(how, HOW)}")
    if how != "at" and (len(numbers) > 1 or numbers[0] < 0):
        raise ValueError(f"init must be one number of 0 or more for {how}, got {numbers!r:.80}")
    return (name, how, *map(float, numbers))


def check_start(spec: Spec, recipe: Starts) -> None:
    """Raise ValueError unless seeds of a spec can start as a recipe says."""
    shapes = spec.shapes()
    for name, how, *numbers in recipe.init:
        if name not in shapes:
            raise ValueError(
                f"init must be about tensors of the model; unknown {name!r:.80}; {did_you_mean(name, shapes)}"
            )
        size = math.prod(shapes[name])
        if how == "at" and len(numbers) not in (1, size):
            raise ValueError(f"init: `at` needs 1 or {size} numbers for {name}, got {len(numbers)}")
        if how in ("xavier", "kaiming") and len(shapes[name]) != 2:
            raise ValueError(f"init: {how} needs a matrix; {name} is not one")


def initial_theta(spec: Spec, recipe: Starts, init_seed: int) -> Tensor:
    """Return θ [P] at step 0, float32 on CPU."""
    theta_P = spec.initial(init_seed)
    if not recipe.init:
        return theta_P
    tensors = spec.layout.split_one(theta_P)
    replaced: dict[str, Tensor] = {}
    # Each row has a generator of its own, so that rows before it do not change its draw.
    for i, (name, how, *numbers) in enumerate(recipe.init):
        generator_seed = hashed_seed(f"start {init_seed} {name} {i}")
        row = _row(tensors[name], how, numbers, generator_seed)
        replaced[name] = replaced[name] + row if name in replaced else row
    return spec.layout.join(tensors | replaced)


def _row(usual: Tensor, how: str, numbers: Sequence[float], generator_seed: int) -> Tensor:
    """Draw one row of `init` for a tensor.

    usual: the start that the spec gives the tensor. how, numbers: the row's. generator_seed: names the draw.
    """
    import torch

    from model import draws

    if how == "scaled":
        return usual * numbers[0]
    if how == "at":
        values = torch.tensor(numbers, dtype=torch.float32)
        return values.expand(usual.numel()).reshape(usual.shape)
    shape = tuple(usual.shape)
    generator = torch.Generator().manual_seed(generator_seed)
    if how == "normal":
        return draws.normal(shape, numbers[0], generator)
    if how == "xavier":
        return draws.xavier(shape, generator) * numbers[0]
    bound = numbers[0]
    if how == "kaiming":
        bound *= math.sqrt(3 / shape[1])  # √3 times He et al.'s deviation, of which the number is the gain
    return draws.uniform(shape, bound, generator)


def hashed_seed(text: str) -> int:
    """Hash a text to a seed of torch's generator."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # 63 bits: seeds are int64 elsewhere
