"""A bank whose seeds begin as a wider model and are folded on the way, in one uninterrupted run.

Two banks stand behind it: seeds train in the first, of the wide spec, up to their recipe's `fold_step`;
there θ is rewritten exactly (model/fold.py), and the second bank goes on with it, at the same step of the
same stream of problems, with the optimiser begun anew and the learning rate warmed up again.

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
"""Behind the name of the first bank's state: the second's."""
GOES_ON = (Outcome.GROKKED, Outcome.FAILED)
"""What a seed is in the first bank when it has come to its fold."""


class FoldingBank:
    """Train pairs of `spec` that begin as `wide`. What a `Bank` offers whoever trains trials, it offers
    too.
    """

    def __init__(self, wide: Spec, spec: Spec, pairs: Sequence[Pair], **how: Any):
        self.spec, self.how = spec, how
        self.first = Bank(wide, [_wide(p) for p in pairs], **how)
        self.pairs = list(pairs)
        self.second: Bank | None = None
        self.numbers: dict[int, int] = {}
        """The pairs that were folded, and their numbers in the second bank."""
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
        """Train both banks to their next evaluations. False if no pair is left."""
        alive = self.first.advance()
        self._fold(range(len(self.pairs)))
        return (self.second is not None and self.second.advance()) or alive

    def add(self, pairs: Sequence[Pair]) -> range:
        """Put more pairs at the end of the queue. Returns their numbers."""
        self.pairs += pairs
        return self.first.add([_wide(p) for p in pairs])

    def end(self, numbers: Sequence[int]) -> None:
        """End pairs from outside, where they are."""
        self.first.end([n for n in numbers if n not in self.numbers])
        if self.second:
            self.second.end([self.numbers[n] for n in numbers if n in self.numbers])

    def newest(self) -> list[dict[str, Any]]:
        """A row a pair, as a judge has them; of one that was just folded what it was at the fold."""
        rows = [self._open(row) for row in self.first.newest()]
        later = self.second.newest() if self.second else []
        return [
            later[k] if (k := self.numbers.get(n)) is not None and later[k]["step"] else row
            for n, row in enumerate(rows)
        ]

    def _open(self, row: dict[str, Any]) -> dict[str, Any]:
        """Nobody has grokked, or ended, who has come to its fold."""
        if Outcome(row["outcome"]) not in GOES_ON:
            return row
        return row | {"outcome": Outcome.RUNNING.value, "grok_step": None, "best_exact": 0.0}

    def result(self, n: int) -> Result:
        """The n-th pair as far as it got, its curve from the first step on."""
        begun = self.first.result(n)
        if (k := self.numbers.get(n)) is None or self.second is None:
            found = replace(begun, theta_P=torch.zeros(self.spec.params), best_exact=0.0, pair=self.pairs[n])
            return replace(found, outcome=Outcome.FAILED, grok_step=None) if self._is_lost(begun) else found
        its, fold = self.second.result(k), len(begun.curve_EM)
        curve_EM = torch.cat([begun.curve_EM, its.curve_EM[fold:]])
        probes_ER = _together(begun.probes_ER, its.probes_ER[fold:])
        steps = max(its.steps, begun.steps)
        return replace(its, pair=self.pairs[n], curve_EM=curve_EM, probes_ER=probes_ER, steps=steps)

    def _is_lost(self, begun: Result) -> bool:
        """Whether a seed came to its fold with a θ that cannot be folded."""
        return begun.outcome in GOES_ON

    def save(self, path: Path, numbers: Sequence[int] | None = None) -> None:
        """Write the state of some pairs, by default of all."""
        mine = list(range(len(self.pairs)) if numbers is None else numbers)
        self.first.save(path, mine)
        if self.second and (folded := [self.numbers[n] for n in mine if n in self.numbers]):
            self.second.save(path.with_name(path.name + FOLDED), folded)

    def load(self, path: Path, numbers: Sequence[int] | None = None) -> bool:
        """Have some pairs go on from a saved state. False if there is none."""
        mine = list(range(len(self.pairs)) if numbers is None else numbers)
        if not self.first.load(path, mine):
            return False
        self._fold(mine)
        if self.second and (folded := [self.numbers[n] for n in mine if n in self.numbers]):
            self.second.load(path.with_name(path.name + FOLDED), folded)
        return True

    def _fold(self, numbers: Sequence[int]) -> None:
        """Have pairs that have come to their fold go on in the second bank."""
        for n in numbers:
            begun = self.first.result(n)
            if n in self.numbers or begun.outcome not in GOES_ON:
                continue
            theta_P = transfer(self.first.spec, begun.theta_P, self.spec).theta_Q
            if not bool(torch.isfinite(theta_P).all()):
                continue
            pair = replace(self.pairs[n], start=tuple(theta_P.tolist()), first_step=begun.steps, rungs=())
            if self.second is None:
                self.second = Bank(self.spec, [pair], **self.how | {"slots": self.slots})
                self.numbers[n] = 0
            else:
                self.numbers[n] = self.second.add([pair]).start


def _wide(pair: Pair) -> Pair:
    return replace(pair, ties=None, wide=True)


def _together(one_ER: Tensor, other_ER: Tensor) -> Tensor:
    """Rows of probes, one spec's behind another's; nothing is known of those that the other does not have."""
    if one_ER.shape[1] != other_ER.shape[1]:
        one_ER = torch.full((len(one_ER), other_ER.shape[1]), torch.nan)
    return torch.cat([one_ER, other_ER])
