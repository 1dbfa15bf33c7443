"""A ledger that was restored from a copy: what MLflow has beyond it is taken back, and not trained again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from search.stats.counting import Row, seed_of
from search.store.record import is_final
from search.store.results import ConfigurationResults, Damaged, has_parts
from search.store.study_records import StudyRecords
from search.tracking.tracker import Tracker
from search.tracking.tracking import TRIALS, answered, artifact
from trainer import Seed

log = logging.getLogger(__name__)


def reconcile(records: StudyRecords, tracker: Tracker, rows: Iterable[Row]) -> set[str]:
    """Record the seeds that MLflow has results of and the ledger has none. Returns their configurations' keys.

    rows: the study's seeds. A part counts if its files have the digests that were written with them.
    """
    rows = list(rows)
    published = {(r["configuration"], r["trial"]) for r in rows if r["published"]}
    lacking = {(r["configuration"], r["trial"]) for r in rows if is_final(r) and not r["published"]}
    final: dict[str, set[Seed]] = {}
    for row in filter(is_final, rows):
        final.setdefault(row["configuration"], set()).add(seed_of(row))
    adopted: Counter[str] = Counter()
    with answered(tracker.unfenced.tracking_uri), TemporaryDirectory(prefix="adder-search-") as scratch:
        for key, run in tracker.list_doubtful({key: len(seeds) for key, seeds in final.items()}):
            for trial in tracker.list_parts(run):
                if (key, trial) in published or has_parts(records.trial_folder(trial)):
                    continue  # what is in its folder is recorded as after any death
                part = _part(records, tracker, run, trial, Path(scratch))
                if part is None or (part.configuration.key, part.trial.study) != (key, records.study):
                    continue
                new = part.by_seed.keys() - final.setdefault(key, set())
                if new or (key, trial) in lacking:
                    records.adopt(part, trial, new, (tracker.experiment, run))
                    final[key] |= new
                    adopted[key] += len(part.by_seed)
    if adopted:
        log.warning(
            "study %s: MLflow knows more than this ledger, as after one is restored from a copy: %d seeds of %d "
            "configurations are recorded again from there", records.study, adopted.total(), len(adopted),
        )  # fmt: skip
    return set(adopted)


def _part(
    records: StudyRecords, tracker: Tracker, run: str, trial: str, scratch: Path
) -> ConfigurationResults | None:
    """Return a part that MLflow has, or None if it cannot be read."""
    try:
        folder = artifact(tracker.unfenced, run, f"{TRIALS}/{trial}", scratch, records.home)
        return ConfigurationResults.read(folder) if folder else None
    except Damaged as error:
        log.warning("study %s: MLflow's results of trial %s are damaged: %s", records.study, trial, error)
        return None
