"""A seed that has ended, as its worker reports it and as the ledger keeps it.

Axes: P parameters of the configuration's spec, E evaluation, M measure, R probe.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from search.stats.record import MEASURED
from trainer import Outcome

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainer import Result

    Floats = NDArray[np.float32]
FLOAT = "<f4"
"""Numbers of θ and curves in the ledger: float32, little-endian."""
LEVEL = 1
"""Of zlib: higher levels make curves hardly smaller."""


@dataclass(frozen=True)
class EndedSeed:
    """What became of a seed. `measured`: the columns MEASURED; θ is in the configuration's own numbers."""

    outcome: Outcome
    measured: Mapping[str, Any]
    theta_P: Floats
    curve_EM: Floats
    probes_ER: Floats

    @classmethod
    def of(cls, result: Result) -> Self:
        """Take from a result what the driver does not know. Its tensors may be views of a whole bank's."""
        import numpy as np

        tensors = (result.theta_P, result.curve_EM, result.probes_ER)
        measured = {name: getattr(result, name) for name in MEASURED}
        return cls(Outcome(result.outcome), measured, *(t.numpy().astype(np.float32) for t in tensors))

    def blobs(self) -> dict[str, Any]:
        """Return the ledger's columns of θ and curve.

        A curve is written column by column, compressed: numbers of one measure resemble each other.
        """
        import numpy as np

        has_probes = len(self.probes_ER) == len(self.curve_EM)
        readings = np.hstack([self.curve_EM, self.probes_ER]) if has_probes else self.curve_EM
        theta = self.theta_P.astype(FLOAT).tobytes()
        curve = zlib.compress(readings.astype(FLOAT).tobytes("F"), LEVEL)
        return {
            "theta": theta,
            "curve": curve,
            "evaluations": len(readings),
            "crc": crc_of(theta, curve),
        }


def crc_of(theta: bytes, curve: bytes) -> int:
    return zlib.crc32(curve, zlib.crc32(theta))


@dataclass(frozen=True)
class TrainedBy:
    """The bank that trained seeds: its speed, of all slots together, and its code, versions and hardware."""

    seed_steps_per_s: float
    environment: Mapping[str, Any]

    def columns(self, seed: EndedSeed) -> dict[str, Any]:
        """Return the ledger's columns of what became of a seed."""
        rate, environment = self.seed_steps_per_s, self.environment
        threads = environment.get("threads", 1) if environment.get("engine") == "native" else None
        return {
            **seed.measured,
            "outcome": seed.outcome.value,
            # None unless the C++ engine trained it
            "core_s": seed.measured["steps"] / rate * threads if rate and threads else None,
            "seed_steps_per_s": rate,
            "environment": dict(environment),
        }
