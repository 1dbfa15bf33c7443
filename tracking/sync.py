"""MLflow written from the ledger: whatever a store has not got, as an empty one, or one where runs were deleted."""

from collections.abc import Callable, Hashable
from typing import Any

from mlflow import MlflowClient

from search.errors import Failure
from search.store.study_records import StudyRecords
from tracking.projection import Projection, pages_of
from tracking.store import answered
from tracking.tracker import Tracker


class AtOnce:
    """In the place of an outbox: does each job when it is put. said: told of each."""

    def __init__(self, said: Callable[[], object] = lambda: None):
        self.said = said

    def put(self, call: Callable[..., Any], *args: Any, key: Hashable = None) -> None:
        call(*args)
        self.said()


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
        tracker = Tracker(client, records.home, study, records.lease.verify, records)
        projection = Projection(records, tracker, AtOnce(said), pages_of(study))
        if only_stale:
            projection.note_stale(rows)
            projection.note_study()
        else:
            projection.note_everything(rows)
    return len(rows)
