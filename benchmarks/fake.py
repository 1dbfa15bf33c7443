"""Banks that train nothing: seeds end where such seeds were measured to end, after the time that it takes.

They stand where the worker has `Bank` (search/run/worker.py), so that all else of a study is real: plan,
ledger, messages, MLflow, and Ray where there is one. Ends are those of 57p with the hopeless rule on
(lab/2026-11-20-seeds-where-they-count): functions of configuration and seed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from model import Spec
from trainer import MEASURES, Outcome, Pair, Result, Seed

GROKS = 3 / 128
ENDS = {Outcome.GIVEN_UP: 0.81, Outcome.FAILED: 0.19}
GIVEN_UP_AT = {0.38: 0.6, 0.48: 0.3, 0.75: 0.1}
"""Shares of the budget at which the rule gives up, in shares that save what it was measured to save."""
GROKKED_AT, HELD_AT = 0.78, 0.95
STATE_BYTES, CURVE_BYTES = 1_000, 32
"""Bytes of a pair's saved state, and those that each thousand steps add: 57p's."""


def end_of(seed: Seed) -> tuple[Outcome, float]:
    """What becomes of a seed, after which share of its budget."""
    chance = random.Random(f"{seed}")
    if chance.random() < GROKS:
        return Outcome.GROKKED, HELD_AT
    outcome = chance.choices(list(ENDS), list(ENDS.values()))[0]
    if outcome == Outcome.FAILED:
        return outcome, 1.0
    return outcome, chance.choices(list(GIVEN_UP_AT), list(GIVEN_UP_AT.values()))[0]


def _evaluation(share: float, pair: Pair) -> int:
    """The step of the evaluation at which so much of a budget is spent."""
    every = pair.recipe.eval_every
    return max(1, round(share * pair.recipe.steps / every)) * every


class FakeBank:
    """What a worker needs of a bank. `speed`: seed-steps/s; `spend`: called with the seconds that pass."""

    speed = 1e6
    spend: Callable[[float], Any] = staticmethod(time.sleep)

    def __init__(self, spec: Spec, pairs: Sequence[Pair], *, slots: int, device: str = "", **options: Any):
        self.spec, self.slots, self.device = spec, slots, "cpu"
        self.pairs: list[Pair] = []
        self.steps: list[int] = []
        self.ends: list[int] = []
        self.becomes: list[Outcome] = []
        self.live: list[int] = []
        self.waiting: list[int] = []
        self.seed_steps, self.train_s = 0, 0.0
        self.backend = SimpleNamespace(name="fake", compile_s=0.0, about={})
        self.tracker = self
        self.add(pairs)

    @property
    def seed_steps_per_s(self) -> float:
        return self.seed_steps / self.train_s if self.train_s else 0.0

    def add(self, pairs: Sequence[Pair]) -> range:
        first = len(self.pairs)
        for pair in pairs:
            outcome, share = end_of(pair.seed)
            self.becomes.append(outcome)
            self.ends.append(_evaluation(share, pair))
        self.pairs += pairs
        self.steps += [0] * len(pairs)
        self.waiting += range(first, len(self.pairs))
        self._fill()
        return range(first, len(self.pairs))

    def _fill(self) -> None:
        free = self.slots - len(self.live)
        self.live += self.waiting[:free]
        del self.waiting[:free]

    def advance(self) -> bool:
        if not self.live:
            return False
        every = self.pairs[0].recipe.eval_every
        seconds = every * len(self.live) / self.speed
        type(self).spend(seconds)
        self.seed_steps += every * len(self.live)
        self.train_s += seconds
        for n in self.live:
            self.steps[n] += every
        self.live = [n for n in self.live if self.steps[n] < self.ends[n]]
        self._fill()
        return True

    def remove(self, numbers: Sequence[int]) -> None:
        gone = set(numbers)
        kept = [n for n in range(len(self.pairs)) if n not in gone]
        place = {n: i for i, n in enumerate(kept)}
        self.pairs, self.steps, self.ends, self.becomes = (
            [rows[n] for n in kept] for rows in (self.pairs, self.steps, self.ends, self.becomes)
        )  # type: ignore[assignment]
        self.live, self.waiting = ([place[n] for n in some] for some in (self.live, self.waiting))

    def newest(self) -> list[dict[str, Any]]:
        return [self._row(n) for n in range(len(self.pairs))]

    def _row(self, n: int) -> dict[str, Any]:
        return {"outcome": self._outcome(n), "step": self.steps[n], "grok_step": self._grokked(n),
                "best_exact": 0.5}  # fmt: skip

    def _outcome(self, n: int) -> str:
        if self.steps[n] >= self.ends[n]:
            return self.becomes[n].value
        return (Outcome.RUNNING if self.steps[n] else Outcome.QUEUED).value

    def _grokked(self, n: int) -> int | None:
        """The grok step, once it is past."""
        step = _evaluation(GROKKED_AT, self.pairs[n])
        return step if self.becomes[n] == Outcome.GROKKED and self.steps[n] >= step else None

    def result(self, n: int) -> Result:
        pair, steps, grokked = self.pairs[n], self.steps[n], self._grokked(n)
        rows = steps // pair.recipe.eval_every
        return Result(
            pair=pair, outcome=Outcome(self._outcome(n)), steps=steps, grok_step=grokked,
            held=grokked is not None, hopeless_step=None, best_step=steps,
            best_exact=float(grokked is not None), best_token=0.5,
            theta_P=torch.full((self.spec.params,), float(pair.seed.init_seed)),
            curve_EM=torch.full((rows, len(MEASURES)), 0.5),
        )  # fmt: skip

    def end(self, numbers: Sequence[int]) -> None:
        if numbers:
            raise NotImplementedError("no study here ends once enough have grokked")

    def save_all(self, numbers: Sequence[int]) -> list[bytes]:
        """As many bytes as a pair's state has at this step, and its step in front."""
        return [
            f"{self.steps[n]:020}".encode() + bytes(STATE_BYTES + CURVE_BYTES * self.steps[n] // 1_000) for n in numbers
        ]

    def restore_all(self, states: Mapping[int, bytes]) -> list[int]:
        for n, state in states.items():
            self.steps[n] = int(state[:20])
        return list(states)
