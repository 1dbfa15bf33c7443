"""Does a discovered form train from scratch, and does one uninterrupted run from random values reach it?

Plan, written before the first run. Seeds 90001 to 90064 in every arm (initial values and data), recipe
`57p-robust`, 60,000 steps; the hopeless rule gives up what will not grok; a seed given up counts as failed.
- `without N`: the set of N numbers that `compress` found from 54p's seed 800 (docs/certificates), without a
  ramp: its N numbers are trained from the projection of the base's initial values.
  `N@P` is the set of N on the way to certificate P; 22 and 12 tie across tensors, 18@17p and 17 inside them.
- `with N`: trained wide as 54p from its own initial values for 60,000 steps; what has grokked by then is
  folded to 46p (an exact rewriting) and goes on into the set of N numbers: 12,000 steps, half of them a ramp.
- `staged N`: the same, but by way of every set of that descent's line, 12,000 steps each.
A seed counts where it gets all 5,000 selection problems right on the set at some evaluation; nothing is
chosen in between. Both arms of a set are compared on the same seeds. It would refute "the ramp is what
reaches the form" if `without` reached as many. AdderBoard's 10,010 are read once at the end for what counted.

    python docs/measurements/one_run.py OUT.csv without 22 [64]   # goes on with the seeds that OUT.csv lacks
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model import rung, verify
from model.fold import fold
from model.spec import Spec
from model.tied import Tied, Ties, constrained, free, project, tie
from search.study.file import load_study
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoint import Checkpoint

DOCS = Path(__file__).parents[1]
SEEDS, CHUNK = range(90001, 90065), 16
QUALIFIED = 0.99  # from here on a seed's θ is kept as a checkpoint beside the table
FIELDS = ("arm", "numbers", "seed", "outcome", "grok_step", "best_exact", "correct")
WIDE, BASE = rung("54p"), rung("46p")


def line(numbers: str) -> list[Ties]:
    """The sets of a certificate's descent down to so many numbers: `22`, or `18@17p`, which names it."""
    count, _, name = numbers.partition("@")
    for folder in sorted((DOCS / "certificates").glob(name or "*")):
        checkpoint, ties, found = Checkpoint.load(folder), free(BASE.params), []
        if checkpoint.provenance.get("compressed_from", {}).get("model") != "46p":
            continue
        for stage in checkpoint.provenance.get("descent", ()):
            before = Tied(base=BASE, ties=ties).spelt()
            still = [text for text in before if text not in stage.get("loosened", ())]
            ties = constrained(BASE, [*still, *stage["tied"]])
            found.append(ties)
            if stage["numbers"] == int(count):
                return found
    raise SystemExit(f"no descent of docs/certificates goes by {numbers} numbers")


def robust() -> Recipe:
    recipe: Recipe = load_study(str(DOCS.parent / "studies" / "57p-robust.yaml")).listed()[0][1]
    return recipe


def into(recipe: Recipe) -> Recipe:
    """From a grokked θ into ties: as a descent does it, in 12,000 steps."""
    return Recipe(
        steps=12_000, ramp=6_000, lr=0.003, warmup=200, weight_decay=0.0, curriculum=(), carry_mix=0.3,
        fade_start=12_000, fade_end=12_000, hold=12_000, eval_every=recipe.eval_every,
    )  # fmt: skip


def trained(bank: Bank) -> Bank:
    while bank.advance():
        pass
    return bank


def without(numbers: str, seeds: list[int]) -> Iterator[dict[str, object]]:
    spec = tie(BASE, line(numbers)[-1])
    bank = trained(Bank(spec, [Pair(robust(), Seed.of(s)) for s in seeds], slots=CHUNK))
    for n, seed in enumerate(seeds):
        its = bank.result(n)
        right = verify(spec, its.theta_P).correct if its.grok_step is not None else ""
        yield {"seed": seed, "outcome": its.outcome.value, "grok_step": its.grok_step or "",
               "best_exact": its.best_exact, "correct": right}  # fmt: skip


