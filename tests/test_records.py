"""What is said of the seeds that the hopeless rule called so."""

from types import SimpleNamespace

import pytest

from search import texts
from search.driver import Ended
from search.home import Home
from search.records import overview, summarise
from search.study_file import load_study
from trainer import Outcome


def row(seed, outcome=Outcome.FAILED, hopeless_step=None):
    return {
        "study": "57p",
        "confirmation": False,
        "configuration": "c",
        "trial": "t",
        "init_seed": seed,
        "data_seed": seed,
        "outcome": outcome,
        "reason": None,
        "steps": 60_000,
        "grok_step": 40_000 if outcome == Outcome.GROKKED else None,
        "held": False,
        "hopeless_step": hopeless_step,
        "best_exact": 0.5,
        "verify_calls": 0,
        "verified": None,
    }


NONE_HOPELESS = [row(1), row(2, Outcome.GROKKED)]
SOME = [*NONE_HOPELESS, row(3, Outcome.GIVEN_UP, 24_000), row(4, Outcome.GIVEN_UP, 24_000)]
SPARED = [*SOME, row(5, Outcome.FAILED, 24_000), row(6, Outcome.GROKKED, 30_000)]


@pytest.mark.parametrize(
    ("rows", "counts"), [(NONE_HOPELESS, (0, 0, 0)), (SOME, (2, 0, 0)), (SPARED, (2, 2, 1))]
)
def test_a_summary_counts_the_given_up_and_the_spared(rows, counts):
    found = summarise(rows)
    assert (found["given_up"], found["spared"], found["spared_grokked"]) == counts


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (NONE_HOPELESS, None),
        (SOME, "  given up: 2 of 4"),
        (SPARED, "  given up: 2 of 6; 2 more ran on: 1 grokked"),
    ],
)
def test_reports_say_what_became_of_the_spared(rows, line, tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "Ledger", lambda _: SimpleNamespace(rows=lambda _: rows))
    summary = texts.summary(load_study("57p"), "57p", Home(tmp_path), Ended())
    status = texts.status(overview(rows), [])
    for said in (summary, status):
        assert [s for s in said.splitlines() if "given up" in s] == ([] if line is None else [line])


def test_a_seed_that_was_given_up_is_listed_with_its_outcome():
    assert "given_up" in texts.status([], [row(3, Outcome.GIVEN_UP, 24_000)])
