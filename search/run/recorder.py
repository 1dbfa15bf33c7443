"""The way of a trial's results: from its worker's folder to the ledger, then to MLflow; then the folder goes.

Each step can be repeated: a driver that dies in between leaves the rest to the next one. A ledger that was restored
from a copy takes back what MLflow has beyond it.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from search.analysis.publish import conclude, publish
from search.run.messages import EndedSeed
from search.run.study_run import PlannedPair
from search.stats.counting import Row, seed_of
from search.store.record import SeedKey, is_final
from search.store.results import ConfigurationResults, Damaged, has_parts, read_parts, set_aside, write_parts
from search.store.study_records import StudyRecords
from search.study.trial import Configuration, Trial
from search.tracking.artifacts import ArtifactCache
from search.tracking.outbox import Outbox
from search.tracking.tracker import Tracker
from search.tracking.tracking import FINISHED, TRIALS, answered, artifact
from trainer import Seed

log = logging.getLogger(__name__)


@dataclass
class Recorder:
    """Records the results of a study whose lease is held. The outbox writes to MLflow in its own time."""

    records: StudyRecords
    tracker: Tracker
    outbox: Outbox
    artifacts: ArtifactCache

    def recover(self, rows: Iterable[Row]) -> set[str]:
        """Record the results that an earlier run left, and publish what MLflow lacks.

        rows: the study's seeds. Returns the keys of the configurations that have such results.
        """
        recovered: set[str] = set()
        for key in sorted({r["trial"] for r in rows if not r["published"]}):
            folder = self.records.trial_folder(key)
            try:
                if has_parts(folder):
                    parts, trial = read_parts(folder), Trial.read(folder)
                    recovered |= {c.key for c in trial.configurations}
                    self.records.record(parts)
                    self.outbox.put(self._publish, trial)
                elif any(map(is_final, self.records.list_seeds(trial=key))):
                    raise Damaged(f"there are no results in {folder} any more")
            except Damaged as error:
                self.set_aside(key, str(error))
        return recovered

    def record(
        self,
        ended: Sequence[tuple[PlannedPair, EndedSeed]],
        cut: Mapping[SeedKey, int],
        states: Mapping[SeedKey, bytes],
        about: Mapping[str, Any],
    ) -> None:
        """Write what one report says to the ledger, and put the publication of results into the outbox.

        ended: pairs with what became of them. cut, states: as `StudyRecords.record` has them. about: the bank's
        environment and speed.
        """
        parts = self._parts(ended, about)
        for part in parts:
            folder = self.records.trial_folder(part.trial.key)
            shutil.rmtree(folder, ignore_errors=True)  # of a report that could not be recorded
            write_parts(folder, [part])
        self.records.record(parts, cut, states)
        for part in parts:
            self.artifacts.put(part.trial.key, part)
            self.outbox.put(self._publish, part.trial)

    def _parts(
        self, ended: Sequence[tuple[PlannedPair, EndedSeed]], about: Mapping[str, Any]
    ) -> list[ConfigurationResults]:
        groups: dict[tuple[str, bool], list[tuple[PlannedPair, EndedSeed]]] = {}
        for pair, seed in ended:
            groups.setdefault((pair.configuration.key, pair.confirmation), []).append((pair, seed))
        parts, study = [], self.tracker.study
        for (_, confirmation), group in groups.items():
            work = tuple((pair.configuration, pair.seed) for pair, _ in group)
            trial = Trial(self.records.study, work, 1, study.resources, study.stop, confirmation)
            results = [seed.result(pair.configuration.pair(pair.seed)) for pair, seed in group]
            parts.append(ConfigurationResults(trial, results, dict(about)))
        return parts

    def set_aside(self, key: str, reason: str) -> None:
        """Reopen the seeds of a trial whose results are damaged, and move what is left of them aside."""
        folder = self.records.trial_folder(key)
        where = ""
        if has_parts(folder):
            aside = set_aside(folder, self.records.home.damaged(self.records.study, key), reason)
            where = f"; they are kept in {aside}"
        log.warning("study %s: %s%s; their seeds are trained again", self.records.study, reason, where)
        self.records.reopen(key, reason)

    def _publish(self, trial: Trial) -> None:
        folder = self.records.trial_folder(trial.key)
        if has_parts(folder):  # or it was done, and was cut off afterwards
            publish(self.records, self.tracker, trial, folder)
            shutil.rmtree(folder, ignore_errors=True)

    def conclude(self, configuration: Configuration, status: str = FINISHED) -> None:
        """Put a configuration's summary, picture, best checkpoint and child runs into the outbox."""
        self.outbox.put(conclude, self.records, self.tracker, self.artifacts, configuration, status)


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


def _part(records: StudyRecords, tracker: Tracker, run: str, trial: str, scratch: Path) -> ConfigurationResults | None:
    """Return a part that MLflow has, or None if it cannot be read."""
    try:
        folder = artifact(tracker.unfenced, run, f"{TRIALS}/{trial}", scratch, records.home)
        return ConfigurationResults.read(folder) if folder else None
    except Damaged as error:
        log.warning("study %s: MLflow's results of trial %s are damaged: %s", records.study, trial, error)
        return None
