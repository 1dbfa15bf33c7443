"""The doors to what MLflow shows: entry points of other packages, as in search/plugins.py."""

from collections.abc import Sequence
from typing import Any, Protocol

from model import Verification
from search.plugins import loaded

MODELS = "adder_search.models"
"""Writers of MLflow's models: NAME = module (`Models`)."""
PAGES = "adder_search.pages"
"""Pages with scripts that `ui` shows: NAME = module:function (`Page`)."""


class Models(Protocol):
    """Write what MLflow is to have of a study as its models. A package with these functions in adder_models.py has:

    [project.entry-points."adder_search.models"]
    models = "adder_models"
    """

    def write_seed(self, tracker: Any, run: Any, seed: Any, decoded: Verification) -> None:
        """Write what belongs to the run of a grokked seed, a `RecordedSeed`, beside its checkpoint."""

    def write_study(self, records: Any, tracker: Any, rows: Sequence[Any], configurations: Sequence[Any]) -> None:
        """Write what a study comes to. rows: its seeds; configurations: rows of the frame."""


class Page(Protocol):
    """Return a page whose scripts `ui` lets run, before its data are in it. A package adder_maps has:

    [project.entry-points."adder_search.pages"]
    map = "adder_maps:template"
    """

    def __call__(self) -> str: ...


def models() -> list[Models]:
    return list(loaded(MODELS).values())


def pages() -> list[Page]:
    return list(loaded(PAGES).values())
