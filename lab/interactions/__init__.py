"""`adder-search table --interactions`: which constraints go together, by a model of recorded combinations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from search.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from search.analysis.frames import RecordSet


def answer(records: RecordSet, style: str) -> tuple[Callable[[], str], Callable[[], Figure], str]:
    """Return what writes the models of the recorded combinations, what draws the largest, and a summary."""
    from lab.interactions.model import interactions, lattices
    from lab.interactions.text import write_interactions

    configurations = records.configurations()
    models = [interactions(lattice) for lattice in lattices(configurations, records.seeds())]
    if not models:
        raise UserError(
            f"none of {len(configurations)} recorded configurations has others of its study that differ in two "
            "constraints and nothing else, with seeds recorded one by one; adder-search run atlas trains such"
        )

    def picture() -> Figure:
        from lab.interactions.plots import lattice_figure

        return lattice_figure(models[0])

    summary = f"{sum(len(model.effects) + len(model.pairs) for model in models)} effects and pairs"
    return lambda: write_interactions(models, style), picture, summary
