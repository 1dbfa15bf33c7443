"""A rule for hopeless seeds that spares every winner it is tuned on, with a margin.

A checkpoint must not only spare every winner, but also one that comes later in its budget and gets only
CLOSER (as a fraction) of the way from guessing to what that winner had reached. How much later: the widest
of LATER at which the rule still saves ENOUGH. Within that, checkpoints are added one by one while they
save; of those that save nearly as much as the best, the mildest is taken.

Axes: R run, W winner, P progress, C candidate checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from benchmarks.recorded import Run
from trainer.stopping import Hopeless

LATER, CLOSER, GUESSING = (0.2, 0.15, 0.1), 0.5, 0.1
"""The margins (share of the budget, fraction) and the token accuracy of a model that guesses digits. Chosen
with the 396 runs of the first calibration in view, so its leave-one-out figures are in part hindsight."""
ENOUGH = 0.32
"""Share of seed-steps to save: 30 % are wanted, and a little more for studies not tuned on."""
PROGRESS = tuple(n / 10 for n in range(2, 10))
EXACT = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
TOKEN = tuple(n / 20 for n in range(3, 20))
MOST, WORTH, NEARLY = 5, 0.01, 0.005
"""Most checkpoints; the share of budget one must save more, and the share that is not worth a bolder one."""

Checkpoint = tuple[float, float, float]


def tune(runs: Sequence[Run]) -> Hopeless:
    """The rule for these runs. Without a winner nothing is known, and the rule gives nobody up."""
    if not any(run.grokked for run in runs):
        return Hopeless(())
    for later in LATER:
        rule, share = tune_with(runs, later)
        if share >= ENOUGH:
            break
    return rule


def tune_with(runs: Sequence[Run], later: float) -> tuple[Hopeless, float]:
    """The rule for one margin, and the share of seed-steps that it saves with a tenth of the seeds spared."""
    winners = [run for run in runs if run.grokked]
    checkpoints: list[Checkpoint] = []
    rest_CR: list[np.ndarray] = []
    for progress in PROGRESS:
        exact_W, token_W, _ = at(winners, round(progress - later, 6))
        exact_W, token_W = exact_W * CLOSER, GUESSING + (token_W - GUESSING) * CLOSER
        exact_R, token_R, rest_R = at(runs, progress)
        for exact, token in product(EXACT, TOKEN):
            if not ((exact_W < exact) & (token_W < token)).any():
                checkpoints.append((progress, exact, token))
                rest_CR.append(np.where((exact_R < exact) & (token_R < token), rest_R, 0.0))
    chosen, saved_R = _choose(checkpoints, np.array(rest_CR).reshape(-1, len(runs)))
    budget_R, steps_R = (np.array([getattr(run, name) for run in runs]) for name in ("budget", "steps"))
    return Hopeless(tuple(sorted(chosen))), 0.9 * float((saved_R * budget_R).sum() / steps_R.sum())


def at(runs: Sequence[Run], progress: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At each run's first evaluation at or past a progress: best exact match, best token accuracy, rest [R].

    The rest is the share of its budget that it ran after that; nothing of a run that is decided by then.
    """
    rows = []
    for run in runs:
        # as `progress_of` does it, so that both find the same evaluation
        progress_E = (run.step_E - run.taught) / max(run.budget - run.taught, 1)
        e = min(int(np.searchsorted(progress_E, progress)), len(run.step_E) - 1)
        rest = (run.steps - run.step_E[e]) / run.budget if run.step_E[e] < run.open_until else 0.0
        rows.append((run.exact_E[e], run.token_E[e], rest))
    exact_R, token_R, rest_R = np.array(rows).T
    return exact_R.astype(np.float32), token_R.astype(np.float32), rest_R


def _choose(checkpoints: list[Checkpoint], rest_CR: np.ndarray) -> tuple[list[Checkpoint], np.ndarray]:
    """Greedy: the mildest of the checkpoints that add nearly the most, until none is worth it.

    Also what they save together, as shares of the budget [R].
    """
    chosen: list[Checkpoint] = []
    now_R = np.zeros(rest_CR.shape[1])
    while checkpoints and len(chosen) < MOST:
        gain_C = np.maximum(now_R, rest_CR).mean(axis=1) - now_R.mean()
        if gain_C.max() < WORTH:
            break
        near = np.flatnonzero(gain_C > gain_C.max() - NEARLY)
        best = min(near, key=lambda c: _boldness(checkpoints[c]))
        chosen.append(checkpoints[best])
        now_R = np.maximum(now_R, rest_CR[best])
    return chosen, now_R


def _boldness(checkpoint: Checkpoint) -> tuple[float, float, float]:
    """Later is milder, then lower thresholds."""
    progress, exact, token = checkpoint
    return -progress, token, exact
