"""The engine on a CPU: all steps between two evaluations in one call of C++ (trainer/engine/cpp), no torch in
between.

A family's kernel (model/families/<family>/kernel_body.h) does the part of a step that depends on the problem. The
rest, wide tensors, schedules, clipping and the optimiser, is recorded from the torch functions that the eager programs
run (trainer/engine/tape.py). The bits of θ are the same on every CPU, for any number of threads and in any company.

Axes: S slot, P parameters, T position, B problem, R numbers of a seed's row, N numbers of its wide tensors.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.spec import Choice, Kernel, Spec
from model.tasks import ADDITION, Columns, Rows, Task
from trainer.data.hard_examples import CAPACITY, COUNT, OPERANDS
from trainer.data.problems import MARK, marked, selection
from trainer.engine.build import ENGINE, denormals, library, missing_to_build
from trainer.engine.structures import (
    ASKED,
    LANES,
    CTape,
    Errors,
    Learning,
    Measures,
    Program,
    RowTable,
    Seen,
    Sequence,
)
from trainer.engine.tape import record
from trainer.engine.tape_graph import Array, Tape
from trainer.optimisers import OPTIMISERS, optimiser_of
from trainer.recipe import Recipe
from trainer.recipe.teacher import teacher_of
from trainer.step import schedule, step
from trainer.step.schedule import Hyper, hyper_of
from trainer.step.step import State

TAUGHT = {"LOSS": 1}
"""Macros of a kernel whose loss has a teacher."""
Shapes = dict[str, tuple[int, ...]]
MOST_RECORDED = 64
# In memory and not on disk: a file would have to be distrusted, to save so little.
RECORDED: dict[Any, list[Tape]] = {}
"""The newest tapes of this process: recording those of a program takes a quarter of a second."""


@dataclass(frozen=True)
class Slots:
    """Slots as the engine takes them.

    rows [S, R]: float32, in which it trains. data_seeds [S]: int64. ties [S, P]: int32, or None. errors: operands
    [S, 2, M] and counts [S], or nothing.
    """

    rows: Array
    data_seeds: Array
    ties: Array | None
    errors: list[Array]

    def part(self, s: slice) -> Slots:
        """Return a view of some of them."""
        ties = None if self.ties is None else self.ties[s]
        return Slots(self.rows[s], self.data_seeds[s], ties, [t[s] for t in self.errors])


def _places(shapes: Shapes) -> dict[str, slice]:
    """Return where each tensor's numbers lie in a row."""
    sizes = list(map(math.prod, shapes.values()))
    bounds = pairwise(accumulate(sizes, initial=0))
    return {name: slice(*pair) for name, pair in zip(shapes, bounds, strict=True)}


