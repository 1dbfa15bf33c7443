"""What `run` prints at its end and `status` prints of seeds, beyond their rates."""

from types import SimpleNamespace

import pytest

from search.cli import render
from search.run.driver import Ended
from search.stats.counting import overview
from search.store.home import Home
from search.study.file import load_study
from tests.unit.test_counting import CENSORED, FAILED, GIVEN_UP, GROKKED, rows
from trainer import Outcome

SOME = rows(FAILED, GROKKED, GIVEN_UP, GIVEN_UP)
SPARED = SOME + rows(FAILED, GROKKED, first=5, hopeless_step=24_000)
CUT = SOME + rows(CENSORED, Outcome.RUNNING, first=7)


def outputs(home, recorded, study="57p"):
    """The summary of a run, and the status, of some rows."""
    named = [{**row, "study": study} for row in recorded]
    records = SimpleNamespace(home=Home(home), list_configurations=dict)
    return render.summary(load_study(study), study, records, Ended(rows=named)), render.status(
        overview(named), []
    )


@pytest.mark.parametrize(
    ("recorded", "word", "line"),
    [
        (rows(FAILED, GROKKED), "given up", None),
        (SOME, "given up", "given up: 2 of 4"),
        (SPARED, "given up", "given up: 2 of 6; 2 more spared, to check the rule: 1 grokked"),
        (SOME, "have not ended", None),
        (CUT, "have not ended", "2 of 6 seeds have not ended. The first to end are given up or grok early"),
    ],
)
def test_both_say_what_biases_or_bounds_a_rate(recorded, word, line, tmp_path, monkeypatch):
    for text in outputs(tmp_path, recorded):
        lines = [row.strip(" (") for row in text.splitlines() if word in row and " seeds (" not in row]
        assert len(lines) == (line is not None) and all(row.startswith(line) for row in lines)


@pytest.mark.parametrize("exact", [None, 0.0, 0.25])
def test_an_exact_match_is_shown_where_it_is_known_and_nowhere_else(exact):
    """A seed's is recorded when its bank ends: before, or after Ctrl-C, it is not 0."""
    seeds = rows(CENSORED, Outcome.RUNNING, best_exact=exact, verified=None, verify_calls=0)
    text = render.status(overview(seeds), seeds)
    assert (
        text.count("best exact match 0.") == text.count(f"match {exact or 0:.4f}") == (exact is not None) * 3
    )
    assert "no seed has ended" in text and "decoded" not in text
    assert "the 10,010 were decoded once\n" in render.status(overview(rows(FAILED)), []) + "\n"


def test_a_study_that_stopped_says_what_never_began(tmp_path):
    summary, _ = outputs(tmp_path, rows(GROKKED, *[FAILED] * 13, first=777))
    assert "  2 of the first 16 seeds never began\n" in summary
    assert "never began" not in outputs(tmp_path, rows(GROKKED, *[FAILED] * 15, first=777))[0]
    assert "1 of 14 grokked, where it stopped: the first in the order of the file, which alone" in summary


def test_a_search_says_how_its_confirmation_went(tmp_path, monkeypatch):
    searched = [row for key in ("a", "b") for row in rows(FAILED, FAILED, configuration=key)]
    fresh = rows(GROKKED, GROKKED, first=9, configuration="b", confirmation=True)
    summary, _ = outputs(tmp_path, searched + fresh, "fade")
    assert (
        "confirmed b: 2 of 2 grokked: 100.0%" in summary and "fresh seeds (0 of 2 in the search)" in summary
    )
