"""What becomes of seeds, read from their θ at every evaluation: states, transitions, screens, pictures.

    PYTHONPATH=. python lab/2026-11-22-what-luck-is/luck.py FOLDER -o FOLDER [--pictures FOLDER] [--moved FOLDER]

Reads what lab/scripts/paths.py kept of complete seeds (and of `moved`, one field changed at a time) and
writes a row a seed to screen-256.csv: outcome, and at some steps the best token accuracy so far and each
probe. Prints the table of screens, the transitions between states, and what each field moved.

Axes: N seed, E evaluation, R probe, P parameters.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import torch
from screens import Run, report  # beside this file

from model import Spec, preset
from trainer import Seed
from trainer.data.problems import selection
from trainer.recipe import Recipe
from trainer.step import step
from trainer.stopping import Rung
from trainer.stopping.hopeless import full_length_from

ODD, EVEN, LEFT = 0.9, 0.5, 0.35
"""An odd code reads at least so much, an even one at most; this token accuracy is off the plateau."""
STEPS = (1_000, 3_000, 5_000, 12_000, 20_000, 40_000, 60_000)
STATES = ("even", "between", "odd", "left", "basin", "grokked")
"""even: an even code; between: neither; odd: an odd code on the plateau; left: an odd code, off the plateau
and outside the basin; basin; grokked: perfect once, whatever followed. A seed is in the last that holds.
"""


@dataclass(frozen=True)
class Paths:
    """Some seeds of one configuration."""

    seeds: np.ndarray
    theta_NEP: np.ndarray
    exact_NE: np.ndarray
    """Best so far, like token_NE; behind a seed's end as it was there."""
    token_NE: np.ndarray
    probes_NER: np.ndarray
    steps: np.ndarray
    grok_step: np.ndarray

    @property
    def evaluations(self) -> int:
        return self.exact_NE.shape[1]


