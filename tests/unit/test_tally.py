"""What a worker says of a trial's seeds: all that a driver asks of them, and little of many."""

import json

from search.run.tally import TrialReport


def row(number, outcome="running", step=10, grok_step=None, key="a", exact=0.0):
    return {
        "configuration": key, "seed": (number, number), "outcome": outcome, "step": step, "budget": 100,
        "grok_step": grok_step, "best_exact": exact, "loss": 1.0,
    }  # fmt: skip


ROWS = [
    row(1, "grokked", 70, 40, exact=1.0),
    row(2, grok_step=5, exact=1.0),
    row(3),
    row(4, key="b", grok_step=9, exact=1.0),
    row(5, "given_up", 30, exact=0.5),
    row(6, "queued", 0),
    row(7, "queued", 0),
]


def test_it_has_what_the_rows_have():
    tally = TrialReport.of(ROWS)
    assert tally.states == {"grokked": 1, "running": 3, "given_up": 1, "queued": 2} and tally.open == 5
    assert tally.left == 3 * 90 + 2 * 100 and tally.best_exact == 1.0
    assert tally.grokked == {"a": 2, "b": 1} and tally.holding == [("a", "2"), ("b", "4")]
    assert list(tally.each_step()) == [70, 10, 10, 10, 30, 0, 0]
    assert tally.training == [(0, 2), (10, 3)] and tally.spent == [(30, 1), (70, 1)]
    assert tally.progress == {"a": (2, 10, 2), "b": (1, 10, 0)}
    assert TrialReport.of([]) == TrialReport({}, 0, {}, [], 0.0, [], [], [])


def test_a_thousand_seeds_are_said_in_little():
    """Of a GPU's bank most seeds are at one step."""
    rows = [row(n, step=1_000) for n in range(1_024)] + [row(n, "queued", 0) for n in range(3_072)]
    said = len(json.dumps(vars(TrialReport.of(rows))))
    assert said < 20_000 < len(json.dumps(rows)) / 25
