"""One recorded seed: its row of the ledger with θ and curve; and these two as the ledger's bytes.

Axes: P parameters of the configuration's spec, E evaluation, M measure, R probe.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from search.stats.record import MEASURED, SeedRecord
from search.store.ended_seed import FLOAT, crc_of
from search.study.start import ANY
from search.study.trial import Configuration
from trainer import MEASURES, Outcome

if TYPE_CHECKING:
    from trainer import Result
    from trainer.checkpoints.checkpoint import Checkpoint

NUMBER_BYTES = 4
Values = Mapping[str, Any]


@dataclass(frozen=True)
class RecordedSeed:
    """One seed with its θ and curve."""

    study: str
    configuration: Configuration
    result: Result
    environment: dict[str, Any]

    def checkpoint(self) -> Checkpoint:
        """Return its best θ as a checkpoint with its provenance."""
        from trainer.checkpoints.checkpoint import Checkpoint

        result, seed = self.result, self.result.pair.seed
        measures = ("grok_step", "held", "best_exact", "best_token")
        metrics = {name: getattr(result, name) for name in measures}
        return Checkpoint(
            spec=self.configuration.spec,
            theta_P=result.theta_P,
            recipe=self.configuration.recipe.as_dict(),
            seed={"init_seed": seed.init_seed, "data_seed": seed.data_seed},
            step=result.best_step,
            metrics={"outcome": result.outcome.value, **metrics},
            provenance={
                "trained": "from scratch",
                "study": self.study,
                "configuration": self.configuration.key,
                "environment": self.environment,
                **self._origin(),
            },
            code=self.environment["code"],
        )

    def _origin(self) -> dict[str, Any]:
        """Return the θ at which it started, if not at its own initial values, and the steps that led there."""
        start = self.configuration.start
        if start is None:
            return {}

        theta = start.theta_of(self.result.pair.seed)
        origin = {"spec": start.spec.as_dict(), "theta": theta and list(theta)}
        if theta is None:
            return {"start": origin}

        *before, last = start.lineage
        parent = dict(last)
        if ANY not in start.thetas:  # each seed has a θ of its own, and one lineage for all (search/store/starts.py)
            parent["seed"] = str(self.result.pair.seed)
        return {"trained": "from a parent", "start": origin, "lineage": [*before, parent]}


def from_blobs(configuration: Configuration, record: SeedRecord, blobs: Values) -> RecordedSeed:
    """Return a recorded seed. blobs: the columns of `EndedSeed.blobs`, and environment.

    Raises ValueError, or zlib.error, for θ or a curve that is not what was written.
    """
    import numpy as np
    import torch

    from trainer import Result

    theta, count = blobs["theta"], blobs["evaluations"]
    if crc_of(theta, blobs["curve"]) != blobs["crc"]:
        raise ValueError("its bytes are not those that were written")

    # Sizes are checked before anything of them is made: the ledger may be a stranger's, with a checksum of its own.
    spec, recipe = configuration.spec, configuration.recipe
    # A seed that goes through stages may pass its budget: it is looked at between trainings.
    most = max(recipe.steps, record.steps) if recipe.stages else recipe.steps
    if len(theta) != NUMBER_BYTES * spec.params or not 0 <= count <= most // recipe.eval_every:
        raise ValueError("it is of another size")

    measures = len(MEASURES)
    probes = max(len(list(each.probes())) for each in (spec, configuration.trained))
    longest = NUMBER_BYTES * count * (measures + probes)
    curve = zlib.decompressobj().decompress(blobs["curve"], longest + 1)  # a few bytes may unpack to gigabytes
    width = len(curve) // NUMBER_BYTES // count if count else measures
    if len(curve) != NUMBER_BYTES * count * width or not measures <= width <= measures + probes:
        raise ValueError("its curve is of another size")

    columns = np.frombuffer(curve, FLOAT).reshape(width, count)
    readings = torch.from_numpy(columns.T.astype(np.float32, order="C"))
    curve_EM, probes_ER = readings.split([measures, width - measures], dim=1)
    result = Result(
        pair=configuration.pair(record.seed),
        outcome=Outcome(record.outcome),
        theta_P=torch.from_numpy(np.frombuffer(theta, FLOAT).astype(np.float32)),
        curve_EM=curve_EM,
        probes_ER=probes_ER,
        **{name: record[name] for name in MEASURED},
    )
    return RecordedSeed(record.study, configuration, result, blobs["environment"] or {})