def load(files: Sequence[Path], spec: Spec, every: int = 1_000) -> Paths:
    """What is kept in some files, in order of the seeds."""
    arrays = [np.load(f) for f in files]
    whole = {k: np.concatenate([d[k] for d in arrays]) for k in ("init_seed", "theta", "curve", "steps", "grok_step")}
    order = np.argsort(whole["init_seed"])
    whole = {k: v[order] for k, v in whole.items()}
    theta = whole["theta"]
    for n, steps in enumerate(whole["steps"]):  # who has ended stays what it was
        theta[n, steps // every :] = theta[n, steps // every - 1]
    count, evaluations, params = theta.shape
    read = spec.read(torch.from_numpy(theta).reshape(-1, params)).float().numpy()
    exact, token = (np.fmax.accumulate(whole["curve"][..., i], axis=1) for i in (0, 1))
    shape = (count, evaluations, -1)
    numbers = whole["init_seed"], theta, exact, token, read.reshape(shape), whole["steps"], whole["grok_step"]
    return Paths(*numbers)


def states(paths: Paths, every: int = 1_000) -> np.ndarray:
    """The state of each seed at each evaluation, as its place in STATES [N, E]."""
    odd, basin = paths.probes_NER[..., 0], paths.probes_NER[..., 1]
    step_E = (np.arange(paths.evaluations) + 1) * every
    state_NE = np.where(odd <= EVEN, 0, 1)
    state_NE[odd > ODD] = 2
    state_NE[(odd > ODD) & (paths.token_NE >= LEFT)] = 3
    state_NE[basin > 0] = 4
    grok = paths.grok_step[:, None]
    state_NE[(grok >= 0) & (step_E >= grok)] = 5
    return state_NE


class Column:
    """What a θ, of 57p or another spec whose attention reads one number, does with the column after answer
    digit 5 in the selection problems.
    """

    def __init__(self, spec: Spec, at: int = 5):
        tokens = step.tokens_of(spec, *selection())[0][: spec.prompt - 1 + spec.answers].long()
        self.spec, self.at, self.tokens = spec, at, tokens
        x, y, z = (tokens[first : first + 11].numpy() for first in (0, 11, 22))
        self.total = x[at] + y[at] + (z[at] - x[at] - y[at]) % 10
        """x + y and the carry, 0 to 19."""
        ones = np.ones_like(self.total)
        self.parts = np.stack([x[at] + y[at], x[at - 1] + y[at - 1], z[at - 1], ones], 1).astype(float)

    def read(self, theta_P: torch.Tensor) -> tuple[float, float, np.ndarray]:
        """How well what attention reads is x + y plus a part of the column before (R²), that part, and each
        hidden unit's mean input for a total of 0 to 19 [2, 20].
        """
        wide = self.spec.expand(theta_P[None].double())
        channel = self._attended(wide)
        fit, *_ = np.linalg.lstsq(self.parts, channel.numpy(), rcond=None)
        rest = channel.numpy() - self.parts @ fit
        place = wide["positions"][0, :, self.at]
        own = wide["table"][0][:, self.tokens[22 + self.at - 1]]
        stream = torch.cat([own, place[:, None].expand(-1, own.shape[1])])
        stream = stream + wide["write"][0, :, 0][:, None] * channel
        inputs = (wide["fc1"][0] @ (stream / torch.sqrt((stream**2).mean(0) + 1e-5))).numpy()
        means = np.array([[unit[self.total == n].mean() for n in range(20)] for unit in inputs])
        return 1 - rest.var() / channel.numpy().var(), fit[1] / fit[0], means

    def _attended(self, wide: dict[str, torch.Tensor]) -> torch.Tensor:
        """What attention reads at the place of answer digit 5 [B]."""
        form, read = wide["attention"][0, 0, self.at][:, None], wide["values"][0, 0][self.tokens]
        if "scale" not in wide:  # on a circle these are the weights
            return (form * read).sum(0)
        here = self.spec.prompt - 1 + self.at
        scale = wide["scale"][0][: len(self.tokens)].gather(1, self.tokens)
        scores = (form * scale * scale[here])[: here + 1]
        return (scores.softmax(0) * (scale * read)[: here + 1]).sum(0)

    def facts(self, theta_P: torch.Tensor) -> dict[str, str]:
        """The same as columns of a row: a unit is `up` that is off at a total of 8, on at 11, or `down`."""
        fits, part, means = self.read(theta_P)
        words = ["up" if m[8] < 0 < m[11] else "down" if m[8] > 0 > m[11] else "-" for m in means]
        return {"sum_r2": f"{fits:.4f}", "before": f"{part:.4f}", "unit_0": words[0], "unit_1": words[1]}


def rows_of(paths: Paths, names: Sequence[str], every: int = 1_000) -> list[dict[str, Any]]:
    """A row a seed. sum_r2, before, unit_0 and unit_1: of θ at the grok step or the end, see Column."""
    rows, column = [], Column(preset("57p"))
    for n, seed in enumerate(paths.seeds):
        grok = int(paths.grok_step[n])
        row: dict[str, Any] = {
            "seed": int(seed), "outcome": "grokked" if grok >= 0 else "failed", "steps": int(paths.steps[n]),
            "grok_step": grok if grok >= 0 else "",
        }  # fmt: skip
        last = (grok if grok >= 0 else int(paths.steps[n])) // every - 1
        row |= column.facts(torch.from_numpy(paths.theta_NEP[n, last]))
        for at in (s for s in STEPS if s // every <= paths.evaluations):
            e = at // every - 1
            row[f"token_{at}"] = f"{paths.token_NE[n, e]:.4f}"
            row |= {f"{name}_{at}": f"{paths.probes_NER[n, e, r]:.4f}" for r, name in enumerate(names)}
        rows.append(row)
    return rows


def runs_of(paths: Paths, recipe: Recipe, names: Sequence[str]) -> list[Run]:
    """The seeds as screens.py replays them."""
    step_E = (np.arange(paths.evaluations) + 1) * recipe.eval_every
    runs = []
    for n, seed in enumerate(paths.seeds):
        ran = int(paths.steps[n]) // recipe.eval_every
        runs.append(
            Run(
                seed=Seed.of(int(seed)), budget=recipe.steps,
                taught=full_length_from(recipe.curriculum), steps=int(paths.steps[n]),
                grok_step=int(paths.grok_step[n]) if paths.grok_step[n] >= 0 else None,
                step_E=step_E[:ran], exact_E=paths.exact_NE[n, :ran], token_E=paths.token_NE[n, :ran],
                probes={name: paths.probes_NER[n, :ran, r] for r, name in enumerate(names)},
            )
        )  # fmt: skip
    return runs


def transitions(state_NE: np.ndarray, ends: Sequence[int], every: int = 1_000) -> str:
    """From each state at a step, how many are in which at the next, as Markdown."""
    lines = []
    for one, other in pairwise(ends):
        lines += [f"\n| {one:,} to {other:,} | " + " | ".join(STATES) + " | all |", "|---" * 8 + "|"]
        before, after = state_NE[:, one // every - 1], state_NE[:, other // every - 1]
        for s, name in enumerate(STATES):
            counts = Counter(after[before == s].tolist())
            if sum(counts.values()):
                cells = " | ".join(str(counts[t]) for t in range(len(STATES)))
                lines.append(f"| {name} | {cells} | {sum(counts.values())} |")
    return "\n".join(lines)


def switches(rows: Sequence[dict[str, Any]]) -> str:
    """What the hidden units of seeds with an odd code had become, of winners and of the others."""
    kinds = {("down", "up"): "one each way", ("-", "down"): "one", ("-", "up"): "one", ("-", "-"): "none"}
    last = max(s for s in STEPS if f"odd_{s}" in rows[0])
    odd = [r for r in rows if r["outcome"] == "grokked" or float(r[f"odd_{last}"]) > ODD]
    counts = Counter(
        (r["outcome"], kinds.get(tuple(sorted((r["unit_0"], r["unit_1"]))), "both the same way")) for r in odd
    )
    fits = [float(r["sum_r2"]) for r in odd]
    even = [float(r["sum_r2"]) for r in rows if r not in odd]
    said = f"odd: R² {min(fits):.4f} or more; the others: at most {max(even, default=0):.4f}"
    return "\n".join([said, *(f"{outcome}, {kind}: {n}" for (outcome, kind), n in sorted(counts.items()))])


def mcnemar(more: int, fewer: int) -> float:
    """The exact two-sided p of so many discordant pairs either way."""
    n, k = more + fewer, min(more, fewer)
    return min(1.0, 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0


def moved(folder: Path, spec: Spec, base: str, arms: dict[str, str]) -> str:
    """Each arm beside the first, on the same seeds, at the last evaluation kept, as Markdown: odd codes,
    seeds off the plateau, seeds in the basin. arms: names by configuration's key.
    """

    def facts(key: str) -> list[np.ndarray]:
        p = load(sorted(folder.glob(f"{key}-*.npz")), spec)
        return [p.probes_NER[:, -1, 0] > ODD, p.token_NE[:, -1] >= LEFT, p.probes_NER[:, -1, 1] > 0]

    first = facts(base)
    lines = ["| changed | odd | off the plateau | in the basin |", "|---|---|---|---|"]
    for key, name in arms.items():
        if not list(folder.glob(f"{key}-*.npz")):
            continue
        cells = []
        for arm, rows_of_arm in zip(facts(key), first, strict=True):
            more, fewer = int((arm & ~rows_of_arm).sum()), int((rows_of_arm & ~arm).sum())
            said = f"{int(arm.sum())} of {len(arm)}"
            beside = f" (+{more} −{fewer}, p = {mcnemar(more, fewer):.2g})"
            cells.append(said + beside * (key != base))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--moved", type=Path)
    args = parser.parse_args()
    from search.study.file import load_study
    from search.study.trial import Configuration

    here, spec = Path(__file__).parent, preset("57p")
    names, recipe = list(spec.probes()), load_study(str(here / "screen-256.yaml")).base_recipe
    paths = load(sorted(args.folder.glob("*-3*.npz")), spec, recipe.eval_every)
    rows = rows_of(paths, names)
    with (args.out / "screen-256.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    state_NE = states(paths)
    print(switches(rows))
    print(f"{len(paths.seeds)} seeds, {(paths.grok_step >= 0).sum()} grokked\n")
    looks = [Rung(5_000, (("token", 0.35, float("inf")),)), Rung(3_000, (("odd", 0.9, float("inf")),))]
    report(looks, runs_of(paths, recipe, names))
    print(transitions(state_NE, (1_000, 3_000, 6_000, 12_000, 20_000, 40_000, 60_000)))
    if args.moved:
        study = load_study(str(here / "moved.yaml"))
        listed = [Configuration(*c) for c in study.listed]
        changes = [", ".join(f"{k} {v}" for k, v in e.recipe.items()) or "nothing" for e in study.configurations]
        changes[-1] = "all to the published recipe"
        arms = dict(zip((c.key for c in listed), changes, strict=True))
        print("\n" + moved(args.moved, spec, listed[0].key, arms))
    if args.pictures:
        from luck_pictures import draw

        draw(paths, state_NE, spec, args.pictures)


if __name__ == "__main__":
    main()
