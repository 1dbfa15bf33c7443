"""A home on a disk that is full for a while: nothing is lost, and the next run writes what is missing."""

import contextlib
import os
import re
import subprocess
import threading

import pytest

from search.store import database
from search.store.study_records import StudyRecords
from tests import by_tier
from tests.homes import drive, empty_home, forget_places, records_of, study_of, thetas
from tests.scenarios.test_cut_off import facts
from tracking import outbox

GROKKED = (2,)
STUDY = study_of(resources={"slots": 2}, seeds={"first": 1, "count": 4})


@contextlib.contextmanager
def small_disk(folder, megabytes=2):
    """A file system of so many MB. Root alone may mount one."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder]
    if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(path):
    """Take all the room that is left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1_000))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("moment", by_tier(["begun", "recorded", "publishing", "done"], ["publishing"]))
def test_a_home_without_room_for_a_while(moment, tmp_path, monkeypatch, caplog):
    """Before the first seed is claimed; when the ledger has it and MLflow has not; when MLflow is
    written; at the conclusion.
    """
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(database, "RETRY_S", 0.1)
    whole, record, update = empty_home(tmp_path / "whole"), StudyRecords.record, StudyRecords.update_run
    drive(whole, STUDY, GROKKED)
    with small_disk(tmp_path / "small", 8) as disk:
        home, filler, moments = empty_home(disk), disk / "filler", iter(("begun", "", "told", "done"))
        drivers, once = [], iter([True])

        def recorded(records, *given, **more):
            record(records, *given, **more)
            ended = [row.is_final for row in records.list_seeds()]
            if moment == "recorded" and ended == [True] * 4:  # the second report: counts are due
                drivers[0].shown[0].drain(60, 60)  # or what it frees meanwhile is room
                fill(filler)

        def publishing(records, *given):
            if moment == "publishing" and next(once, False):
                fill(filler)
            update(records, *given)

        def seen(driver):
            drivers.append(driver)
            if (now := next(moments)) == moment:
                fill(filler)
                threading.Timer(1, filler.unlink).start()
            if now == "told" and moment in ("recorded", "publishing"):
                driver.shown[0].drain(60, 60, tick=lambda left: "disk is full" in caplog.text)
                filler.unlink()

        with monkeypatch.context() as patch:
            patch.setattr(StudyRecords, "record", recorded)
            patch.setattr(StudyRecords, "update_run", publishing)
            drive(home, STUDY, GROKKED, seen=seen)
        (line, *_) = [text for text in caplog.messages if "disk is full" in text]
        assert str(home.path) in line and not {"Traceback", "sqlite3", "SQL", "autoflush"} & set(
            re.findall(r"\w+", caplog.text)
        )
        rows = records_of(home).list_seeds()
        assert len(rows) == 4 and all(row.is_final for row in rows), "what is trained is recorded when there is room"
        forget_places()
        drive(home, STUDY, GROKKED)
        assert facts(home) == facts(whole) and thetas(home.path) == thetas(whole.path)
