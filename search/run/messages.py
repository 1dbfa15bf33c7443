"""What a worker and the driver say to each other: a worker reports, and trains on when it has the reply.

Plain values that can be pickled. A pair is named by its number, which the driver gives each time that it hands a pair
out: what is said of another worker's pair, or of the same pair before its worker died, names nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.spec import Spec
from search.store.ended_seed import EndedSeed
from search.study.resources import Resources
from trainer import Pair


@dataclass(frozen=True)
class Order:
    """A pair to train, from where it was saved if it was."""

    number: int
    pair: Pair
    state: bytes | None = None


@dataclass(frozen=True)
class NewBank:
    """The bank that the pairs of a reply are to train in, in place of the one before."""

    spec: Spec
    slots: int
    resources: Resources


@dataclass(frozen=True)
class Reply:
    """The driver's answer to one report."""

    orders: Sequence[Order] = ()
    bank: NewBank | None = None
    enough: Sequence[int] = ()
    """Pairs whose configurations need no more seeds. They end, unless they have grokked: those are to hold."""
    report_after_s: float = 0.0
    """Seconds without news after which the worker reports again."""
    save_after_s: float = 0.0
    """Seconds between two saved states, if more pass than the study's `save_every` evaluations take."""
    is_end: bool = False
    """True if the worker is to end."""


@dataclass(frozen=True)
class Speed:
    """A worker's speed: of its bank now, and sums over all its banks. Unit: seed-steps, seconds."""

    seed_steps_per_s: float = 0.0
    seed_steps: int = 0
    train_s: float = 0.0
    compile_s: float = 0.0


@dataclass(frozen=True)
class Report:
    """What a worker says, in messages numbered from 0 at each start of its process (`attempt`)."""

    worker: str
    attempt: int
    number: int
    ended: Mapping[int, EndedSeed] = field(default_factory=dict)
    """Pairs that have ended, which the worker has no longer."""
    steps: Mapping[int, int] = field(default_factory=dict)
    """Step of each pair that it has."""
    perfect: Sequence[int] = ()
    """Those of them that have been perfect once, and train on to see if they hold."""
    states: Mapping[int, bytes] = field(default_factory=dict)
    """Saved states of pairs that it has, when it is time."""
    best_exact: float = 0.0
    environment: Mapping[str, Any] = field(default_factory=dict)
    """What θ depends on beside configuration and seed; with ended pairs."""
    speed: Speed = Speed()
    remarks: Sequence[str] = ()
    """What the trainer warned of: nobody sees what a worker prints."""
    failure: str = ""
    """The error that the worker ends with, in one line; with its `traceback`."""
    traceback: str = ""
