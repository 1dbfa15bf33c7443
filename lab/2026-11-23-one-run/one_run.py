"""Does a discovered form train from scratch, and does one uninterrupted run from random values reach it?

Plan, written before the first run. Seeds 90001 to 90064 in every arm (initial values and data), recipe
`57p-faded`, 60,000 steps; the hopeless rule gives up what will not grok; a seed given up counts as failed.
- `without N`: the set of N numbers that `compress` found from 54p's seed 800 (lab/certificates), without a
  ramp: its N numbers are trained from the projection of the base's initial values.
  `N@P` is the set of N on the way to certificate P; 22 and 12 tie across tensors, 18@17p and 17 inside them.
- `with N`: trained wide as 54p from its own initial values for 60,000 steps; what has grokked by then is
  folded to 46p (an exact rewriting) and goes on into the set of N numbers: 12,000 steps, half of them a ramp.
- `long N`: by way of the sets that N names, 36,000 steps for the first, 12,000 for others, at a learning
  rate of 0.005. Chosen on the four of 90001 to 90016 that grok wide; the other 48 confirm it.
- `staged N`: the same as `with`, but by way of every set of that descent's line, 12,000 steps each.
A seed counts where it gets all 5,000 selection problems right on the set at some evaluation; nothing is
chosen in between. Both arms of a set are compared on the same seeds. It would refute "the ramp is what
reaches the form" if `without` reached as many. AdderBoard's 10,010 are read once at the end for what counted.

The same with the recipe that groks most often, written before any of it was trained: arms that begin with
`robust-`, seeds 800001 to 800064, which no study has used, into OUT.csv of their own (one-run-robust.csv).
The wide stage is 54p with small-64's recipe (57p-robust's), screened at step 26,000 as there, and ends where
a seed groks; whoever does not counts as failed. Arms, each with all 64 seeds:
- `robust-long 15p+7p`, as `long`: the main one. Before, 10 of 64. If grokking wide is what decided, some half
  of 64 now; it is refuted, that a better wide stage multiplies, if the difference's interval (independent
  seeds, Newcombe) has 0 in it. The row of `robust-long 15p` is the same run's, where it leaves the 15.
- `robust-with 22`, `robust-with 12`: before, 0 of 16 each. `robust-without 22`, `15p` and `7p`: small-64's
  recipe for 46p from its random values, ties held from step 0 on, no ramp; before, 0 of 32 for 22.
- `trained 22`: from seed 800's trained θ by the ramp of `with`, data seeds 800001 to 800064.
What `robust-long` came to, 15 of the 25 that grokked wide, and 0 % for the other ten, led to two more, again
written before they ran. Of the ten six are mirror images (codes that turn the other way, or a norm that is
negative on a position's axis), which no set with signs and axes can bear:
- `mirrored-long 15p+7p`: the same seeds, the mirror images rewritten after the fold (mirror.py), the others
  bit for bit as they were, so that their rows are `robust-long`'s. Expected: six more. Post hoc.
- `fresh-long 15p+7p`: the same on seeds 800065 to 800128, for the rate.
What a stage leaves nearly right can be finished by curvature, within its set (recipe.finish_above). Four arms
more, seeds 800129 to 800192, which no study has used, mirror images rewritten; written before any ran:
- `finished-long 13p+6p` and `15p+7p`: as `fresh-long`, each stage with finish_above 0.5; into the smallest
  sets that are known, and those of before. `plain-long`, of the same: without. Asked: does one seed of 64
  reach the 13, and the 6, at all; do more reach the 7 with finishing than without, on the same seeds
  (McNemar, 5 %). That the 6 can be reached in one run is refuted, as far as 64 seeds go, if none of them
  does.

    python lab/2026-11-23-one-run/one_run.py OUT.csv without 22 [64]   # goes on with the seeds that OUT.csv lacks
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from lab.scripts.mirror import mirrored
from model import preset, verify
from model.fold import fold
from model.spec import Spec
from model.tied import Tied, Ties, constrained, free, project, tie
from search.study.file import load_study
from trainer import FUTILITY_RULE, Bank, Pair, Recipe, Result, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.recipe.screen import Rung

LAB = Path(__file__).parents[1]
FIRST, LATER = (36_000, 0.005), (12_000, 0.005)  # steps and learning rate into the sets of the arm `long`
QUALIFIED = 0.99  # from here on a seed's θ is kept as a checkpoint beside the table
FIELDS = (
    *("arm", "numbers", "configuration", "init_seed", "data_seed"),
    *("outcome", "grok_step", "best_exact", "correct"),
)  # fmt: skip
WIDE, BASE = preset("54p"), preset("46p")
ROBUST, TRAINED, MIRRORED, FRESH = "robust-", "trained", "mirrored-", "fresh-"
FINISHED, PLAIN = "finished-", "plain-"


@dataclass(frozen=True)
class Plan:
    """Seeds, and a study whose recipe and screen the wide stage has."""

    seeds: range
    study: Path
    chunk: int

    @cached_property
    def recipe(self) -> Recipe:
        recipe: Recipe = load_study(str(self.study)).listed[0][1]
        return recipe

    @cached_property
    def rungs(self) -> tuple[Rung, ...]:
        rungs: tuple[Rung, ...] = tuple(load_study(str(self.study)).stop.rungs)
        return rungs


FADED = Plan(range(90001, 90065), LAB / "2026-11-20-recipe-search" / "57p-faded.yaml", 16)
SMALL = LAB / "2026-11-23-fewer-numbers" / "small-64.yaml"
BETTER, LATEST, LAST = (Plan(range(first, first + 64), SMALL, 64) for first in (800001, 800065, 800129))


def plan_of(arm: str) -> Plan:
    if arm.startswith((FINISHED, PLAIN)):
        return LAST
    if arm.startswith(FRESH):
        return LATEST
    return BETTER if arm.startswith((ROBUST, MIRRORED)) or arm == TRAINED else FADED


def line(numbers: str) -> list[Ties]:
    """The sets of a certificate's descent down to so many numbers: `22`, or `18@17p`, which names it; of a
    certificate by its name, `15p`, its own; of several, `15p+7p`, one after the other.
    """
    if "+" in numbers:
        return [its for part in numbers.split("+") for its in line(part)]
    if (LAB / "certificates" / numbers).is_dir():
        spec = Checkpoint.load(LAB / "certificates" / numbers).spec
        assert isinstance(spec, Tied) and spec.base == BASE
        return [spec.ties]
    count, _, name = numbers.partition("@")
    for folder in sorted(p.parent for p in (LAB / "certificates").glob(f"{name or '*'}/checkpoint.json")):
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
    raise SystemExit(f"no descent of lab/certificates goes by {numbers} numbers")


def into(recipe: Recipe, steps: int = 12_000, lr: float = 0.003) -> Recipe:
    """From a grokked θ into ties: as a descent does it, in 12,000 steps."""
    return Recipe(
        steps=steps, ramp=steps // 2, lr=lr, warmup=200, weight_decay=0.0, curriculum=(), carry_mix=0.3,
        fade_start=steps, fade_end=steps, hold=steps, eval_every=recipe.eval_every,
    )  # fmt: skip


def stages(arm: str, sets: list[Ties]) -> list[tuple[Ties, Recipe]]:
    """How an arm goes into each of its sets, one after the other."""
    usual = plan_of(arm).recipe
    if not arm.endswith("long"):
        return [(ties, into(usual)) for ties in sets]
    found = [(ties, into(usual, *(LATER if n else FIRST))) for n, ties in enumerate(sets)]
    if arm.startswith(FINISHED):
        found = [(ties, replace(recipe, finish_above=0.5)) for ties, recipe in found]
    return found


def trained(bank: Bank) -> Bank:
    while bank.advance():
        pass
    return bank


def without(numbers: str, seeds: list[int]) -> Iterator[dict[str, object]]:
    spec = tie(BASE, line(numbers)[-1])
    pairs = [Pair(FADED.recipe, Seed.of(s)) for s in seeds]
    bank = trained(Bank(spec, pairs, slots=FADED.chunk, futility=FUTILITY_RULE))
    for n, seed in enumerate(seeds):
        its = bank.result(n)
        right = verify(spec, its.theta_P).correct if its.grok_step is not None else ""
        yield {"init_seed": seed, "data_seed": seed, "outcome": its.outcome.value,
               "grok_step": its.grok_step or "", "best_exact": its.best_exact, "correct": right}  # fmt: skip


def held(numbers: str, seeds: list[int]) -> Iterator[dict[str, object]]:
    """As `without`, with the better recipe: it recycles units of 46p, so its numbers are those of 46p, tied
    from the first step on.
    """
    ties, plan = line(numbers)[-1], BETTER
    pairs = [Pair(plan.recipe, Seed.of(s), ties=ties, rungs=plan.rungs) for s in seeds]
    bank, spec = trained(Bank(BASE, pairs, slots=32, futility=None)), tie(BASE, ties)
    for n, seed in enumerate(seeds):
        its = bank.result(n)
        won = its.grok_step is not None
        right = verify(spec, project(ties, its.theta_P[None])[0]).correct if won else ""
        yield {"init_seed": seed, "data_seed": seed, "outcome": its.outcome.value,
               "grok_step": its.grok_step or "", "best_exact": its.best_exact, "correct": right}  # fmt: skip


def wide(plan: Plan, seeds: list[int], kept: Path) -> dict[int, torch.Tensor]:
    """θ of 54p for each of the seeds that grokked; trained once, kept beside the table."""
    if not kept.exists():
        pairs = [Pair(plan.recipe, Seed.of(s), rungs=plan.rungs) for s in seeds]
        rule = None if plan.rungs else FUTILITY_RULE
        bank = trained(Bank(WIDE, pairs, slots=min(32, plan.chunk), futility=rule))
        found = {s: bank.result(n) for n, s in enumerate(seeds)}
        rows = {f"{s}.{r.outcome.value}.{r.grok_step or ''}": r.theta_P for s, r in found.items()}
        save_file(rows, kept)
    loaded = {int(k.split(".")[0]): (k, t) for k, t in load_file(kept).items()}
    return {s: t for s, (k, t) in loaded.items() if k.split(".")[2]}


def with_ramp(arm: str, numbers: str, seeds: list[int], kept: Path) -> Iterator[dict[str, object]]:
    """Wide, folded, and into one set after the other; of the arms with the better recipe a row after each."""
    plan, sets = plan_of(arm), line(numbers)[-1:] if arm.endswith("with") else line(numbers)
    into_sets = stages(arm, sets)
    grokked = wide(plan, seeds, kept)
    theta = {s: fold(WIDE, t) for s, t in grokked.items()}
    theta_P = {s: its.theta_P for s, its in theta.items() if its.spec == BASE}
    if arm.startswith((MIRRORED, FRESH, FINISHED, PLAIN)):
        theta_P = {s: mirrored(BASE, t) for s, t in theta_P.items()}
    if arm.startswith(MIRRORED):
        theta_P = {s: t for s, t in theta_P.items() if not torch.equal(t, theta[s].theta_P)}
    names = numbers.split("+")
    for stage, (ties, recipe) in enumerate(into_sets):
        going = list(theta_P)
        pairs = [Pair(recipe, Seed.of(s), tuple(theta_P[s].tolist()), ties) for s in going]
        bank = trained(Bank(BASE, pairs, slots=min(32, plan.chunk), futility=None)) if pairs else None
        results = {s: bank.result(n) for n, s in enumerate(going)} if bank else {}
        theta_P = {s: its.theta_P for s, its in results.items()}
        if stage == len(into_sets) - 1:
            yield from judged(numbers, seeds, into_sets, results, grokked, kept)
        elif plan is not FADED and len(names) == len(into_sets):
            done = into_sets[: stage + 1]
            yield from judged("+".join(names[: stage + 1]), seeds, done, results, grokked, kept)


def judged(
    numbers: str,
    seeds: list[int],
    into_sets: list[tuple[Ties, Recipe]],
    results: dict[int, Result],
    grokked: dict[int, torch.Tensor],
    kept: Path,
) -> Iterator[dict[str, object]]:
    """A row a seed; what is at least qualified is kept as a checkpoint."""
    last, spec = into_sets[-1][0], tie(BASE, into_sets[-1][0])
    for seed in seeds:
        reached = results[seed].best_exact if seed in results else 0.0
        right = ""
        if reached >= QUALIFIED:
            its = project(last, results[seed].theta_P[None])[0]
            right = str(verify(spec, its).correct) if reached == 1.0 else ""
            name = f"{spec.params}p-{seed}-{'-'.join(str(r.steps // 1000) for _, r in into_sets)}"
            papers(spec, its, results[seed], into_sets).save(kept.with_name(name))
        outcome = "grokked" if reached == 1.0 else "failed"
        yield {"numbers": numbers, "init_seed": seed, "data_seed": seed, "outcome": outcome,
               "grok_step": "wide" if seed in grokked else "",
               "best_exact": reached, "correct": right}  # fmt: skip


def from_trained(numbers: str, seeds: list[int]) -> Iterator[dict[str, object]]:
    """From seed 800's trained θ into a set, with so many data seeds."""
    parent = Checkpoint.load(LAB / "certificates" / "46p")
    ties, start = line(numbers)[-1], tuple(parent.theta_P.tolist())
    pairs = [Pair(into(BETTER.recipe), Seed(800, s), start, ties) for s in seeds]
    bank, spec = trained(Bank(BASE, pairs, slots=32, futility=None)), tie(BASE, ties)
    for n, seed in enumerate(seeds):
        its = bank.result(n)
        won = its.best_exact == 1.0
        right = verify(spec, project(ties, its.theta_P[None])[0]).correct if won else ""
        yield {"init_seed": 800, "data_seed": seed, "outcome": "grokked" if won else "failed",
               "grok_step": "", "best_exact": its.best_exact, "correct": right}  # fmt: skip


