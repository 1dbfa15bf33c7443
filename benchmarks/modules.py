"""Steps/s of ordinary modules by their tapes against torch, a thread each, in turns.

    python -m benchmarks.modules [--turns 5] [--seconds 0.5] [--no-compile] [NAME ...]

A step is forward, backward and AdamW of one seed. Torch's ways: the usual loop, the same with torch.compile, and 16
or 64 seeds at once by vmap. Their problems lie ready; the engine draws its own. In a turn every way is timed once; a
row has the median over the turns. `ratio`: the tape's steps/s by those of torch's fastest way.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional as F

from benchmarks.throughput import commit, processor
from tests.own_modules.recorded_nets import GPT_23, GPT_SMALL, GPT_SUM, MLP_97, MLP_LARGER, PARITY, Wrapped
from trainer import Bank, Pair, Recipe, Seed
from trainer.engine.native import EngineBackend, choice_of

CASES = {
    "GPT d8, 10-digit addition": (GPT_SUM, 256),
    "GPT d4, 10-digit addition": (GPT_SMALL, 256),
    "GPT d8, mod 23": (GPT_23, 256),
    "GPT d16, parity of 10": (PARITY, 256),
    "MLP d8 h16, mod 97": (MLP_97, 512),
    "MLP d16 h48, mod 97": (MLP_LARGER, 512),
}
"""Modules by name, and the problems of a step."""
SEEDS = 16
LR, DECAY, BETAS = 1e-3, 1e-2, (0.9, 0.98)


def by_tape(spec: Wrapped, batch: int) -> Callable[[], int]:
    """Return what trains 16 seeds by ten steps, and says how many steps of a seed that is."""
    recipe = Recipe(steps=10_000, batch=batch, eval_every=10, warmup=10, lr=LR)
    bank = Bank(spec, [Pair(recipe, Seed.of(n)) for n in range(SEEDS)])
    assert isinstance(bank.backend, EngineBackend), choice_of(spec).why

    def train() -> int:
        bank.backend.train(bank.state, bank.hyper, 10)
        return 10 * SEEDS

    return train


def tokens_of(spec: Wrapped, batch: int) -> Tensor:
    return torch.randint(spec.tokens, (batch, spec.prompt + spec.answers))


def loss_of(spec: Wrapped, logits: Tensor, tokens: Tensor) -> Tensor:
    asked = slice(-spec.answers, None)
    return F.cross_entropy(logits[:, asked].flatten(0, 1), tokens[:, asked].flatten())


def by_loop(spec: Wrapped, batch: int, compiled: bool) -> Callable[[], int]:
    """Return a step of the usual script."""
    module = spec.make()
    optimiser = torch.optim.AdamW(module.parameters(), lr=LR, weight_decay=DECAY, betas=BETAS, fused=True)
    tokens = tokens_of(spec, batch)
    forward = torch.compile(module, dynamic=False) if compiled else module

    def train() -> int:
        loss = loss_of(spec, forward(tokens[:, :-1]), tokens)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return 1

    return train


def by_vmap(spec: Wrapped, batch: int, seeds: int) -> Callable[[], int]:
    """Return a step of many seeds at once."""
    module = spec.make()
    state = [torch.stack([spec.initial(n) for n in range(seeds)]), *torch.zeros(2, seeds, spec.params)]
    tokens = torch.stack([tokens_of(spec, batch) for _ in range(seeds)])

    def loss(theta_P: Tensor, tokens_BT: Tensor) -> Tensor:
        weights = {name: t[0] for name, t in spec.layout.split(theta_P[None]).items()}
        return loss_of(spec, functional_call(module, weights, (tokens_BT[:, :-1],)), tokens_BT)

    gradient = vmap(grad_and_value(loss))

    def train() -> int:
        theta, first, second = state
        slope, _ = gradient(theta, tokens)
        first = torch.lerp(slope, first, BETAS[0])
        second = torch.lerp(slope * slope, second, BETAS[1])
        state[:] = [theta * (1 - LR * DECAY) - LR * first / (second.sqrt() + 1e-8), first, second]
        return seeds

    return train


def rate(train: Callable[[], int], seconds: float) -> float:
    """Return the steps of a seed that are trained in a second of this thread's time."""
    done, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds or not done:
        done += train()
    return done / spent


def measured(spec: Wrapped, batch: int, turns: int, seconds: float, compiled: bool) -> dict[str, Any]:
    """Return the median steps/s of every way."""
    ways = {
        "tape": by_tape(spec, batch),
        "loop": by_loop(spec, batch, False),
        **({"compiled": by_loop(spec, batch, True)} if compiled else {}),
        **{f"vmap {seeds}": by_vmap(spec, batch, seeds) for seeds in (16, 64)},
    }
    for train in ways.values():
        train()  # what is compiled is compiled here
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, train in ways.items():
            rates[name].append(rate(train, seconds))
    found = {name: median(each) for name, each in rates.items()}
    best = max(number for name, number in found.items() if name != "tape")
    return {**{name: round(number) for name, number in found.items()}, "ratio": round(found["tape"] / best, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({"machine": processor(), "commit": commit(), "torch": torch.__version__}))
    for name in options.names or CASES:
        spec, batch = CASES[name]
        row = measured(spec, batch, options.turns, options.seconds, not options.no_compile)
        about = {"module": name, "numbers": spec.params, "batch": batch, "way": choice_of(spec).why}
        print(json.dumps({**about, **row}), flush=True)


if __name__ == "__main__":
    main()