class EngineBackend:
    """The interface of `TorchBackend` (trainer/engine/torch_backend.py) by the engine, for a spec with a kernel.

    Raise BuildError where the C++ cannot be compiled.
    """

    name = "native"
    """The name in records."""
    device = "cpu"
    """Where a bank's tensors are."""
    about: Mapping[str, str] = {}
    """Facts that records have beside the name."""
    supports_partial_bank = True
    """Any number of slots may be trained; only live ones cost time."""

    def __init__(self, spec: Spec, recipe: Recipe):
        start = time.perf_counter()
        kernel = kernel_of(spec)
        if kernel is None:
            raise ValueError(f"{spec.family} has no kernel")
        # Engine and kernel are compiled at once where neither is in the cache.
        with ThreadPoolExecutor(1) as pool:
            compiled = pool.submit(built, kernel, recipe)
            self.engine = engine(spec.task)
            self.kernel = compiled.result()
        self.spec = spec
        self.recipe = recipe
        self.optimiser = optimiser_of(recipe)
        self.shapes = self._shapes(recipe)
        self.places = _places(self.shapes)
        self.tapes = self._tapes()
        self.program, self._arrays = self._program(recipe)
        self.problems = step.tokens_of(spec, *selection(spec.task))
        self._blocks = blocks(self.problems)
        self.compile_s = time.perf_counter() - start

    def warm_up(self, state: State, hyper: Hyper) -> None:
        """Do nothing: all is compiled."""

    def train(self, state: State, hyper: Hyper, steps: int) -> tuple[State, Tensor]:
        """Train every slot by `steps` steps. Return the new state and the summed losses [S]."""
        slots = self.slots_of(state, hyper)
        losses = self.run_steps(slots, steps)
        trained = torch.from_numpy(slots.rows)
        # Counted here: a row's step is a float32.
        new = {"step": state["step"] + steps}
        for name in self._updated_names():
            part = trained[:, self.places[name]]
            new[name] = part.reshape(state[name].shape)
        return {**state, **new}, torch.from_numpy(losses)

    def slots_of(self, state: State, hyper: Hyper) -> Slots:
        """Return the slots of a bank as the engine takes them."""
        values = {**hyper, **state}
        count = len(state["step"])
        # One row per seed has all that a step reads and writes. Scratch, such as the gradient, begins at 0.
        rows = np.zeros((count, self.program.row), np.float32)
        for name, place in self.places.items():
            if name in values:  # the others are scratch
                rows[:, place] = values[name].reshape(count, -1).float().numpy()
        ties = None
        if "ties" in hyper:
            ties = np.ascontiguousarray(hyper["ties"].int().numpy())
        errors = [state[name].numpy() for name in (OPERANDS, COUNT) if name in state]
        return Slots(rows, state["data_seed"].numpy(), ties, errors)

    def run_steps(self, slots: Slots, steps: int) -> Array:
        """Train slots by `steps` steps, in their rows. Return the summed losses [S]."""
        losses = np.zeros(len(slots.rows), np.float32)

        def run(s: slice, count: int) -> None:
            part = slots.part(s)
            self.engine.engine_train(
                ctypes.byref(self.program),
                pointer(part.rows),
                pointer(part.data_seeds),
                None if part.ties is None else pointer(part.ties),
                errors_of(part.errors),
                count,
                steps,
                pointer(losses[s]),
            )

        in_groups(len(losses), run)
        return losses

    def evaluate(self, theta_SP: Tensor, tokens_1TB: Tensor | None = None) -> dict[str, Tensor]:
        """Return exact match, token accuracy and loss [S] on the selection problems, or on others."""
        if tokens_1TB is None:
            tokens_1TB = self.problems
            problems = self._blocks
        else:
            problems = blocks(tokens_1TB)
        count = tokens_1TB.shape[-1]
        measured = self.measure(self._theta_rows(theta_SP), problems, count)
        # Whole numbers, and a loss in doubles: their means are rounded to float32 once.
        sums = np.ctypeslib.as_array(measured)
        means = {
            "exact": sums["exact"] / count,
            "token": sums["right"] / (count * self.spec.task.answers),
            "loss": sums["loss"] / count,
        }
        return {name: torch.from_numpy(mean.astype(np.float32)) for name, mean in means.items()}

    def measure(self, rows: Array, problems: Array, count: int) -> ctypes.Array[Measures]:
        """Return the sums over `count` problems of each row's θ."""
        sums = (Measures * len(rows))()

        def evaluate(s: slice, seeds: int) -> None:
            first = s.start * ctypes.sizeof(Measures)
            self.engine.engine_evaluate(
                ctypes.byref(self.program),
                pointer(rows[s]),
                seeds,
                pointer(problems),
                count,
                ctypes.byref(sums, first),
            )

        in_groups(len(rows), evaluate)
        return sums

    def _theta_rows(self, theta_SP: Tensor) -> Array:
        """Return rows with θ and nothing else."""
        rows = np.zeros((len(theta_SP), self.program.row), np.float32)
        rows[:, self.places["theta"]] = theta_SP.numpy()
        return rows

    def is_wrong(self, theta_SP: Tensor, tokens_STN: Tensor) -> Tensor:
        """Mark the wrong answers among each slot's own problems [S, N]."""
        # One seed at a time: each has problems of its own, where an evaluation has the same for all.
        tape = expansion(self.spec)
        marks = []
        for theta_P, tokens_TN in zip(theta_SP.float(), tokens_STN, strict=True):
            wide_N = run(tape, theta_P.numpy())
            marks.append(is_wrong(self.kernel, wide_N, tokens_TN))
        return torch.stack(marks)

    def _updated_names(self) -> list[str]:
        """Return the names of a state's tensors that a step changes, first in a row: θ and the optimiser's."""
        names = list(self.shapes)
        return names[: names.index("step")]

    def _shapes(self, recipe: Recipe) -> Shapes:
        """Return the shapes of a row's tensors, without the slots' axis."""
        fresh = self.optimiser.init(torch.zeros(1, self.spec.params))
        hyper = hyper_of([recipe], self.spec.layout)
        theta = (self.spec.params,)
        scalars: Shapes = {"step": (), "wd_scale": (), "mix_scale": ()}
        return {
            "theta": theta,
            **_shapes_of(fresh),
            **scalars,
            **_shapes_of(hyper),
            "gradient": theta,
        }

    def _tapes(self) -> list[Tape]:
        """Record the tapes of a step, or return those that an earlier backend of this program recorded."""
        # The optimiser is in the key, because a name may be bound to another function (docs/extending.md).
        key = (
            self.spec,
            self.recipe.program(),
            OPTIMISERS[self.recipe.optimiser],
            denormals(),
        )
        if key not in RECORDED:
            parts = (self._lesson, self._expand, self._probe, self._take)
            RECORDED[key] = [record(part, self.shapes, constant_fold) for part in parts]
            if len(RECORDED) > MOST_RECORDED:
                oldest = next(iter(RECORDED))
                del RECORDED[oldest]
        return RECORDED[key]

    def _lesson(self, row: State) -> list[Tensor]:
        """Return the numbers of a step, in the order in which the engine reads them."""
        step = row["step"]
        scale = row["mix_scale"]
        task = self.spec.task
        # By name: the order is that of an enum in C++, which Python reads there.
        asked = {
            **schedule.kinds(step, row, scale)._asdict(),
            "carry_mix": schedule.carry_mix(step, row, task) * scale,
            "mixed_lengths": row["mixed_lengths"],
            "ramp": schedule.ramp(step, row),
            # The largest operand length, which rows have not.
            "digits": schedule.digits(step, row, task) if isinstance(task, Columns) else torch.zeros_like(step),
        }
        assert asked.keys() == set(ASKED)
        return [asked[name] for name in ASKED]

    def _expand(self, row: State) -> list[Tensor]:
        """Return the wide tensors that θ makes."""
        return list(self.spec.expand(row["theta"]).values())

    def _probe(self, row: State) -> list[Tensor]:
        """Return the θ at which the optimiser wants the gradient instead, if any."""
        probe = self.optimiser.gradient_point
        if probe is None:
            return []
        now = schedule.now(row, row)
        return [probe(row, now, row["gradient"])]

    def _take(self, row: State) -> list[Tensor]:
        """Return the tensors of a state after the optimiser's step."""
        # A row trains as long as the engine is called for it; torch's programs, which train all slots, need the mask.
        state = {**row, "active": torch.ones(1, dtype=torch.bool)}
        new = step.apply_update(self.optimiser, state, row, row["gradient"])
        return [new[name] for name in self._updated_names()]

    def _learning(self, recipe: Recipe) -> Learning:
        """Return the teacher's kernel and wide tensors, by the engine's arithmetic; nulls without a teacher."""
        if not recipe.teacher:
            return Learning()
        teacher = teacher_of(recipe.teacher)
        spec = teacher.spec
        kernel = kernel_of(spec)
        assert kernel, "of a teacher without a kernel torch learns"
        # The teacher's θ is fixed, so its wide tensors are made once. C++ has their address: the backend keeps them.
        self._wide = run(expansion(spec), np.array(teacher.theta, np.float32))
        return Learning(
            teacher=ctypes.cast(built(kernel, recipe).kernel_evaluate, ctypes.c_void_p),
            wide=self._wide.ctypes.data,
            alpha=self.places["distill_alpha"].start,
            temperature=self.places["distill_temperature"].start,
            logits=self.spec.answers * self.spec.logits * LANES,
        )

    def _program(self, recipe: Recipe) -> tuple[Program, Any]:
        """Return the program, and the arrays to which it points: they must outlive it.

        Raise AssertionError where the kernel was compiled for another shape.
        """
        # ctypes keeps addresses alone: the arrays are returned so that somebody holds them.
        source = sources(self.spec)
        table, held = rows_of(self.spec.task)
        updated = np.arange(self.places["step"].start, dtype=np.int32)
        lesson, expand, probe, take = map(CTape.of, self.tapes)

        def start(name: str) -> int:
            return self.places[name].start

        program = Program(
            lesson=lesson,
            expand=expand,
            probe=probe,
            take=take,
            sequence=Sequence(length=len(source), source=source.ctypes.data),
            rows=table,
            # A batch that has room for all rows that are trained on has each once.
            batch=min(recipe.batch, table.count or recipe.batch),
            row=max(place.stop for place in self.places.values()),
            theta=start("theta"),
            step=start("step"),
            gradient=start("gradient"),
            parameters=self.spec.params,
            updated=updated.ctypes.data,
            train=ctypes.cast(self.kernel.kernel_train, ctypes.c_void_p),
            evaluate=ctypes.cast(self.kernel.kernel_evaluate, ctypes.c_void_p),
            learning=self._learning(recipe),
            targeted=start("targeted") if recipe.targeted else -1,
        )
        sizes = (self.kernel.kernel_size(), self.kernel.kernel_length())
        expected = (expand.outputs, len(source))
        if sizes != expected:
            raise AssertionError(f"{self.spec.family}: the kernel reads {sizes} numbers and tokens, not {expected}")
        return program, (source, updated, *held)