def papers(spec: Spec, theta_P: torch.Tensor, result: Result, into_sets: list[tuple[Ties, Recipe]]) -> Checkpoint:
    """Return what a seed came to, as a checkpoint with the stages before the last, which `adder-search rerun` trains.

    A mirror image that was rewritten after the fold is in none of them: of such a seed it comes to another θ.
    """
    seed = result.pair.seed.init_seed
    plan = next(p for p in (FADED, BETTER, LATEST, LAST) if seed in p.seeds)
    specs = [WIDE, *(tie(BASE, ties) for ties, _ in into_sets)]
    recipes = [plan.recipe, *(recipe for _, recipe in into_sets)]
    before = [{"spec": s.as_dict(), "recipe": r.as_dict()} for s, r in zip(specs, recipes, strict=True)][:-1]
    return Checkpoint(
        spec=spec, theta_P=theta_P, recipe=recipes[-1].as_dict(), seed=asdict(Seed.of(seed)),
        step=result.best_step, metrics={"best_exact": result.best_exact},
        provenance={"trained": "from scratch", "stages": before, "script": "lab/2026-11-23-one-run/one_run.py"},
    )  # fmt: skip


def rows_of(arm: str, numbers: str, seeds: list[int], beside: Path) -> Iterator[dict[str, object]]:
    """What an arm comes to for some seeds."""
    if arm == "without":
        return without(numbers, seeds)
    if arm == f"{ROBUST}without":
        return held(numbers, seeds)
    if arm == TRAINED:
        return from_trained(numbers, seeds)
    return with_ramp(arm, numbers, seeds, beside.with_name(f"wide-{seeds[0]}.safetensors"))


