"""The outbox: jobs in order, once, however long the server is away."""

import time
from itertools import pairwise
from unittest.mock import Mock

import pytest

from search.store.lease import Superseded
from tracking import outbox as module
from tracking.outbox import Outbox


class Server:
    """It is away while `silent`, and notes what was written."""

    def __init__(self):
        self.silent, self.written = False, []

    def answer(self):
        if self.silent:
            raise ConnectionError("nobody there\nat all")

    def write(self, what):
        self.answer()
        self.written.append(what)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.05)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def outbox(server):
    outbox = Outbox(server.answer)
    yield outbox
    outbox.close()
    assert not outbox.thread.is_alive()


def test_what_was_put_while_the_server_was_away_is_written_once_and_in_order(server, outbox, caplog):
    server.silent = True
    for n in range(5):
        outbox.put(server.write, n)
    assert outbox.drain(0.3, 0.3) == 5 and server.written == []
    server.silent = False
    assert outbox.drain(5, 5) == 0
    assert server.written == [0, 1, 2, 3, 4]
    assert [r.getMessage() for r in caplog.records] == [
        "MLflow is away (nobody there at all); training goes on, it is written later",
        "MLflow is back",
    ]


def test_of_jobs_that_write_the_same_the_last_is_done_once_after_all_that_wait(server, outbox):
    """Else a count of yesterday's rows would be written after the final one, and stay."""
    server.silent = True
    outbox.put(server.write, "in progress")
    outbox.put(server.write, "begun", key="configuration")
    outbox.put(server.write, "2 of 4", key="counts")
    outbox.put(server.write, "4 of 4", key="configuration")
    assert outbox.drain(0.1, 0.1) == 3
    server.silent = False
    assert outbox.drain(5, 5) == 0
    assert server.written == ["in progress", "2 of 4", "4 of 4"]


def test_what_is_put_while_its_like_is_being_done_is_done_after_it(server, outbox):
    def slowly():
        outbox.put(server.write, "later", key="same")
        server.write("now")

    outbox.put(slowly, key="same")
    assert outbox.drain(5, 5) == 0 and server.written == ["now", "later"]


def test_a_job_that_fails_while_the_server_answers_is_given_up_and_the_others_are_done(server, outbox, caplog):
    tries = []

    def wrong():
        tries.append(time.monotonic())
        raise ValueError("no such run")

    outbox.put(wrong)
    outbox.put(server.write, "next")
    assert outbox.drain(5, 5) == 1, "it is not written"
    assert len(tries) == module.TRIES and server.written == ["next"]
    assert min(after - before for before, after in pairwise(tries)) >= module.FIRST_PAUSE_S
    assert [r.getMessage() for r in caplog.records] == ["MLflow: no such run"]


def test_a_server_that_answers_again_is_back_though_a_job_fails(server, outbox, caplog):
    def wrong():
        server.answer()
        raise ValueError("no such run")

    server.silent = True
    outbox.put(wrong)
    assert outbox.drain(0.1, 0.1) == 1 and outbox.away
    server.silent = False
    assert outbox.drain(5, 5) == 1 and not outbox.away
    assert [r.getMessage() for r in caplog.records[1:]] == ["MLflow is back", "MLflow: no such run"]


@pytest.mark.parametrize("where", ["before a job", "in a job"])
def test_a_driver_that_was_superseded_writes_nothing_more(where, server):
    verified = []
    superseded = Mock(side_effect=Superseded("another driver has the study"))

    def verify():
        verified.append(0)
        if where == "before a job" and len(verified) > 1:
            superseded()

    outbox = Outbox(server.answer, verify)
    outbox.put(server.write, 1)
    if where == "in a job":
        outbox.put(superseded)
    outbox.put(server.write, 2)
    outbox.thread.join(10)
    assert not outbox.thread.is_alive() and server.written == [1]
