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

    seeds = [result.pair.seed for result in results]
    counts = [len(result.curve_EM) for result in results]
    curves = np.concatenate([result.curve_EM.numpy() for result in results])
    evaluation = np.concatenate([np.arange(1, count + 1) for count in counts])
    who = {
        "configuration": np.repeat(configuration.key, len(curves)),
        "init_seed": np.repeat([seed.init_seed for seed in seeds], counts),
        "data_seed": np.repeat([seed.data_seed for seed in seeds], counts),
        "step": evaluation * configuration.recipe.eval_every,
    }

    width = max(result.probes_ER.shape[1] for result in results)
    read = np.full((len(curves), width), np.nan, dtype=np.float32)
    if width:
        for result, end in zip(results, np.cumsum(counts), strict=True):
            read[end - len(result.curve_EM) : end, : result.probes_ER.shape[1]] = result.probes_ER.numpy()

    names = (*MEASURES, *list(configuration.spec.probes())[:width])
    columns = zip(names, (*curves.T, *read.T), strict=True)
    return pd.DataFrame(who | dict(columns))
