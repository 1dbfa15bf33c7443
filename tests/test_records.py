"""What is said of the seeds that the hopeless rule called so."""

from types import SimpleNamespace

import pytest

from search.cli import texts
from search.run.driver import Ended
from search.stats.counting import ENOUGH, counted, overview, summarise
from search.store.home import Home
from search.study.file import load_study
from trainer import Outcome, Seed


def row(seed, outcome=Outcome.FAILED, hopeless_step=None):
    return {
        "study": "57p", "confirmation": False, "configuration": "c", "trial": "t", "init_seed": seed,
        "data_seed": seed, "outcome": outcome, "reason": None, "steps": 60_000,
        "grok_step": 40_000 if outcome == Outcome.GROKKED else None, "held": False,
        "hopeless_step": hopeless_step, "best_exact": 0.5, "verify_calls": 0, "verified": None,
    }  # fmt: skip


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


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (SOME, None),
        ([row(1, Outcome.CENSORED), row(2, Outcome.RUNNING)], None),
        ([*SOME, row(7, Outcome.CENSORED) | {"reason": ENOUGH}], None),
        (
            [*SOME, row(7, Outcome.CENSORED), row(8, Outcome.RUNNING)],
            "2 of 6 seeds have not ended. Trials end",
        ),
    ],
)
def test_a_rate_of_a_study_that_was_stopped_is_said_to_be_biased(rows, said, tmp_path, monkeypatch):
    """Trials of seeds that were given up end first: what is counted is no random part of what was begun."""
    monkeypatch.setattr(texts, "Ledger", lambda _: SimpleNamespace(rows=lambda _: rows))
    summary = texts.summary(load_study("57p"), "57p", Home(tmp_path), Ended(interrupted=True))
    for text in (summary, texts.status(overview(rows), [])):
        found = [line.strip(" (") for line in text.splitlines() if "have not ended" in line]
        assert len(found) == (said is not None) and all(f.startswith(said) and "biased" in f for f in found)


def test_a_seed_that_was_given_up_is_listed_with_its_outcome():
    assert "given_up" in texts.status([], [row(3, Outcome.GIVEN_UP, 24_000)])


def test_what_is_counted_tells_the_confirmation_from_the_search():
    fresh = [row(n, o) | {"confirmation": True} for n, o in ((11, Outcome.GROKKED), (12, Outcome.GIVEN_UP))]
    found = counted([*SPARED, *fresh, row(13, Outcome.CENSORED)])
    counts = {k: found[k] for k in ("seeds", "grokked", "failed", "given_up", "censored")}
    assert counts == {"seeds": 8, "grokked": 3, "failed": 2, "given_up": 3, "censored": 1}
    confirmed = [found[f"confirmation_{k}"] for k in ("grokked", "seeds", "given_up")]
    assert confirmed == [1, 2, 1] and found["median_grok_step"] == 40_000
    assert "median_grok_step" not in counted([row(1)])


@pytest.mark.parametrize("seed", [Seed.of(777), Seed(777, 804)])
def test_a_seeds_name_is_read_back(seed):
    assert Seed.named(str(seed)) == seed


@pytest.mark.parametrize("name", ["", "x", "-1", "1.2.3", "1.", ".1", "٣"])
def test_what_is_no_seed_is_refused(name):
    with pytest.raises(ValueError, match="a seed is a number, or two with a dot between them"):
        Seed.named(name)


def test_a_search_says_how_its_confirmation_went(tmp_path, monkeypatch):
    rows = [row(n) | {"configuration": c} for c in ("a", "b") for n in (1, 2)]
    rows += [row(n, Outcome.GROKKED) | {"configuration": "b", "confirmation": True} for n in (9, 10)]
    monkeypatch.setattr(texts, "Ledger", lambda _: SimpleNamespace(rows=lambda _: rows))
    said = texts.summary(load_study("fade"), "fade", Home(tmp_path), Ended())
    assert "confirmed b: 2 of 2 grokked: 100.0%" in said and "fresh seeds (0 of 2 in the search)" in said
