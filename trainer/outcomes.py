"""Measures and outcomes of a seed. Without torch: counting does not need it."""

from __future__ import annotations

from ctypes import c_float
from enum import StrEnum

MEASURES = ("exact", "token", "loss", "train_loss")
"""The columns of a curve: exact match, token accuracy and loss on the selection problems, and the mean
training loss since the evaluation before."""
BEST = ("exact", "token")
"""Measures of which rules and thresholds read the best value so far. Of a probe they read the newest."""
PROBE = "probe."
"""Prefix of a probe's name among measures."""


def as_measured(bound: float) -> float:
    """Return a bound of a measure or probe as float32, as their values are.

    In it 0.95 is a little less: a seed that has just what is asked for has enough.
    """
    return c_float(bound).value


class Outcome(StrEnum):
    """State of a seed. The first two are not final. New ones go last: saved states have their places."""

    QUEUED = "queued"
    RUNNING = "running"
    GROKKED = "grokked"
    FAILED = "failed"
    DIVERGED = "diverged"
    GIVEN_UP = "given_up"
    SCREENED = "screened"
    CENSORED = "censored"


OPEN = (Outcome.QUEUED, Outcome.RUNNING)
"""Those that are not final."""