def _shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Return the shapes of tensors [S, ...] without their first axis."""
    return {name: tuple(t.shape[1:]) for name, t in tensors.items()}


def kernel_of(spec: Spec) -> Kernel | None:
    """Return a spec's kernel, of its family or made of it; None where torch trains it. Raise as `choice_of` does."""
    return choice_of(spec).kernel


def choice_of(spec: Spec) -> Choice:
    """Return a spec's kernel, if any, and why, where it is made of the spec or cannot be.

    Raise ValueError where the cache cannot be trusted.
    """
    kernel = spec.kernel()
    return kernel(spec) if callable(kernel) else Choice(kernel, "")


def has_kernel(spec: Spec) -> bool:
    """True if a spec's kernel is there or can be built."""
    kernel = kernel_of(spec)
    return kernel is not None and not missing_to_build(kernel.source, kernel.shape)


def built(kernel: Kernel, recipe: Recipe) -> ctypes.CDLL:
    """Load a kernel for a recipe's loss. With a teacher it is another build. Raise BuildError."""
    return library(kernel.source, _macros(kernel, recipe), kernel.folders)


def missing_to_train(kernel: Kernel, recipe: Recipe, task: Task = ADDITION) -> str | None:
    """Name the tool without which a kernel cannot be had here for a recipe's loss, or return None."""
    missing = missing_to_build(kernel.source, _macros(kernel, recipe))
    return missing or missing_to_build(ENGINE, task.macros or {})


