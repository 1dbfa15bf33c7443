"""What the rule for hopeless seeds (trainer/stopping/hopeless.py) would have done to recorded complete runs.

    python -m benchmarks.stopping CURVES... [--json FILE] [--propose]

CURVES are homes, or any folders: every trial's curves.parquet with the results.json and trial.json beside
it is read. Seeds that ended by themselves count (grokked, failed, diverged); record them with
`stop: {hopeless: off}`. For each study it prints the winners that the rule kills, with the one-sided 95 %
upper bound of their share (Clopper-Pearson), the seeds it gives up, those of them that are spared, the share
of all seed-steps that a study really saves, and the margin: how much later in its budget every winner could
have come without being killed.

Then each study is left out once: a rule is tuned on the others alone and applied to it. `--propose` prints
the rule tuned on all of them, to be pasted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any, NoReturn

import torch

from benchmarks.recorded import Run, read
from benchmarks.tuning import CLOSER, ENOUGH, LATER, tune
from search.stats.intervals import LEVEL, exact_high
from trainer.checkpoints.checkpoint import code_version
from trainer.recipe.seed import is_spared
from trainer.stopping.hopeless import (
    FALSE_KILLS_UPPER,
    HOPELESS,
    Hopeless,
    progress_of,
)

MARGINS = tuple(n / 100 for n in range(0, 55, 5))
HEAD = ("study", "seeds", "winners", "killed", "at most", "given up", "spared", "saved", "margin")


@dataclass(frozen=True)
class Count:
    """What the rule did to some runs. `killed`: winners that it calls hopeless, `given_up`: all that it does.

    The `spared` are among both. Steps are seed-steps; what the spared ones spend is not saved.
    """

    seeds: int
    winners: int
    killed: int
    given_up: int
    spared: int
    steps: int
    steps_saved: int

    @property
    def saved(self) -> float:
        """Share of seed-steps saved."""
        return self.steps_saved / self.steps if self.steps else 0.0

    def __add__(self, other: Count) -> Count:
        return Count(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


def called_at(rule: Hopeless, run: Run, later: float = 0.0) -> int | None:
    """The step at which the rule calls a run hopeless, as trainer/bank/tracker.py does, or None.

    `later`: as if the run had come so much later, as a share of the budget.
    """
    step_E = torch.from_numpy(run.step_E)
    progress_E = progress_of(step_E, torch.tensor(run.taught), torch.tensor(run.budget)) + later
    called_E = rule.is_futile(progress_E, torch.from_numpy(run.exact_E), torch.from_numpy(run.token_E))
    called_E &= step_E < run.open_until
    return int(step_E[called_E][0]) if bool(called_E.any()) else None


def replay(rule: Hopeless, runs: Sequence[Run]) -> Count:
    """Apply the rule to some runs."""
    total = Count(0, 0, 0, 0, 0, 0, 0)
    for run in runs:
        step = called_at(rule, run)
        called, kept = step is not None, is_spared(run.seed)
        saved = 0 if step is None or kept else run.steps - step
        total += Count(1, run.grokked, run.grokked and called, called, called and kept, run.steps, saved)
    return total


def margin(rule: Hopeless, runs: Sequence[Run]) -> float | None:
    """The largest delay, of MARGINS, that kills no winner. None without winners, -1 if one dies now."""
    winners = [run for run in runs if run.grokked]
    if not winners:
        return None
    safe = -1.0
    for later in MARGINS:
        if any(called_at(rule, run, later) is not None for run in winners):
            break
        safe = later
    return safe


def study_groups(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by study, in alphabetical order."""
    return {name: [run for run in runs if run.study == name] for name in sorted({run.study for run in runs})}


def row(rule: Hopeless, runs: Sequence[Run]) -> dict[str, Any]:
    """A line of the table as figures."""
    count = replay(rule, runs)
    killed = [str(run.seed) for run in runs if run.grokked and called_at(rule, run) is not None]
    about = {
        "rule": rule.checkpoints,
        "saved": count.saved,
        "margin": margin(rule, runs),
        "killed_seeds": killed,
    }
    bounds = {
        "killed_upper": exact_high(count.killed, count.winners, LEVEL),
        "false_kills_upper": exact_high(count.killed, count.given_up, LEVEL),
    }
    return asdict(count) | bounds | about


