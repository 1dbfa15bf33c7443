"""What screens (trainer/stopping/screen.py) would have done to complete runs, beside the rule for hopeless seeds.

For no rule, the hopeless rule, and each screen with the hopeless rule behind it: grokked seeds that are kept, of all
(recall, with its exact 95 % interval); of the seeds that are called, those that grok, and how many at most (one-sided
95 %); and seed-steps for each grokked seed that is left, with a random tenth spared as studies do, and with nobody
spared. Then a grid of steps, measures and probes: for each recall the cheapest. That is tuned on these runs, so to be
confirmed on others.

Axes: E evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import torch

from search.stats.intervals import LEVEL, exact_high, exact_low
from trainer.recipe import Seed
from trainer.recipe.seed import is_spared
from trainer.stopping import HOPELESS, Rung
from trainer.stopping.hopeless import progress_of

STEPS = (2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 12_000, 16_000, 20_000)
TOKEN = tuple(n / 20 for n in range(3, 16))


@dataclass(frozen=True, eq=False)
class Run:
    """A seed that ended by itself. Steps count training steps; `steps` are those it ran, of `budget`."""

    seed: Seed
    budget: int
    taught: int
    """The step from which it met ten-digit numbers."""
    steps: int
    grok_step: int | None
    step_E: np.ndarray
    exact_E: np.ndarray
    """Best exact match so far (float32), like token_E."""
    token_E: np.ndarray
    probes: Mapping[str, np.ndarray]
    """What each probe read at each evaluation."""

    @property
    def grokked(self) -> bool:
        return self.grok_step is not None

    @property
    def open_until(self) -> int:
        """The evaluation that decided the seed: from it on no rule is asked."""
        return self.steps if self.grok_step is None else self.grok_step


@dataclass(frozen=True)
class Count:
    """What rules did to some runs. called: by the screen; killed: grokked seeds that it called."""

    seeds: int
    winners: int
    called: int
    killed: int
    steps: int
    steps_unspared: int
    left: int
    """Grokked seeds that are left, the spared ones too; left_unspared: had nobody been spared."""
    left_unspared: int

    @property
    def cost(self) -> float:
        """Seed-steps for each grokked seed, a tenth spared."""
        return self.steps / self.left if self.left else inf

    @property
    def cost_unspared(self) -> float:
        return self.steps_unspared / self.left_unspared if self.left_unspared else inf


def given_up_at(run: Run) -> int | None:
    """The step at which the rule calls a run hopeless, as trainer/bank/tracker.py does, or None."""
    step_E = torch.from_numpy(run.step_E)
    progress_E = progress_of(step_E, torch.tensor(run.taught), torch.tensor(run.budget))
    called_E = HOPELESS.is_futile(progress_E, torch.from_numpy(run.exact_E), torch.from_numpy(run.token_E))
    called_E &= step_E < run.open_until
    return int(step_E[called_E][0]) if bool(called_E.any()) else None


def screened_at(rung: Rung, run: Run) -> int | None:
    """The step at which a rung would end a run, or None: as trainer/bank/tracker.py looks at it."""
    e = int(np.searchsorted(run.step_E, rung.at))
    if e >= len(run.step_E) or run.step_E[e] >= run.open_until:
        return None
    read_then = {name: float(read_E[e]) for name, read_E in run.probes.items()}
    values = {"exact": float(run.exact_E[e]), "token": float(run.token_E[e]), **read_then}
    kept = rung.keeps({name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()})
    return None if kept else int(run.step_E[e])


def replay(rungs: Sequence[Rung], runs: Sequence[Run], hopeless: bool = True) -> Count:
    """Apply screens, and the hopeless rule behind them, to some runs."""
    called = killed = steps = unspared = left = left_unspared = winners = 0
    for run in runs:
        looks = [s for rung in rungs if (s := screened_at(rung, run)) is not None]
        given_up = given_up_at(run) if hopeless else None
        ends = [*looks, *([given_up] if given_up is not None else [])]
        keeps = is_spared(run.seed)
        winners += run.grokked
        called += bool(looks)
        killed += bool(looks) and run.grokked
        steps += run.steps if keeps or not ends else min(ends)
        unspared += min(ends, default=run.steps)
        left += run.grokked and (keeps or not ends)
        left_unspared += run.grokked and not ends
    return Count(len(runs), winners, called, killed, steps, unspared, left, left_unspared)


def line(name: str, c: Count) -> str:
    """A row for people."""
    low, high = exact_low(c.winners - c.killed, c.winners), exact_high(c.winners - c.killed, c.winners)
    recall = f"{c.winners - c.killed} of {c.winners} ({low:.0%} to {high:.0%})"
    kills = f"{c.killed} of {c.called}, at most {exact_high(c.killed, c.called, LEVEL):.1%}" if c.called else "-"
    cost = f"{c.cost / 1e3:,.0f}" if c.cost < inf else "-"
    without = f"{c.cost_unspared / 1e3:,.0f}" if c.cost_unspared < inf else "-"
    return f"{name:<28}{recall:>26}{kills:>28}{cost:>12}{without:>12}"


HEAD = f"{'':<28}{'kept of the grokked':>26}{'false kills':>28}{'k steps each':>12}{'unspared':>12}"


def candidates(runs: Sequence[Run]) -> Iterator[Rung]:
    """Rungs by token accuracy, and by each probe with its quartiles as least values."""
    for at in STEPS:
        for token in TOKEN:
            yield Rung(at, (("token", token, inf),))
        for name in runs[0].probes:
            every = np.concatenate([run.probes[name][run.step_E == at] for run in runs])
            for level in sorted({round(float(q), 2) for q in np.nanquantile(every, (0.25, 0.5, 0.75, 0.9))}):
                yield Rung(at, ((name, level, inf),))


def tuned(runs: Sequence[Run]) -> list[tuple[Rung, Count]]:
    """The cheapest rung for each number of grokked seeds that are kept, the most first."""
    best: dict[int, tuple[Rung, Count]] = {}
    for rung in candidates(runs):
        count = replay([rung], runs)
        kept = count.winners - count.killed
        if kept not in best or count.cost_unspared < best[kept][1].cost_unspared:
            best[kept] = rung, count
    return [best[kept] for kept in sorted(best, reverse=True)]


def report(rungs: Sequence[Rung], runs: Sequence[Run]) -> None:
    """Print the table."""
    print(HEAD)
    print(line("no rule", replay([], runs, hopeless=False)))
    print(line("the hopeless rule", replay([], runs)))
    for rung in rungs:
        print(line(str(rung), replay([rung], runs)))
    print("\nTuned on these runs:")
    for rung, count in tuned(runs):
        print(line(str(rung), count))
