"""The atlas' effects once more, by a model without pairs, and what is left if effects and pairs are one family."""

from pathlib import Path

import numpy as np
import pandas as pd

from lab.interactions.model import Lattice, interactions, lattices
from lab.tables import markdown
from search.stats.intervals import discoveries
from search.stats.logistic import fit

HERE = Path(__file__).parent


def lattice() -> Lattice:
    parts = (pd.read_parquet(HERE / f"so-far-{part}.parquet") for part in ("configurations", "seeds"))
    (atlas,) = lattices(*(frame.astype(object).to_dict("records") for frame in parts))
    return atlas


def checked() -> str:
    """Return a line an effect: p with the pairs in the model, if it is left among all fitted, odds ratio without."""
    atlas = lattice()
    model = interactions(atlas)
    fitted = [e for e in (*model.effects, *model.pairs) if e.coefficient]
    left = discoveries([e.coefficient.p for e in fitted if e.coefficient])
    believed = {e.name for e, is_left in zip(fitted, left, strict=True) if is_left}
    design_CK = np.column_stack([np.ones(len(atlas.levels)), np.array(atlas.levels) - 0.5])
    alone = dict(zip(atlas.constraints, fit(design_CK, atlas.outcomes())[1:], strict=True))
    alone_left = dict(zip(alone, discoveries([c.p for c in alone.values()]), strict=True))
    lines = [
        (
            effect.name,
            f"{effect.coefficient.p:.2g}",
            "left" if effect.name in believed else "",
            "{:.2f} ({:.2f}–{:.2f})".format(*alone[effect.name].odds_ratio),
            "left" if alone_left[effect.name] else "",
        )
        for effect in model.effects
        if effect.coefficient and (effect.is_discovery or alone_left[effect.name])
    ]
    head = ("constraint", "p", f"of all {len(fitted)}", "odds × without pairs (95 %)", f"of {len(alone)}")
    return markdown(head, lines)


if __name__ == "__main__":
    print(checked())
