"""Curves of several seeds as one table."""

from __future__ import annotations

from math import nan
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
    import torch
    from torch.nn.functional import pad

    seeds = [result.pair.seed for result in results]
    counts = [len(result.curve_EM) for result in results]
    width = max(result.probes_ER.shape[1] for result in results)
    curves = []
    for result in results:
        lacking = width - result.probes_ER.shape[1]  # where a version had fewer probes
        curves.append(torch.cat([result.curve_EM, pad(result.probes_ER, (0, lacking), value=nan)], dim=1))

    evaluation = np.concatenate([np.arange(1, count + 1) for count in counts])
    who = {
        "configuration": configuration.key,
        "init_seed": np.repeat([seed.init_seed for seed in seeds], counts),
        "data_seed": np.repeat([seed.data_seed for seed in seeds], counts),
        "step": evaluation * configuration.recipe.eval_every,
    }
    names = (*MEASURES, *list(configuration.spec.probes())[:width])
    return pd.DataFrame(who | dict(zip(names, torch.cat(curves).numpy().T, strict=True)))
