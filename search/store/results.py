"""Curves of several seeds as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search.study.trial import Configuration
from trainer import MEASURES

if TYPE_CHECKING:
    import pandas as pd

    from trainer import Result


def curve_table(configuration: Configuration, results: list[Result]) -> pd.DataFrame:
    """Return one row per evaluation of a seed: configuration, init_seed, data_seed, step, MEASURES, probes."""
    import numpy as np
    import pandas as pd

    counts = [len(r.curve_EM) for r in results]
    curves = np.concatenate([r.curve_EM.numpy() for r in results])
    evaluation = np.concatenate([np.arange(1, count + 1) for count in counts])
    who = {
        "configuration": np.repeat(configuration.key, len(curves)),
        "init_seed": np.repeat([r.pair.seed.init_seed for r in results], counts),
        "data_seed": np.repeat([r.pair.seed.data_seed for r in results], counts),
        "step": evaluation * configuration.recipe.eval_every,
    }
    width = max(r.probes_ER.shape[1] for r in results)
    read = np.full((len(curves), width), np.nan, dtype=np.float32)
    ends = np.cumsum(counts)
    for r, end in zip(results, ends, strict=True) if width else ():
        read[end - len(r.curve_EM) : end, : r.probes_ER.shape[1]] = r.probes_ER.numpy()
    names = (*MEASURES, *list(configuration.spec.probes())[:width])
    return pd.DataFrame(who | dict(zip(names, (*curves.T, *read.T), strict=True)))
