"""The atlas' effects and pairs as one family of tests, as its plan has them."""

from pathlib import Path

import pandas as pd

from lab.interactions.model import Interactions, interactions, lattices
from lab.tables import markdown
from reports.ratios import discoveries
from search.stats.record import SeedRecord

HERE = Path(__file__).parent


def model(study: str) -> Interactions:
    parts = (pd.read_parquet(HERE / f"{study}-{part}.parquet") for part in ("configurations", "seeds"))
    configurations, seeds = (frame.astype(object).to_dict("records") for frame in parts)
    (lattice,) = lattices(configurations, map(SeedRecord.of, seeds))
    return interactions(lattice)


def table(study: str, mains: bool = False) -> str:
    """Return the effects and pairs that are left at a false discovery rate of 5 % over all that were fitted.

    mains: every effect, and the pairs that are left.
    """
    atlas = model(study)
    fitted = [(e, e.coefficient) for e in (*atlas.effects, *atlas.pairs) if e.coefficient]
    kept = discoveries([coefficient.p for _, coefficient in fitted])
    lines = [
        (effect.name, "{:.2f} ({:.2f}–{:.2f})".format(*coefficient.odds_ratio), f"{coefficient.p:.1g}")
        for (effect, coefficient), is_left in zip(fitted, kept, strict=True)
        if is_left or (mains and effect in atlas.effects)
    ]
    return markdown(("constraint, or pair", "odds × (95 %)", "p"), lines)


def trained() -> str:
    """Return of how many combinations training groks, the finish alone does, and a decoded seed is verified."""
    frame, seeds = (pd.read_parquet(HERE / f"atlas-{part}.parquet") for part in ("configurations", "seeds"))
    grokked = seeds[seeds["outcome"] == "grokked"]
    by_training = grokked[grokked["grok_step"] < grokked["budget"]]["configuration"].nunique()
    by_finish = grokked["configuration"].nunique() - by_training
    tried = frame[frame["verify_tried"] > 0]
    counts = {
        "grok by training": by_training, "grok by the finish alone": by_finish,
        "decoded, up to three seeds each": len(tried), "of these verified": int((tried["verified"] > 0).sum()),
        "never decoded": len(frame) - len(tried),
    }  # fmt: skip
    return markdown(("combinations", f"of {len(frame)}"), list(counts.items()))


def left() -> str:
    return table("atlas")


def narrow() -> str:
    return table("atlas-170p", mains=True)


if __name__ == "__main__":
    print(left(), narrow(), sep="\n\n")
