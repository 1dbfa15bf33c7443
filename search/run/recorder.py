"""The way of a trial's results: from its worker's folder to the ledger; then the folder goes.

Each step can be repeated: a driver that dies in between leaves the rest to the next one.
"""

import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass

from search.stats.counting import ENOUGH, Row
from search.store.record import is_final
from search.store.results import PARTS, ConfigurationResults, Damaged, has_parts, read_cut, read_parts, set_aside
from search.store.study_records import StudyRecords
from search.study.trial import Trial

log = logging.getLogger(__name__)


@dataclass
class Recorder:
    """Records the results of a study whose lease is held."""

    records: StudyRecords

    def recover(self, rows: Iterable[Row]) -> None:
        """Record the results that an earlier run left. rows: the study's seeds."""
        for key in sorted({row["trial"] for row in rows if not is_final(row)}):
            folder = self.records.trial_folder(key)
            try:
                if self.records.home.depot.get_folder(folder / PARTS):
                    parts = read_parts(folder)  # before the trial, which may be damaged
                    self.record(Trial.read(folder), parts)
            except Damaged as error:
                self.set_aside(key, str(error))

    def has_results(self, trial: Trial) -> bool:
        """Return whether a trial's results can be seen here; from a depot they are fetched."""
        return self.records.home.depot.get_folder(self.records.trial_folder(trial.key) / PARTS)

    def parts(self, trial: Trial) -> list[ConfigurationResults]:
        """Return the results of a trial that has ended. Raises Damaged."""
        return read_parts(self.records.trial_folder(trial.key))

    def record(self, trial: Trial, parts: list[ConfigurationResults]) -> None:
        """Write a trial's results to the ledger, after which nothing needs its folder."""
        folder = self.records.trial_folder(trial.key)
        self.records.record(*parts)
        if cut := read_cut(folder):
            self.records.censor([trial], ENOUGH, cut)
            self.records.delete_unstarted(trial)
        shutil.rmtree(folder, ignore_errors=True)
        self.records.home.depot.remove(folder)

    def set_aside(self, key: str, reason: str) -> None:
        """Move a trial's damaged results aside: its seeds are trained again."""
        folder = self.records.trial_folder(key)
        where = ""
        if has_parts(folder):
            aside = set_aside(folder, self.records.home.damaged(self.records.study, key), reason)
            where = f"; they are kept in {aside}"
            self.records.home.depot.remove(folder / PARTS)
        log.warning("study %s: %s%s; their seeds are trained again", self.records.study, reason, where)