def _macros(kernel: Kernel, recipe: Recipe) -> dict[str, int]:
    return {**kernel.shape, **TAUGHT} if recipe.teacher else kernel.shape


def engine(task: Task = ADDITION) -> ctypes.CDLL:
    """Load the library of trainer/engine/cpp for a task. Raise BuildError."""
    return _engine(denormals(), task)


@cache
def _engine(denormals: str, task: Task) -> ctypes.CDLL:
    return library(ENGINE, task.macros)


def constant_fold(operation: int, *numbers: float) -> float:
    """Compute an operation of tapes on three numbers by the engine."""
    tape = Tape(
        inputs=3,
        constants=np.zeros(0, np.float32),
        blocks=np.array([[operation, 0, 1]], np.int32),
        reads=np.arange(3, dtype=np.int32)[:, None],
        outputs=np.array([3], np.int32),
    )
    (result,) = run(tape, np.array(numbers, np.float32))
    return float(result)


def expansion(spec: Spec) -> Tape:
    """Return the tape that makes a spec's wide tensors of θ alone."""
    return _expansion(spec, denormals())


@lru_cache(MOST_RECORDED)
def _expansion(spec: Spec, denormals: str) -> Tape:
    return record(
        lambda row: list(spec.expand(row["theta"]).values()),
        {"theta": (spec.params,)},
        constant_fold,
    )


