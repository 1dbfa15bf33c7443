"""Mirrors: a study needs none, and another package's is told of all that MLflow is."""

import signal
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import search
from search.run import mirror, removal
from tests.homes import RIGHT, drive, empty_home, records_of, study_of

pytestmark = pytest.mark.usefixtures("here", "quick")
GROKKED = (2, 3)


class Board:
    """A mirror of another package, and what it is told."""

    name, pending, away = "the board", 0, False
    check = create = lambda self, home: None

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        if not name.startswith("note"):
            raise AttributeError(name)
        return lambda *given: self.told.append((name, *given))

    @contextmanager
    def show(self, study, records):
        self.told.append(("open", study.name))
        yield self

    def drain(self, longest_s, away_s, tick):
        return 2

    def close(self):
        self.told.append(("close",))

    def held(self, records):
        return SimpleNamespace(lines=["  board      3 cards"], delete=lambda: "the cards stay")


@pytest.fixture
def shown(monkeypatch):
    """Mirrors in the place of MLflow."""
    found = {}
    monkeypatch.setattr(mirror, "loaded", lambda group: found)
    return found


@pytest.fixture
def home(here):
    return empty_home(here / "home")


def test_a_study_needs_no_mirror(shown, home):
    """Its best seeds are decoded all the same."""
    drive(home, study_of(), GROKKED)
    rows = records_of(home).list_seeds()
    assert {row.seed.init_seed: row.verified for row in rows if row.has_grokked} == dict.fromkeys(GROKKED, RIGHT)
    assert removal.describe(records_of(home)).count("\n") == 3
    assert removal.delete(records_of(home)) == ""


def test_a_signal_ends_the_wait_for_a_mirror_and_the_study_has_ended(shown, home):
    shown["board"], asked = Board(), []

    def drain(longest_s, away_s, tick):
        asked.append(tick(1))
        signal.raise_signal(signal.SIGINT)
        asked.append(tick(1))
        return 2

    shown["board"].drain = drain
    ended = drive(home, study_of(), GROKKED)
    assert not ended.interrupted and ended.why == ""
    with pytest.raises(KeyboardInterrupt, match=r"^sweep: has ended$"):  # or a loop over studies would go on
        search.run(study_of(), home.path)
    assert asked == [False, True] * 2


def test_a_mirror_of_another_package_is_told(shown, home):
    shown["board"] = board = Board()
    drive(home, study_of(), GROKKED)
    told = [name for name, *_ in board.told]
    assert told[0] == "open" and told[-2:] == ["note_study", "close"]
    assert {"note_training", "note_counts", "note_curves"} <= set(told)
    (_, configuration, is_done), *others = [event for event in board.told if event[0] == "note_configuration"]
    assert is_done and not others and configuration.key in records_of(home).list_configurations()
    records = records_of(home)
    assert "  board      3 cards\n" in removal.describe(records) and removal.delete(records) == "the cards stay"
    assert records.list_seeds() == []
