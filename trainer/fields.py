"""Groups of fields of a recipe, one dataclass each.

A group is a frozen dataclass in its own file, and `Recipe` inherits them all: new fields are a new file.
Without torch, so that a recipe can be checked at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from model.fields import ON, check, check_combination, option

if TYPE_CHECKING:
    from model.layout import Layout

PAPER = "57p paper, sections 3.2 to 3.5"
WARLOCKEE = "warlockee/AdderBoard, train.py"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Fields made by `model.fields.option`, each with its meaning, bounds and source.

    A field that shapes the compiled program says so by `shapes` (its value does) or by `switch` (whether it
    differs from its default does). Lists of a file become tuples, of tuples where they are lists of lists.

    Two static methods of a group, where it has them, raise ValueError of one line: `validate(recipe)` where fields
    contradict one another or other groups', `validate_names(recipe, layout)` where they name something that θ does not
    have.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, tuple) and isinstance(value, list | tuple):
                if len(value) > (limit := field.metadata["max_length"]):
                    raise ValueError(
                        f"{field.name} must have at most {limit} {field.metadata['entries']}, got {len(value)}"
                    )
                # Frozen, but still being made; tuples, so that a recipe can be hashed.
                object.__setattr__(self, field.name, _tuples(value))
        check(self)
        check_combination(self)
        self._call("validate")

    def check_names(self, layout: Layout) -> None:
        """Raise ValueError where a group names something that θ does not have."""
        self._call("validate_names", layout)

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a static method of each group that has it, from the first group to the last."""
        for group in reversed(type(self).__mro__):
            if name in vars(group):  # its own, and not one that it inherits: each is called once
                getattr(group, name)(self, *arguments)


def entry_indices(layout: Layout, says: str, names: Iterable[str]) -> list[int]:
    """Return the places in θ of the entries or tensors in `names`.

    Raises ValueError, which begins with `says`, for a name that θ does not have.
    """
    try:
        return [place for name in names for place in layout.places(name)]
    except ValueError as error:
        raise ValueError(f"{says} entries or tensors of θ: {error}") from None


def dependent_option(of: str, default: Any, says: str, **meta: Any) -> Any:
    """Declare a field that means nothing unless another one is on.

    of: the other's name, or `name=value`. default, says, meta: as for `option`.
    """
    name, _, value = of.partition("=")
    return option(default, says, off=default, needs={name: value or ON}, **meta)


def _tuples(value: Any) -> tuple[Any, ...]:
    return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in value)