def wide(seeds: list[int], kept: Path) -> dict[int, torch.Tensor]:
    """θ of 54p for each of the seeds that grokked; trained once, kept beside the table."""
    if not kept.exists():
        bank = trained(Bank(WIDE, [Pair(robust(), Seed.of(s)) for s in seeds], slots=CHUNK))
        found = {s: bank.result(n) for n, s in enumerate(seeds)}
        rows = {f"{s}.{r.outcome.value}.{r.grok_step or ''}": r.theta_P for s, r in found.items()}
        save_file(rows, kept)
    loaded = {int(k.split(".")[0]): (k, t) for k, t in load_file(kept).items()}
    return {s: t for s, (k, t) in loaded.items() if k.split(".")[2]}


def with_ramp(sets: list[Ties], seeds: list[int], kept: Path) -> Iterator[dict[str, object]]:
    """Wide, folded, and into one set after the other."""
    grokked = wide(seeds, kept)
    theta = {s: fold(WIDE, t) for s, t in grokked.items()}
    theta_P = {s: its.theta_P for s, its in theta.items() if its.spec == BASE}
    spec: Spec = BASE
    exact: dict[int, float] = {}
    for ties in sets:
        if not theta_P:
            break
        recipe, going = into(robust()), list(theta_P)
        pairs = [Pair(recipe, Seed.of(s), tuple(theta_P[s].tolist()), ties) for s in going]
        bank = trained(Bank(BASE, pairs, slots=CHUNK, hopeless=None))
        spec = tie(BASE, ties)
        exact = {s: bank.result(n).best_exact for n, s in enumerate(going)}
        theta_P = {s: bank.result(n).theta_P for n, s in enumerate(going)}
    for seed in seeds:
        reached = exact.get(seed, 0.0)
        right = ""
        if reached == 1.0:
            right = str(verify(spec, project(sets[-1], theta_P[seed][None])[0]).correct)
        if reached >= QUALIFIED:
            its = project(sets[-1], theta_P[seed][None])[0]
            papers(spec, its, seed, reached, sets).save(kept.with_name(f"{spec.params}p-{seed}-{len(sets)}"))
        outcome = "grokked" if reached == 1.0 else "failed"
        yield {"seed": seed, "outcome": outcome, "grok_step": "wide" if seed in grokked else "",
               "best_exact": reached, "correct": right}  # fmt: skip


def papers(spec: Spec, theta_P: torch.Tensor, seed: int, exact: float, sets: list[Ties]) -> Checkpoint:
    """What a seed came to, as a checkpoint: from random values, with everything that it went through."""
    stages = [{"numbers": max(map(abs, t)), **into(robust()).as_dict()} for t in sets]
    run = {"wide": "54p", "recipe": robust().as_dict(), "folded_to": "46p", "then_into": stages}
    return Checkpoint(
        spec=spec, theta_P=theta_P, recipe=into(robust()).as_dict(), seed=asdict(Seed.of(seed)),
        step=60_000 + 12_000 * len(sets), metrics={"best_exact": exact},
        provenance={"trained": "from scratch", "one_run": run, "script": "docs/measurements/one_run.py"},
    )  # fmt: skip


def main(out: str, arm: str, numbers: str, first_seeds: str = "64") -> None:
    torch.set_num_threads(1)
    path = Path(out)
    done = set()
    if path.exists():
        rows = list(csv.DictReader(path.open()))
        done = {int(r["seed"]) for r in rows if (r["arm"], r["numbers"]) == (arm, numbers)}
    for first in range(0, min(int(first_seeds), len(SEEDS)), CHUNK):
        seeds = [s for s in SEEDS[first : first + CHUNK] if s not in done]
        if not seeds:
            continue
        if arm == "without":
            made = without(numbers, seeds)
        else:
            sets = line(numbers) if arm == "staged" else line(numbers)[-1:]
            made = with_ramp(sets, seeds, path.with_name(f"wide-{seeds[0]}.safetensors"))
        rows_now = [{"arm": arm, "numbers": numbers, **row} for row in made]
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerows(rows_now)


if __name__ == "__main__":
    main(*sys.argv[1:])
