"""Keys of a study file that packages add: sections under which they propose configurations while a study runs."""

from typing import Any, Protocol, cast

from search.plugins import PROPOSERS, loaded
from search.study.space import Strict


class Proposing(Strict):
    """The section of a proposer's key, a subclass of this: its fields, and what a study is with it."""

    @property
    def planned(self) -> int:
        """Number of configurations that are proposed at most."""
        raise NotImplementedError

    @property
    def round_size(self) -> int:
        """Number of configurations that are proposed at once."""
        raise NotImplementedError

    def check(self, study: Any) -> None:
        """Raise ValueError at the key path of what does not go with it in a study (search/study/space.py)."""

    def recipe_defaults(self, steps: int) -> dict[str, Any]:
        """Return the fields of a recipe of so many steps that have other defaults than those of other studies."""
        return {}


class ProposerKey(Protocol):
    """The key of a proposer: its section, and its line of `adder-search keys`."""

    section: type[Proposing]
    description: str


def proposer_keys() -> dict[str, ProposerKey]:
    """Return what packages add to the keys of a study file, by key."""
    return cast(dict[str, ProposerKey], loaded(PROPOSERS))
