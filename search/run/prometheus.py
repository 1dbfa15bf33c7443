"""Metrics of a running study for Prometheus, by Ray's exporter on the driver's node.

The driver gives the values (`Driver.measures`), by the names in MEASURES. deploy/grafana draws them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EVERY_S = 5.0
"""Seconds between values that are handed to Ray, which passes them on every 10 s by default."""
PREFIX, STUDY = "adder_search_", "study"
COUNTER, GAUGE = "counter", "gauge"


@dataclass(frozen=True)
class Measure:
    """kind: COUNTER, which only grows while a driver runs, or GAUGE. label: tells values apart, beside the study."""

    kind: str
    about: str
    label: str = ""


MEASURES = {
    "seeds_ended": Measure(COUNTER, "seeds that have ended in this run", "outcome"),
    "seeds_open": Measure(GAUGE, "seeds that train, wait for a slot, or are planned", "state"),
    "seed_steps_per_s": Measure(GAUGE, "seed-steps a second of all workers, as they last said"),
    "workers": Measure(GAUGE, "workers that train, or wait for work", "state"),
    "workers_failed": Measure(COUNTER, "workers that failed for good in this run, or could not begin"),
    "outbox_jobs": Measure(GAUGE, "what is still to be written to MLflow; unit: calls"),
    "mlflow_away": Measure(GAUGE, "1 while MLflow does not answer"),
    "reports": Measure(COUNTER, "reports of workers that the driver has taken"),
    "driver_cpu_s": Measure(COUNTER, "the driver's processor time, its outbox included; unit: seconds"),
}
"""By their names without prefix."""

Values = Mapping[str, float | Mapping[str, float]]
"""By the names of MEASURES: a number, or one for each value of the measure's label."""


@dataclass
class Metrics:
    """One study's values, handed to Ray, which must have been started."""

    study: str
    shown: float = float("-inf")
    meters: dict[str, Any] = field(default_factory=dict)
    totals: dict[tuple[str, str], float] = field(default_factory=dict)
    """Counters as Ray has them, by name and label."""

    def due(self) -> bool:
        return time.monotonic() - self.shown >= EVERY_S

    def show(self, values: Values) -> None:
        self.shown = time.monotonic()
        for name, value in values.items():
            by_label = value if isinstance(value, Mapping) else {"": value}
            for label_value, number in by_label.items():
                self._set(name, label_value, float(number))

    def _set(self, name: str, label_value: str, number: float) -> None:
        measure, tags = MEASURES[name], {STUDY: self.study}
        if measure.label:
            tags[measure.label] = label_value
        if measure.kind == GAUGE:
            self._ray(name).set(number, tags=tags)
            return

        # Ray's counters take what is added; the driver's values are totals.
        place = (name, label_value)
        more = number - self.totals.get(place, 0.0)
        if more > 0:
            self._ray(name).inc(more, tags=tags)
            self.totals[place] = number

    def _ray(self, name: str) -> Any:
        from ray.util.metrics import Counter, Gauge  # a record is read without Ray

        if name not in self.meters:
            measure = MEASURES[name]
            kind = Counter if measure.kind == COUNTER else Gauge
            keys = (STUDY, measure.label) if measure.label else (STUDY,)
            self.meters[name] = kind(PREFIX + name, description=measure.about, tag_keys=keys)
        return self.meters[name]
