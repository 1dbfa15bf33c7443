"""What a part of benchmarks.gpu does in its process: findings, dictionaries, one after another.

Axes: K step of a block, S slot, T position, B problem, P parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import throughput
from benchmarks.timings import timings, whole
from model import Spec, preset
from trainer import Bank, Pair, Recipe, Seed
from trainer.bank import bank
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.engine import programs
from trainer.engine.programs import TorchBackend, block_of
from trainer.engine.replay import Replay

CERTIFICATES = Path(__file__).parents[1] / "docs" / "certificates"
REHEARSED_STEPS = 6  # between evaluations: as few as a recipe allows
OLDER = 5_000  # steps between the slots' ages when tokens are compared: curriculum and fade are at work
QUARTERS = 4
Finding = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """What a process does. `rehearsed`: on a CPU, eager, graphs without CUDA."""

    kind: str
    rung: str
    seeds: int
    batch: int
    precision: str = "float32"
    seconds: float = 3.0
    rehearsed: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.rung}:{self.seeds}" + f":{self.precision}" * (self.precision != "float32")

    @property
    def device(self) -> str:
        return "cpu" if self.rehearsed else "cuda"

    @property
    def recipe(self) -> Recipe:
        more = {"eval_every": REHEARSED_STEPS} if self.rehearsed else {}
        return Recipe(batch=self.batch, **more)


def prepare(part: Part) -> None:
    """What must be so before a bank is made. Nothing is put back: a part has a process of its own."""
    if part.rehearsed:
        programs.Replay = partial(Replay, record=lambda body: body)  # type: ignore[misc, assignment]
    if "isolate_recompiles" not in inspect.signature(torch.compile).parameters:  # torch before 2.13
        plain = torch.compile
        torch.compile = lambda f, *, isolate_recompiles, **how: plain(f, **how)  # type: ignore[assignment]
    if part.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    if part.precision == "bf16":
        spec = type(preset(part.rung))
        spec.forward = in_bfloat16  # type: ignore[method-assign]


def in_bfloat16(spec: Spec, theta_SP: Tensor, tokens_STB: Tensor, first: int) -> list[Tensor]:
    """`Spec.forward`, in bfloat16 from wide tensors to logits."""
    wide = {name: t.bfloat16() for name, t in spec.expand(theta_SP).items()}
    return [logit.float() for logit in spec.apply(wide, tokens_STB, first)]


def make_bank(part: Part) -> Bank:
    pairs = [Pair(part.recipe, Seed.of(throughput.FIRST_SEED + n)) for n in range(part.seeds)]
    return Bank(preset(part.rung), pairs, device=part.device, compiled=not part.rehearsed, hopeless=None)


def compile_(part: Part) -> Iterator[Finding]:
    yield {"compile_s": make_bank(part).programs.compile_s, "peak_memory_bytes": peak(part)}


def measure(part: Part) -> Iterator[Finding]:
    """Speed with graphs and without. `losses`: of the first steps, a mean over seeds."""
    made = make_bank(part)
    for graphs in (True, False):
        made.programs.graphs = graphs  # type: ignore[union-attr]
        if part.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        block = block_of(made.eval_every)
        losses = made.programs.train(made.state, made.hyper, block)[1] / block
        parts = timings(made, part.seconds / 4, part.seconds)
        yield {
            "graphs": graphs,
            "seed_steps_per_s": part.seeds * made.eval_every / whole(parts),
            **{f"{name}_s_of_an_interval": seconds for name, seconds in parts.items() if seconds},
            "losses": float(losses.mean()),
            "peak_memory_bytes": peak(part),
            "compile_warm_s": made.programs.compile_s,
        }


def peak(part: Part) -> int:
    return throughput.peak_memory(part.device)


def quarters(part: Part) -> Iterator[Finding]:
    """All seeds in a process, then in four at once."""
    for processes in (1, QUARTERS):
        setup = throughput.Setup(
            part.rung, part.device, part.batch, processes, 1, part.seconds, not part.rehearsed
        )
        share = part.seeds // processes
        found = throughput.in_processes(throughput.train, setup, [(share,)] * processes)
        rates, peaks = ([f[name] for f in found] for name in ("rate", "peak"))
        yield {"processes": processes, "seed_steps_per_s": sum(rates), "peak_memory_bytes": sum(peaks)}


def correctness(part: Part) -> Iterator[Finding]:
    """Against the CPU: by the engine, or eager where that cannot be built."""
    made = make_bank(part)
    reference = bank.programs_of(made.spec, made.pairs[0].recipe, "cpu", not part.rehearsed)
    yield {"reference": type(reference).__name__.lower()}
    yield {"tokens_equal": same_tokens(made)}
    yield losses_of_first_steps(made, reference)
    yield evaluations(made, reference)
    yield graphs_change(made)
    yield {"largest_difference_by_slot": slots_change(made)}


def on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.cpu() for name, t in tensors.items()}


def same_tokens(made: Bank) -> bool:
    """A block of steps, slots at ages from 0 up: every token is that of the eager program on a CPU."""
    recipe = made.pairs[0].recipe
    age_S = OLDER * torch.arange(made.slots, device=made.device)
    state = {**made.state, "step": age_S % recipe.steps}
    eager = TorchBackend(made.spec, recipe, "cpu", compiled=False)
    expected = eager.make_block(on_cpu(state), on_cpu(made.hyper))
    assert isinstance(made.programs, TorchBackend)
    return torch.equal(made.programs.make_block(state, made.hyper).cpu(), expected)


def losses_of_first_steps(made: Bank, reference: Any) -> Finding:
    """The largest relative difference of any seed's loss, by step, and of θ after them."""
    assert isinstance(made.programs, TorchBackend)
    state, hyper, differences = made.state, made.hyper, []
    cpu, cpu_hyper = on_cpu(state), on_cpu(hyper)
    for tokens_STB in made.programs.make_block(state, hyper):
        state, loss_S = made.programs.train_step(state, hyper, tokens_STB)
        if isinstance(reference, TorchBackend):
            cpu, expected_S = reference.train_step(cpu, cpu_hyper, tokens_STB.cpu())
        else:
            cpu, expected_S = reference.train(cpu, cpu_hyper, 1)
        differences.append(float(((loss_S.cpu() - expected_S) / expected_S).abs().max()))
    theta = float((state["theta"].cpu() - cpu["theta"]).abs().max())
    return {"largest_relative_difference_of_loss_by_step": differences, "largest_difference_of_theta": theta}


