"""`--notify`: who is told of a first grok and of the end; and that nothing which goes wrong there harms a run."""

import json
import logging
import time
from unittest.mock import MagicMock

import pytest

from search.run import notify
from search.run.driver import Driver
from search.run.entry import open_study, train
from search.run.notify import telling
from search.run.packing import Capacity
from tests.homes import MadeUp, driver_of, empty_home, study_of
from tests.processes import listening


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_command_reads_events_in_order_as_json(tmp_path):
    with telling(f"cat >> {tmp_path}/told; echo >> {tmp_path}/told") as tell:
        tell(event="first seed grokked", study="a'b; $(x)")
        tell(event="study ended", grokked=2)
    first = {"event": "first seed grokked", "study": "a'b; $(x)"}
    assert lines(tmp_path / "told") == [first, {"event": "study ended", "grokked": 2}]


@pytest.fixture
def server():
    """A webhook: what it was posted, and the status that it answers with."""
    posted, status = [], [200]

    def answer(request):
        body = request.rfile.read(int(request.headers["Content-Length"]))
        posted.append((request.headers["Content-Type"], json.loads(body)))
        return status[0]

    with listening(answer) as address:
        yield f"{address}/hook?token=hidden", posted, status


def test_a_webhook_gets_json_and_its_address_is_in_no_message(server, caplog):
    url, posted, status = server
    with telling(url) as tell:
        tell(event="study ended")
    status[0] = 500
    with telling(url) as tell:
        tell(event="again")
    assert posted == [("application/json", {"event": name}) for name in ("study ended", "again")]
    (line,) = caplog.messages
    assert "Internal Server Error" in line and "hidden" not in line and line.startswith("--notify: ")


@pytest.mark.parametrize(
    ("command", "says"),
    {
        "echo first >&2; echo no such room >&2; exit 3": "--notify: ended with 3: no such room",
        "no-such-command-here": "--notify: ended with 127",
        "sleep 60 & sleep 60": "--notify: has not ended in 0 s, and was killed",
        "http://127.0.0.1:1/": "--notify: the webhook did not take it: [Errno 111] Connection refused",
        "http://": "--notify: ",
        "http://me:secret/word@host/": "--notify: the webhook is no address",
        "true; exec <&-; true": "",
    }.items(),
)
def test_what_fails_or_hangs_is_one_line_and_takes_no_longer_than_it_may(command, says, monkeypatch, caplog):
    monkeypatch.setattr(notify, "LONGEST_S", 0.4)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING), telling(command) as tell:
        tell(event="study ended", filler="x" * 200_000)
    assert time.monotonic() - began < 5
    assert len(caplog.messages) == bool(says) and "".join(caplog.messages).startswith(says)
    assert "\n" not in "".join(caplog.messages)


@pytest.mark.parametrize("grokked", [(), (2, 3)])
def test_the_first_seed_that_groks_is_told_once(tmp_path, grokked):
    """Also when the study goes on with more seeds."""
    told = []
    for count, lucky in ((4, grokked), (6, (*grokked, 5))):
        with driver_of(empty_home(tmp_path), study_of(seeds={"first": 1, "count": count})) as driver:
            driver.tell = lambda **event: told.append(event)
            driver.run(MadeUp(Capacity(), lucky))
        assert told == [{"event": "first seed grokked", "study": "sweep"}] * bool(lucky)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("why", ["", "time limit"])
def test_the_end_of_a_run_is_told(tmp_path, monkeypatch, why):
    place = empty_home(tmp_path / "home")
    if why:
        monkeypatch.setattr(Driver, "is_done", False)
        monkeypatch.setattr(Driver, "_check_end", lambda self: self.stop(why))
    opened = open_study(study_of(), "sweep", place, print)
    command = f"cat >> {tmp_path}/told; echo >> {tmp_path}/told"
    train(opened, MagicMock(), lambda *given: MadeUp(Capacity(), (2,)), notify=command)
    *_, end = lines(tmp_path / "told")
    assert end["study"] == "sweep" and end["why"] == why and end["failed"] == 0
    assert end["event"] == ("study stopped" if why else "study ended")
    assert why or (end["seeds"], end["grokked"]) == (4, 1)
