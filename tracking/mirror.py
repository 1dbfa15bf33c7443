"""MLflow as a mirror of studies (search/run/mirror.py): the door `adder_search.mirrors` leads here."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from search.store.home import Home
from search.store.study_records import StudyRecords
from search.study.schema import Study
from tracking.outbox import Outbox
from tracking.projection import Projection, pages_of
from tracking.removal import Contents, contents
from tracking.store import connect, file_of
from tracking.tracker import Tracker

RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


class BackgroundProjection(Projection):
    """What MLflow shows of a study, written by a thread that training does not wait for."""

    name = "MLflow"

    def __init__(self, records: StudyRecords, tracker: Tracker, outbox: Outbox):
        super().__init__(records, tracker, outbox, pages_of(tracker.study))
        self.drain, self.close = outbox.drain, outbox.close
        self._outbox = outbox

    @property
    def pending(self) -> int:
        return len(self._outbox.jobs)

    @property
    def away(self) -> bool:
        return self._outbox.away


class MlflowMirror:
    """The MLflow store of a home, or the one of MLFLOW_TRACKING_URI."""

    def check(self, home: Home) -> None:
        if file_of(home.tracking_uri) is None:
            connect(home)

    def create(self, home: Home) -> None:
        connect(home, creates=True)

    def has(self, home: Home, study: str) -> bool:
        return connect(home).get_experiment_by_name(study) is not None

    @contextmanager
    def show(self, study: Study, records: StudyRecords) -> Iterator[BackgroundProjection]:
        client, verify = connect(records.home), records.lease.verify
        with ExitStack() as undo:
            # MLflow's own retries would create a run twice whose answer came late; the outbox looks first
            undo.callback(os.environ.__setitem__, RETRIES, os.environ.get(RETRIES, "2"))
            os.environ[RETRIES] = "0"
            tracker = Tracker(client, records.home, study, verify, records)
            undo.enter_context(tracker.watching())  # before the outbox: one thread at a time uses the tracker
            file = file_of(client.tracking_uri)
            name = f"MLflow ({file})" if file else "MLflow"
            outbox = Outbox(lambda: client.search_experiments(max_results=1), verify, name=name)
            undo.callback(outbox.close)
            projection = BackgroundProjection(records, tracker, outbox)
            projection.note_stale(records.list_seeds())
            yield projection

    def held(self, records: StudyRecords) -> Contents:
        return contents(records)


MLFLOW = MlflowMirror()
