"""MLflow written from the ledger: whatever a store has not got, as an empty one, or one where runs were deleted."""

from collections.abc import Callable, Hashable
from typing import Any

from mlflow import MlflowClient

from search.errors import Failure
from search.run.projection import Jobs, Projection, write_study
from search.store.study_records import StudyRecords
from search.tracking.tracker import Tracker
from search.tracking.tracking import answered


class AtOnce:
    """In the place of an outbox: does each job when it is put. said: told of each."""

    def __init__(self, said: Callable[[], object] = lambda: None):
        self.said = said

    def put(self, call: Callable[..., Any], *args: Any, key: Hashable = None) -> None:
        call(*args)
        self.said()


def projection_of(records: StudyRecords, tracker: Tracker, outbox: Jobs) -> Projection:
    """Return what MLflow shows of a study of this kind."""
    kind = tracker.study.kind
    return Projection(records, tracker, outbox, write_study if kind.is_compared else kind.write_pages)


def sync(
    records: StudyRecords,
    client: MlflowClient,
    said: Callable[[], object] = lambda: None,
    only_stale: bool = False,
) -> int:
    """Write all that MLflow shows of a study. Return the number of its seeds.

    said: called after each step. only_stale: leave out configurations of which MLflow shows all.

    The caller has the study's lease. Raises Failure where the store does not answer, or the study was never begun.
    """
    study = records.get_recorded_study()
    if study is None:
        raise Failure(f"study {records.study} has no record of its file; run it again first")
    rows = records.list_seeds()
    with answered(client.tracking_uri):
        tracker = Tracker(client, records.home, study, records.lease.verify)
        projection = projection_of(records, tracker, AtOnce(said))
        if only_stale:
            projection.note_stale(rows)
            projection.note_study()
        else:
            projection.note_everything(rows)
    return len(rows)
