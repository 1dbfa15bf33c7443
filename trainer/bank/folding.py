"""A bank whose seeds begin as a wider model and are folded on the way, in one uninterrupted run.

It has two banks. Seeds train in the first, of the wide spec, up to their recipe's `fold_step`. There θ is
rewritten exactly (model/fold.py). The second bank goes on with it at the same step of the same stream of
problems, with a new optimiser state and a new warm-up of the learning rate.

Axes: E evaluation, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.spec import Spec
from model.transfer import transfer
from trainer.bank.bank import Bank
from trainer.bank.tracker import Result
from trainer.recipe import Pair
from trainer.recipe.outcomes import Outcome

FOLDED = ".folded"
"""Suffix of the second bank's state file, after the first one's name."""
AT_FOLD = (Outcome.GROKKED, Outcome.FAILED)
"""Outcomes in the first bank of a seed that has reached its fold."""


class FoldingBank:
    """Train pairs of `spec` that begin as `wide`. It has the interface of a `Bank`."""

    def __init__(self, wide: Spec, spec: Spec, pairs: Sequence[Pair], **options: Any):
        self.spec, self.options = spec, options
        self.first = Bank(wide, [_wide(p) for p in pairs], **options)
        self.pairs = list(pairs)
        self.second: Bank | None = None
        self.numbers: dict[int, int] = {}
        """Folded pair -> its number in the second bank."""
        self.slots, self.device = self.first.slots, self.first.device

    @property
    def programs(self) -> Any:
        return (self.second or self.first).programs

    @property
    def seed_steps(self) -> int:
        return self.first.seed_steps + (self.second.seed_steps if self.second else 0)

    @property
    def train_s(self) -> float:
        return self.first.train_s + (self.second.train_s if self.second else 0.0)

    @property
    def seed_steps_per_s(self) -> float:
        return self.seed_steps / self.train_s if self.train_s else 0.0

    def advance(self) -> bool:
        """Train both banks to their next evaluations. Return False if no pair is left."""
        alive = self.first.advance()
        self._fold(range(len(self.pairs)))
        return (self.second is not None and self.second.advance()) or alive

    def add(self, pairs: Sequence[Pair]) -> range:
        """Append pairs to the queue. Return their numbers."""
        self.pairs += pairs
        return self.first.add([_wide(p) for p in pairs])

    def end(self, numbers: Sequence[int]) -> None:
        """End pairs from outside: those that have not ended are censored."""
        self.first.end([n for n in numbers if n not in self.numbers])
        if self.second:
            self.second.end([self.numbers[n] for n in numbers if n in self.numbers])

    def newest(self) -> list[dict[str, Any]]:
        """Return a row a pair, as `SeedTracker.newest`; of a pair that was just folded, its row at the fold."""
        rows = [self._open(row) for row in self.first.newest()]
        later = self.second.newest() if self.second else []
        return [
            later[k] if (k := self.numbers.get(n)) is not None and later[k]["step"] else row
            for n, row in enumerate(rows)
        ]

    def _open(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row of a pair at its fold as one that runs on: it has not ended, nor grokked."""
        if Outcome(row["outcome"]) not in AT_FOLD:
            return row
        return row | {"outcome": Outcome.RUNNING.value, "grok_step": None, "best_exact": 0.0}

    def result(self, n: int) -> Result:
        """Return the n-th pair as far as it got, its curve from the first step on."""
        wide = self.first.result(n)
        if (k := self.numbers.get(n)) is None or self.second is None:
            result = replace(wide, theta_P=torch.zeros(self.spec.params), best_exact=0.0, pair=self.pairs[n])
            unfoldable = wide.outcome in AT_FOLD
            return replace(result, outcome=Outcome.FAILED, grok_step=None) if unfoldable else result
        folded, fold = self.second.result(k), len(wide.curve_EM)
        curve_EM = torch.cat([wide.curve_EM, folded.curve_EM[fold:]])
        probes_ER = _concatenate_probes(wide.probes_ER, folded.probes_ER[fold:])
        steps = max(folded.steps, wide.steps)
        return replace(folded, pair=self.pairs[n], curve_EM=curve_EM, probes_ER=probes_ER, steps=steps)

    def save(self, path: Path, numbers: Sequence[int] | None = None) -> None:
        """Write the state of some pairs, by default of all."""
        chosen = list(range(len(self.pairs)) if numbers is None else numbers)
        self.first.save(path, chosen)
        if self.second and (folded := [self.numbers[n] for n in chosen if n in self.numbers]):
            self.second.save(path.with_name(path.name + FOLDED), folded)

    def load(self, path: Path, numbers: Sequence[int] | None = None) -> bool:
        """Restore some pairs, by default all, from a saved state. Return False if there is none."""
        chosen = list(range(len(self.pairs)) if numbers is None else numbers)
        if not self.first.load(path, chosen):
            return False
        self._fold(chosen)
        if self.second and (folded := [self.numbers[n] for n in chosen if n in self.numbers]):
            self.second.load(path.with_name(path.name + FOLDED), folded)
        return True

    def _fold(self, numbers: Sequence[int]) -> None:
        """Fold the pairs that have reached their fold, and add them to the second bank."""
        for n in numbers:
            wide = self.first.result(n)
            if n in self.numbers or wide.outcome not in AT_FOLD:
                continue
            theta_P = transfer(self.first.spec, wide.theta_P, self.spec).theta_Q
            if not bool(torch.isfinite(theta_P).all()):
                continue
            pair = replace(self.pairs[n], start=tuple(theta_P.tolist()), first_step=wide.steps, rungs=())
            if self.second is None:
                self.second = Bank(self.spec, [pair], **self.options | {"slots": self.slots})
                self.numbers[n] = 0
            else:
                self.numbers[n] = self.second.add([pair]).start


def _wide(pair: Pair) -> Pair:
    return replace(pair, ties=None, wide=True)


def _concatenate_probes(first_ER: Tensor, second_ER: Tensor) -> Tensor:
    """Concatenate rows of two specs' probes; where these differ, the first rows become NaN."""
    if first_ER.shape[1] != second_ER.shape[1]:
        first_ER = torch.full((len(first_ER), second_ER.shape[1]), torch.nan)
    return torch.cat([first_ER, second_ER])
