"""How far a study is: snapshots, durations, pictures."""

import pytest
from rich.console import Console

from search.run.progress import Display, Progress, duration
from search.run.tally import TrialReport
from search.study.schema import Resources, Stop
from search.study.trial import Configuration, Trial
from tests.golden_checkpoints import SPECS
from trainer import Recipe, Seed

CONFIGURATION = Configuration(SPECS["57p"], Recipe(steps=40, eval_every=10, fade_start=0, fade_end=0))
A, B, C, D = (Seed.of(n) for n in (1, 2, 3, 4))


def trial_of(*seeds):
    return Trial("study", tuple((CONFIGURATION, seed) for seed in seeds), 2, Resources(), Stop())


def row(seed, step, outcome="running", exact=0.0, grok_step=None):
    return {
        "configuration": CONFIGURATION.key,
        "seed": [seed.init_seed, seed.data_seed],
        "outcome": outcome,
        "step": step,
        "budget": CONFIGURATION.recipe.steps,
        "grok_step": grok_step,
        "best_exact": exact,
        "exact": exact,
        "token": exact,
        "loss": 1 - exact,
    }


def report(*rows, rate=100.0, phase="training"):
    steps = sum(r["step"] for r in rows)
    speed = {"seed_steps_per_s": rate, "seed_steps": steps, "train_s": steps / rate}
    return {"phase": phase, "tally": TrialReport.of(rows), **speed}


def progress_of(*trials):
    progress = Progress()
    for trial in trials:
        progress.started(trial)
    return progress


def queued(seed):
    return row(seed, 0, "queued")


def test_a_seed_that_was_given_up_has_nothing_left_to_train():
    trial = trial_of(A, B, C)
    progress = progress_of(trial)
    progress.report(trial, report(row(A, 10, "given_up"), row(B, 10), queued(C), rate=5.0))
    s = progress.snapshot()
    assert (s.running, s.failed) == (1, 1)
    assert s.seconds_left == pytest.approx((30 + 40) / 5.0)


def test_a_snapshot_counts_seeds_and_time():
    trial, other = trial_of(A, B), trial_of(C, D)
    progress = progress_of(trial)
    progress.started(other)
    before = progress.snapshot()
    assert (before.running, before.seconds_left, before.compiling) == (0, None, True)

    progress.report(trial, report(row(A, 10, "grokked", 1.0, grok_step=10), row(B, 10, exact=0.3), rate=5.0))
    progress.report(other, report(row(C, 20, "diverged"), row(D, 20), rate=5.0))
    s = progress.snapshot(queued_seed_steps=50)
    assert (s.running, s.grokked, s.failed, s.best_exact) == (2, 1, 1, 1.0)
    assert (s.seed_steps_per_s, s.compiling) == (10.0, False)
    # Left of the budget of 40 steps: 30 of B and 20 of D; A and C have ended.
    assert s.seconds_left == pytest.approx((30 + 20 + 50) / 10.0)

    progress.finished(trial, ["grokked", "failed"])
    progress.finished(other, ["diverged", "given_up"])
    after = progress.snapshot()
    assert (after.running, after.grokked, after.failed, after.best_exact) == (0, 1, 3, 1.0)
    assert (after.seconds_left, after.compiling) == (0, False)


def test_what_is_waited_for_is_said(tmp_path):
    """Enough have grokked, and all that trains is who is to hold."""
    trial = trial_of(A, B)
    progress = progress_of(trial)
    grokked = row(A, 20, "running", 1.0, grok_step=20)
    progress.report(trial, report(grokked, row(B, 20)))
    assert progress.snapshot(has_enough=lambda c: True).holding == {}, "another one trains"
    progress.report(trial, report(grokked, row(B, 20, "censored")))
    assert progress.snapshot().holding == {}, "more are asked for"
    snapshot = progress.snapshot(has_enough=lambda c: c == CONFIGURATION)
    assert snapshot.holding == {"1": CONFIGURATION.recipe.hold}
    file = tmp_path / "shown"
    with file.open("w") as out, Display(Console(file=out)) as display:
        display.show(snapshot)
    assert f"waits for seed 1 to hold for {CONFIGURATION.recipe.hold:,} steps" in file.read_text()


def test_trials_of_one_bank_have_one_speed():
    first, second = trial_of(A, B), trial_of(C, D)
    progress = progress_of(first)
    progress.started(second, first.key)
    for trial in (first, second):
        progress.report(trial, report(row(A, 10), row(B, 10), rate=100.0))
    assert progress.snapshot().seed_steps_per_s == 100.0 and sum(progress.seed_steps.values()) == 20


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0:00"),
        (0.6, "0:01"),
        (59.4, "0:59"),
        (59.5, "1:00"),
        (245, "4:05"),
        (3723, "1:02:03"),
        (360_000, "100:00:00"),
    ],
)
def test_durations(seconds, expected):
    assert duration(seconds) == expected


@pytest.mark.parametrize("terminal", [True, False])
def test_the_display_shows_a_snapshot(terminal, tmp_path):
    trial = trial_of(A, B)
    progress = progress_of(trial)
    progress.report(trial, report(row(A, 10, exact=0.25), row(B, 10)))
    file = tmp_path / "shown"
    with file.open("w") as out, Display(Console(file=out, force_terminal=terminal, width=100)) as display:
        assert display.due()
        display.show(progress.snapshot())
        assert not display.due()
    for said in ("running", "0.2500", "seed-steps/s", "0:01"):
        assert said in file.read_text()
