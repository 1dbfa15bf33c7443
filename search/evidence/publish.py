"""What a study says as a whole, written to its own run in MLflow when it ends: its table and its pictures."""

from __future__ import annotations

import tempfile
from pathlib import Path

from search.errors import UserError
from search.evidence.frames import read
from search.evidence.report import pictures
from search.evidence.table_text import made_from, written
from search.store.tracker import Tracker

EVIDENCE_TAG = "adder.evidence"
TABLES = {"md": "table.md", "html": "table.html", "csv": "table.csv"}


def log_evidence(tracker: Tracker, final: int) -> None:
    """The constraint table, where the study has one constraint with and without, and the main pictures.

    `final`: how many seeds have ended; with as many as last time there is nothing new to say.
    """
    client, run = tracker.client, tracker.own_run()
    if client.get_run(run).data.tags.get(EVIDENCE_TAG) == str(final):
        return
    _log(tracker, run)
    client.set_tag(run, EVIDENCE_TAG, str(final))


def _log(tracker: Tracker, run: str) -> None:
    study, client = tracker.study, tracker.client
    frames = [read(client, study.name, of) for of in ("configurations", "seeds", "curves")]
    if frames[1].empty:
        return
    with tempfile.TemporaryDirectory() as folder:
        pictures(study, frames[0], frames[1], frames[2], Path(folder))
        client.log_artifacts(run, folder, "pictures")
    try:
        table = made_from(frames[0])
    except UserError:
        return
    for style, name in TABLES.items():
        client.log_text(run, written(table, style), name)