def evaluations(made: Bank, reference: Any) -> Finding:
    """Initial θ and, where there is one, the θ of the rung's certificate."""
    theta_SP, folder = made.state["theta"].clone(), CERTIFICATES / f"{made.spec.params}p"
    if folder.is_dir():
        theta_SP[0] = Checkpoint.load(folder).theta_P.to(made.device)
    got, expected = made.programs.evaluate(theta_SP), reference.evaluate(theta_SP.cpu())
    apart = {name: float((got[name].cpu() - expected[name]).abs().max()) for name in expected}
    return {"evaluation_largest_difference": apart, "exact_of_the_first": float(got["exact"][0])}


def graphs_change(made: Bank) -> Finding:
    """Whether two blocks of steps give the same bits with graphs, without, and again."""
    thetas = []
    for graphs in (True, False, True):
        made.programs.graphs = graphs  # type: ignore[union-attr]
        thetas.append(made.programs.train(made.state, made.hyper, 2 * block_of(made.eval_every))[0]["theta"])
    return {
        "same_with_graphs": torch.equal(thetas[0], thetas[1]),
        "same_again": torch.equal(thetas[0], thetas[2]),
    }


def slots_change(made: Bank) -> float:
    """How far θ after a block is apart when the seeds stand in the slots in another order."""
    turned = {name: t.flip(0) for name, t in made.state.items()}
    hyper = {name: t.flip(0) for name, t in made.hyper.items()}
    block = block_of(made.eval_every)
    one = made.programs.train(made.state, made.hyper, block)[0]["theta"]
    other = made.programs.train(turned, hyper, block)[0]["theta"].flip(0)
    return float((one - other).abs().max())


KINDS: dict[str, Callable[[Part], Iterator[Finding]]] = {
    "compile": compile_,
    "correctness": correctness,
    "throughput": measure,
    "quarters": quarters,
    "precision": measure,
}


def findings(part: Part) -> Iterator[Finding]:
    """What a part finds, with what it was asked."""
    prepare(part)
    asked = {k: v for k, v in asdict(part).items() if k not in ("seconds", "rehearsed")}
    for found in KINDS[part.kind](part):
        yield {**asked, **found}


def tiny(part: Part) -> Part:
    """The same part as it is rehearsed."""
    seeds = QUARTERS if part.kind == "quarters" else 2
    return replace(part, seeds=seeds, batch=4, seconds=0.02, rehearsed=True)
