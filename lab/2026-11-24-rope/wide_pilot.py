"""Wide first for the rope family: the pilot that README.md tells of. It had no plan. `narrow 36p` is refused now.

python lab/2026-11-24-rope/wide_pilot.py wide PRESET       # eight hidden units, seeds 101 to 132
python lab/2026-11-24-rope/wide_pilot.py narrow PRESET [MIDDLE]    # then two, some by way of MIDDLE units; eight seeds
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from lab.plans import load_plan
from model import make_spec, preset
from trainer import Bank, Pair, Recipe, Seed
from trainer.recipe.passed import passed
from trainer.recipe.stages import end_of, road_of
from trainer.road import RoadBank

UNITS, STEPS, NARROW_STEPS = 8, 80_000, 30_000
SCALED = {"62p": [], "44p": ["q", "gate", "up", "down"], "36p": ["q", "gate", "up"]}
"""Tensors that begin fifteen times as large, as in rope-six; at 62p the start was left as it is."""
FIRST_NARROWED = {"62p": 101, "44p": 101, "36p": 1}


def wide_recipe(name: str) -> dict[str, Any]:
    """Return rope-six's recipe as plain values, without its restarts, in fewer steps."""
    recipe: Recipe = load_plan("rope-six").listed[0][1]
    fields = recipe.as_dict() | {"steps": STEPS, "grokfast_end": STEPS // 4, "again_at": 0}
    for gone in ("again_unless", "again_most"):
        fields.pop(gone, None)
    return fields | {"init": [[tensor, "scaled", 15] for tensor in SCALED[name]]}


def wide(name: str) -> list[bool]:
    """Train nets with eight units. Return which grokked."""
    spec = make_spec(**{**preset(name).as_dict(), "ffn": UNITS})
    recipe = Recipe(**wide_recipe(name))
    bank = Bank(spec, [Pair(recipe, Seed.of(seed)) for seed in range(101, 133)])
    while bank.advance():
        pass
    return [bank.result(n).outcome == "grokked" for n in range(len(bank.pairs))]


def narrowing(units: int) -> dict[str, Any]:
    """Return a stage that keeps so many units."""

    def ramp(steps: int) -> dict[str, int]:
        return {"steps": steps, "ramp": steps // 2, "fade_start": steps, "fade_end": steps}

    return {
        "name": f"{units} units", "keep": {"units": units}, "tries": 4, "longer_tries": 8,
        "recipe": ramp(NARROW_STEPS), "longer": ramp(2 * NARROW_STEPS),
    }  # fmt: skip


def narrow(name: str, middle: int) -> list[bool]:
    """Train eight seeds wide, and then into two units. Return which grokked at the end."""
    first = {"name": "wide", "model": {"preset": name, "ffn": UNITS}, "recipe": own_fields(wide_recipe(name))}
    stages: Any = [first, *([narrowing(middle)] if middle else []), narrowing(2)]
    recipe = Recipe(
        steps=8_000_000, batch=128, eval_every=1_000, hold=0, beta2=0.95, lr=0.005, lr_floor=0.02, warmup=200,
        weight_decay=0.0, curriculum=(), targeted=0.5, carry_mix=0.0, stages=stages,
    )  # fmt: skip
    seeds = range(FIRST_NARROWED[name], FIRST_NARROWED[name] + 8)
    bank = RoadBank(end_of(road_of(recipe)), [Pair(recipe, Seed.of(seed)) for seed in seeds])
    while bank.advance():
        pass
    results = [bank.result(n) for n in range(len(seeds))]
    for seed, its in zip(seeds, results, strict=True):
        print(seed, its.outcome.value, [stage.stage for stage in passed(its.stages) if stage.grokked], flush=True)
    return [its.outcome == "grokked" for its in results]


def own_fields(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a recipe that a stage gives itself; the others are those of all stages."""
    shared = {"batch", "eval_every", "hold", "beta2", "stages"}
    default = Recipe().as_dict()
    wanted = {"lr", "lr_floor", "warmup", "weight_decay", "curriculum"}
    return {k: v for k, v in recipe.items() if k not in shared and (k in wanted or v != default[k])}


def main(what: str, name: str, middle: str = "0") -> None:
    torch.set_num_threads(1)
    grokked = wide(name) if what == "wide" else narrow(name, int(middle))
    print(what, name, middle, sum(grokked), "of", len(grokked), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