def pooled(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows of several rules added up, with the bounds of the sums."""
    names = Count.__dataclass_fields__
    count = Count(*(sum(r[name] for r in rows) for name in names))
    margins = [r["margin"] for r in rows if r["margin"] is not None]
    return asdict(count) | {
        "killed_upper": exact_high(count.killed, count.winners, LEVEL),
        "false_kills_upper": exact_high(count.killed, count.given_up, LEVEL),
        "saved": count.saved,
        "margin": min(margins, default=None),
    }


def leave_one_out(groups: dict[str, list[Run]]) -> dict[str, dict[str, Any]]:
    """By study: what the rule tuned on all the others does to it."""
    return {
        name: row(tune([run for other, g in groups.items() if other != name for run in g]), runs)
        for name, runs in groups.items()
    }


def line(name: str, r: dict[str, Any]) -> str:
    """A row for people."""
    safe = "-" if r["margin"] is None else "killed" if r["margin"] < 0 else f"{r['margin']:.0%}"
    cells = [r["seeds"], r["winners"], r["killed"], f"{r['killed_upper']:.1%}", r["given_up"], r["spared"]]
    return f"{name:<14}" + "".join(f"{c!s:>10}" for c in [*cells, f"{r['saved']:.1%}", safe])


def table(rows: dict[str, dict[str, Any]], total: dict[str, Any]) -> str:
    head = f"{HEAD[0]:<14}" + "".join(f"{h:>10}" for h in HEAD[1:])
    return "\n".join([head, *(line(name, r) for name, r in rows.items()), line("all", total)])


def proposal(rule: Hopeless, false_kills: float, runs: Sequence[Run]) -> str:
    """Return the rule and its figure, rounded up to four digits, as trainer/stopping/measured.json has them."""
    winners = sum(run.grokked for run in runs)
    return json.dumps(
        {
            "experiment": f"{len(runs)} seeds of {len(study_groups(runs))} studies, {winners} winners",
            "checkpoints": rule.checkpoints,
            "false_kills_upper": ceil(false_kills * 1e4) / 1e4,
        },
        indent=2,
    )


def report(runs: Sequence[Run], propose: bool) -> dict[str, Any]:
    """Print everything; returns it for the JSON file."""
    groups = study_groups(runs)
    rows, total = {name: row(HOPELESS, g) for name, g in groups.items()}, row(HOPELESS, runs)
    print(f"The rule in trainer/stopping/hopeless.py: {HOPELESS.checkpoints}\n{table(rows, total)}")
    left = leave_one_out(groups)
    left_total = pooled(list(left.values()))
    print(f"\nEach study under the rule tuned on the others:\n{table(left, left_total)}")
    for name, r in left.items():
        print(f"{name:<14} {r['rule']}" + "".join(f", kills {s}" for s in r["killed_seeds"]))
    rule = tune(runs)
    tuned = row(rule, runs)
    false_kills = max(left_total["false_kills_upper"], tuned["false_kills_upper"])
    wrong = f"{left_total['killed']} of {left_total['given_up']}"
    print(f"\nOf the seeds given up when their study was left out {wrong} would have grokked,")
    print(f"at most {false_kills:.2%} (FALSE_KILLS_UPPER, now {FALSE_KILLS_UPPER:.2%})")
    if propose:
        print(f"\n{proposal(rule, false_kills, runs)}")
    return {
        "code": code_version(),
        "rule": {"checkpoints": HOPELESS.checkpoints, "studies": rows, "all": total},
        "tuning": {"later": LATER, "closer": CLOSER, "enough": ENOUGH},
        "left_out": {"studies": left, "all": left_total},
        "tuned": {"all": tuned, "studies": {name: row(rule, g) for name, g in groups.items()}},
        "false_kills_upper": false_kills,
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("curves", type=Path, nargs="+", help="homes or folders")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--propose", action="store_true", help="print the rule tuned on all studies")
    args = parser.parse_args(words)
    if args.json and not args.json.parent.is_dir():
        wrong_use(f"{args.json}: no such folder")
    try:
        runs, left_out = read(args.curves)
    except ValueError as error:
        wrong_use(str(error))
    if left_out:
        print("left out, not complete: " + ", ".join(f"{n} {name}" for name, n in sorted(left_out.items())))
    result = report(runs, args.propose) | {"not_complete": left_out}
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def wrong_use(what: str) -> NoReturn:
    print(f"error: {what}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