def run(tape: Tape, inputs: Array, pull: Array | None = None) -> Array:
    """Run a tape on one seed's `inputs`, float32. Return its outputs.

    pull: the gradient towards the outputs. With it, return the gradient towards the inputs.
    """
    outputs = np.zeros(len(tape.outputs), np.float32)
    there = ctypes.byref(CTape.of(tape)), pointer(inputs), pointer(outputs)
    if pull is None:
        engine().engine_tape(*there, None, None)
        return outputs
    gradient = np.zeros(tape.inputs, np.float32)
    engine().engine_tape(*there, pointer(pull), pointer(gradient))
    return gradient


def sources(spec: Spec) -> Array:
    """Return the source of each token of a sequence: a column of digits, or -1 less the token itself."""
    if not isinstance(spec.task, Columns):
        return np.full(spec.prompt + spec.answers, -1, np.int32)
    # Marks are columns of digits; any other token stands for itself.
    tokens = [t - MARK if t >= MARK else -1 - t for t in marked(spec)]
    return np.array(tokens, np.int32)


def rows_of(task: Task) -> tuple[RowTable, list[Array]]:
    """Return the engine's view of a task's rows, empty for columns, and the arrays to which it points."""
    if not isinstance(task, Rows):
        return RowTable(), []
    written = task.row(torch.arange(task.count))
    tokens = torch.stack(written, dim=1).int().numpy()
    trained = task.trained_rows().numpy()
    table = RowTable(tokens=tokens.ctypes.data, trained=trained.ctypes.data, count=len(trained))
    return table, [tokens, trained]


def errors_of(buffers: list[Array]) -> Any:
    """Return the engine's view of some slots' errors: operands and counts, or None."""
    if not buffers:
        return None
    operands, count = buffers
    errors = Errors(operands=pointer(operands), count=pointer(count), kept=CAPACITY)
    return ctypes.byref(errors)


def blocks(tokens_1TB: Tensor) -> Array:
    """Return tokens as kernels read them, [blocks, T, 16] int32; spare lanes have the token 0."""
    tokens_TB = tokens_1TB[0]
    spare = -tokens_TB.shape[1] % LANES
    padded = torch.nn.functional.pad(tokens_TB, (0, spare))
    in_blocks = padded.unflatten(1, (-1, LANES)).transpose(0, 1)
    return np.ascontiguousarray(in_blocks.int().numpy())


def is_wrong(kernel: ctypes.CDLL, wide: Array, tokens_TN: Tensor) -> Tensor:
    """Mark the problems that a kernel answers wrongly by wide tensors [N]."""
    count = tokens_TN.shape[-1]
    right = np.zeros((-(-count // LANES), LANES), np.int32)
    kernel.kernel_evaluate(
        pointer(wide),
        pointer(blocks(tokens_TN[None])),
        count,
        ctypes.byref(Measures()),
        ctypes.byref(Seen(logits=None, right=right.ctypes.data)),
    )
    return torch.from_numpy(right.flatten()[:count] == 0)


def pointer(array: Array) -> ctypes.c_void_p:
    """Return an array's address; the pointer keeps the array alive."""
    assert array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.c_void_p)


def in_groups(slots: int, work: Callable[[slice, int], Any]) -> None:
    """Share the slots among torch's threads, each in groups of up to 16."""
    # ctypes lets go of the interpreter during a call, so threads run at once.
    threads = min(torch.get_num_threads(), slots)
    groups_of_lanes = -(-slots // LANES)
    count = max(threads, groups_of_lanes)  # fewer seeds per group rather than a thread without work
    ends = [slots * n // count for n in range(count + 1)]
    parts = [slice(*pair) for pair in pairwise(ends)]
    sizes = [part.stop - part.start for part in parts]
    if threads == 1:
        for part, size in zip(parts, sizes, strict=True):
            work(part, size)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, parts, sizes))
