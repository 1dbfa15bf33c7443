"""Screens: rungs at which a study ends the seeds that show too little, beside the rule for hopeless seeds.

A rung looks at a seed once, at its first evaluation at or past `at`. A study chooses its rungs. How often one
is wrong depends on spec and recipe: measured.json has a few, and every study measures its own on its spared seeds.

Axes: L seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

from model import preset_name
from model.fields import did_you_mean
from trainer.outcomes import BEST, as_measured
from trainer.stopping.rule import MEASURED, Rule, Seen

if TYPE_CHECKING:
    from torch import Tensor

Keep = tuple[tuple[str, float, float], ...]
"""Names with the lowest and the highest value that keep a seed: those of BEST, or of probes."""
MEASURED_RUNGS: dict[tuple[str, str], tuple[int, int]] = {
    (row["configuration"], row["rung"]): (row["grokked"], row["called"]) for row in MEASURED["screens"]["rungs"]
}
"""(configuration's key, rung) -> how many of the seeds that it called and that ran on grokked, and of how many."""


@dataclass(frozen=True)
class Rung(Rule):
    """A stage at step `at`. A seed goes on if any of `keep` holds: the best so far of BEST, the newest of a probe."""

    key = "screen"
    help = "rungs, one or a list: seeds that show too little end there, a random tenth spared"
    most = 20
    ended = "screened"
    title = "Screen"

    at: int
    keep: Keep = ()

    def __post_init__(self) -> None:
        for name, low, high in self.keep:
            if low > high:
                raise ValueError(f"keep.{name} must rise, got {low:g} to {high:g}")
            if name in BEST and not 0 <= low <= 1:
                raise ValueError(f"keep.{name} must be from 0 to 1, got {low:g}")

    def calls(self, seen: Seen) -> Tensor:
        # Due at one evaluation: no count of what a seed has passed need be saved with it.
        step_L = seen.step_L
        is_due_L = (step_L >= self.at) & (step_L - seen.eval_every < self.at)
        values = {}
        for name, _, _ in self.keep:
            values[name] = seen.best(name) if name in BEST else seen.newest(name)[:, 0]
        return is_due_L & ~self.keeps(values)

    def keeps(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return a bool: true where any value is within its bounds in `keep`."""
        import torch

        kept = torch.zeros((), dtype=torch.bool)
        for name, low, high in self.keep:
            value = values[name].double()  # as the bounds are
            kept = kept | (as_measured(low) <= value) & (value <= as_measured(high))
        return kept

    def check(self, spec: Any, recipe: Any) -> None:
        readable = [*BEST, *spec.probes()]
        last = recipe.steps - recipe.eval_every  # at the last one a seed has spent its budget anyway
        if self.at > last:
            raise ValueError(f"at: must be at most the evaluation before the last ({last}), got {self.at}")
        for name, _, _ in self.keep:
            # Until θ is in its final form nothing counts, and a seed's best is nothing.
            if name in BEST and self.at < recipe.counts_from:
                early = f"must be at the ramp's end ({recipe.counts_from}) or later for {' and '.join(BEST)}"
                raise ValueError(f"at: {early}, got {self.at}")
            if name not in readable:
                model = preset_name(spec)
                of = f" of {model}" if spec.probes() else f" ({model} has no probes)"
                raise ValueError(f"keep.{name}: unknown probe{of}; {did_you_mean(name, readable)}")

    @classmethod
    def check_together(cls, rules: Sequence[Rung]) -> None:
        for i, (rung, following) in enumerate(pairwise(rules), start=1):
            if following.at <= rung.at:
                raise ValueError(f"{i}.at must be later than the rung before, got {following.at} after {rung.at}")

    @classmethod
    def called(cls, noted: Any) -> str | None:
        if noted is None:
            return cls.ended
        return None if ": " in str(noted) else str(noted)  # other kinds of rules begin with their key

    @classmethod
    def measured(cls, configuration: str, called: str) -> tuple[int, int] | None:
        return MEASURED_RUNGS.get((configuration, called))

    @classmethod
    def describe(cls, rules: Sequence[Rung]) -> str:
        return f"ends seeds without {', then '.join(map(str, rules))}"

    def __str__(self) -> str:
        """Short and unique, as records have it: `token 0.35 or stride 0.1 to 0.2 at 5000`."""
        ends = list[str]()
        for name, low, high in self.keep:
            upto = f" to {high:g}" if high < inf else ""
            ends.append(f"{name} {low:g}{upto}")
        return f"{' or '.join(ends) or 'nothing'} at {self.at}"