def _unless_better(row: dict[str, object], before: list[dict[str, str]]) -> dict[str, object]:
    """The row of a seed, or `robust-long`'s of one that is not trained again."""
    its = [r for r in before if r["arm"] == "robust-long" and r["numbers"] == row["numbers"]]
    same = [r for r in its if r["init_seed"] == str(row["init_seed"]) and float(r["best_exact"])]
    return dict(same[0]) if same else row


def main(out: str, arm: str, numbers: str, first_seeds: str = "64") -> None:
    torch.set_num_threads(1)
    path, plan = Path(out), plan_of(arm)
    done = set()
    if path.exists():
        rows = list(csv.DictReader(path.open()))
        done = {int(r["data_seed"]) for r in rows if (r["arm"], r["numbers"]) == (arm, numbers)}
    for first in range(0, min(int(first_seeds), len(plan.seeds)), plan.chunk):
        seeds = [s for s in plan.seeds[first : first + plan.chunk] if s not in done]
        if not seeds:
            continue
        named = {"arm": arm, "numbers": numbers}
        before = list(csv.DictReader(path.open())) if arm.startswith(MIRRORED) else []
        made = [{**named, **row} for row in rows_of(arm, numbers, seeds, path)]
        made = [_unless_better(row, before) for row in made]
        rows_now = [{**row, "arm": arm, "configuration": f"{arm} {row['numbers']}"} for row in made]
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerows(rows_now)


if __name__ == "__main__":
    main(*sys.argv[1:])
