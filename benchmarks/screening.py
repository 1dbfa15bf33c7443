"""What screens (trainer/stopping/screen.py) would have done to recorded complete runs, beside the hopeless rule.

    python -m benchmarks.screening CURVES... [--screen "token 0.35 at 5000"]... [--tune]

CURVES are homes or folders, as for benchmarks.stopping. For no rule, the hopeless rule, and each screen with
the hopeless rule behind it: grokked seeds that are kept, of all (recall, with its exact 95 % interval); of
the seeds that are called, those that grok, and how many at most (one-sided 95 %); and seed-steps for each
grokked seed that is left, with a random tenth spared as studies do, and with nobody spared. `--tune` looks at
a grid of steps, measures and probes and prints, for each recall, the cheapest: tuned on these runs, so to be
confirmed on others.

Axes: E evaluation.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import torch

from benchmarks.recorded import Run, read
from benchmarks.stopping import called_at, wrong_use
from search.stats.intervals import LEVEL, exact_high, exact_low
from trainer.recipe.seed import is_spared
from trainer.stopping import HOPELESS, Rung

FORM = re.compile(r"(\w+) ([0-9.]+)(?: to ([0-9.]+))? at ([0-9]+)")
STEPS = (2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 12_000, 16_000, 20_000)
TOKEN = tuple(n / 20 for n in range(3, 16))


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


def rung_of(text: str) -> Rung:
    """A rung as it is spelt, of one measure or probe. Raises ValueError."""
    if (found := FORM.fullmatch(text)) is None:
        raise ValueError(f"a screen is written as 'token 0.35 at 5000', got {text!r}")
    name, low, high, at = found.groups()
    return Rung(int(at), ((name, float(low), float(high or inf)),))


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
        given_up = called_at(HOPELESS, run) if hopeless else None
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
    """What `--tune` looks at: token accuracy, and of each probe its quartiles as least values."""
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


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("curves", type=Path, nargs="+", help="homes or folders")
    parser.add_argument("--screen", action="append", default=[])
    parser.add_argument("--tune", action="store_true")
    args = parser.parse_args(words)
    try:
        rungs, (runs, _) = [rung_of(text) for text in args.screen], read(args.curves)
        report(rungs, runs, args.tune)
    except ValueError as error:
        wrong_use(str(error))
    except KeyError as error:
        wrong_use(f"these runs have no probe {error}")


def report(rungs: Sequence[Rung], runs: Sequence[Run], tune: bool) -> None:
    """Print the table."""
    print(HEAD)
    print(line("no rule", replay([], runs, hopeless=False)))
    print(line("the hopeless rule", replay([], runs)))
    for rung in rungs:
        print(line(str(rung), replay([rung], runs)))
    if tune:
        print("\nTuned on these runs:")
        for rung, count in tuned(runs):
            print(line(str(rung), count))


if __name__ == "__main__":
    main()
