"""A checkpoint's seed trained again, and compared with it bit for bit.

Axes: S θ that is compared, P parameters.
"""

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from search.plugins import part
from search.run.worker import bank_of, environment_of, own_numbers
from search.study.resources import CPU_SLOTS, Resources
from search.study.space import LARGEST_SEED
from search.study.start import ANY, InitialTheta
from search.study.trial import Configuration
from trainer import Bank, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.data.problems import selection
from trainer.engine.build import DENORMALS
from trainer.engine.native import kernel_of, missing_to_train
from trainer.files.cores import usable_cores
from trainer.files.installed import check_cache
from trainer.recipe.stages import road_of
from trainer.road import RoadBank
from trainer.step import step

MADE_BY = {"finished_from": "finish", "compressed_from": "compress", "folded_from": "fold", "imported_from": "import"}
"""Key of a provenance -> the command that made the checkpoint."""
THREADS_PER_CORE = 16
"""More would take the machine and show nothing."""
ENGINES = ("native", "cuda", "cuda, then native")
"""Engines whose bits are the same, by their names in records."""
NOT_OF_THE_ENGINE = {"cpu", "device", "driver", "nvrtc", "engine", "threads", "slots"}
"""Facts of an environment on which θ's bits depend by torch's programs, and do not by the engine."""
OLDER = {"denormals": "kept", "finish": "torch"}
"""Facts of environments that were recorded before there was a choice."""


@dataclass(frozen=True)
class Request:
    """A bank of one pair like the one that trained a checkpoint, and the step to train to.

    stages: those of the same run before it, where it had several (lab/stages.py).
    """

    configuration: Configuration
    seed: Seed
    resources: Resources
    step: int
    stages: Any = None

    @property
    def slots(self) -> int:
        return self.resources.slots or CPU_SLOTS

    @property
    def earlier_recipes(self) -> list[Recipe]:
        return self.stages.recipes if self.stages else []

    @property
    def steps(self) -> int:
        """The most steps of all stages."""
        return sum(recipe.steps for recipe in self.earlier_recipes) + self.step


@dataclass(frozen=True)
class Rerun:
    """Two θ of one configuration and seed, and the differences of their environments.

    Pairs are (recorded, trained again). `exact` is exact match on the selection problems.
    """

    seed: str
    params: int
    numbers_different: int
    largest_difference: float
    largest_in: str | None
    """Name of the tensor with the largest absolute difference."""
    step: tuple[int, int]
    """Steps of the last stage."""
    stages: int
    exact: tuple[float, float]
    environment: dict[str, Any]
    """This machine and bank, as a seed's record has them."""
    differs: dict[str, tuple[Any, Any]]
    """Facts that may explain another θ: none of CPU, threads and slots where the engine trained both."""
    not_recorded: tuple[str, ...]
    by_curvature: bool
    """True if torch may have finished one of them by curvature: it rounds as the machine does."""

    @property
    def same(self) -> bool:
        """True if both θ have the same bits."""
        return self.numbers_different == 0


def read_request(loaded: Checkpoint) -> Request:
    """Return the training that a checkpoint's provenance asks for. Raises ValueError for what it lacks."""
    start = _start(loaded)
    stages = loaded.provenance.get("stages")
    if stages:
        stages = part("stages", "rerun of a run in several stages")(stages)

    if not loaded.recipe:
        raise ValueError("it has no recipe")
    if not {"init_seed", "data_seed"} <= loaded.seed.keys():
        raise ValueError("it has no seed")
    try:
        recipe = Recipe.from_record(loaded.recipe)
    except (TypeError, ValueError) as error:
        raise ValueError(f"recipe: {error}") from None

    is_late = loaded.step > recipe.steps and not recipe.stages  # trainings before it count too, where it has stages
    if loaded.step <= 0 or is_late or loaded.step % recipe.eval_every:
        raise ValueError(f"step {loaded.step} is none at which its recipe evaluates")

    seed = Seed(loaded.seed["init_seed"], loaded.seed["data_seed"])
    if not all(0 <= number <= LARGEST_SEED for number in (seed.init_seed, seed.data_seed)):
        raise ValueError(f"seeds are 0 to {LARGEST_SEED}, got {seed}")

    configuration = Configuration(loaded.spec, recipe, start)
    configuration.pair(seed).check(configuration.trained)
    return Request(configuration, seed, _resources(loaded, recipe), loaded.step, stages or None)


def _start(loaded: Checkpoint) -> InitialTheta | None:
    """Return the θ that it began at, None for initial values of its own. Raises ValueError where that is missing."""
    for key, command in MADE_BY.items():
        if key in loaded.provenance:
            raise ValueError(f"made by {command}; only what a run trained can be trained again")

    origin = loaded.provenance.get("trained")
    began = loaded.provenance.get("start")
    if origin != "from scratch" and not (origin == "from a parent" and isinstance(began, dict)):
        raise ValueError("its provenance does not say that it was trained from scratch, or from which θ")
    if not isinstance(began, dict):
        return None

    try:
        theta = began["theta"]
        thetas = {ANY: theta} if theta else {}
        return InitialTheta.of({"spec": began["spec"], "thetas": thetas, "lineage": []})
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        raise ValueError(f"its provenance has no start: {error}") from None


def _resources(loaded: Checkpoint, recipe: Recipe) -> Resources:
    """Return the resources of its worker. Raises ValueError if they are wrong or not available here."""
    recorded = _recorded(loaded)
    by_engine = recorded.get("engine") in ENGINES
    if by_engine:  # its bits are the same with any threads and slots
        recorded = {}

    limit = THREADS_PER_CORE * usable_cores()
    threads = recorded.get("threads")
    if isinstance(threads, int) and threads > limit:
        raise ValueError(f"its bank had {threads} threads, and this machine runs {limit} at most")

    facts = {"cpu": "threads", "slots": "slots", "compiled": "compiled"}  # a bank has a thread for each core
    try:
        resources = Resources(**{name: recorded[fact] for name, fact in facts.items() if fact in recorded})
    except ValueError:
        raise ValueError("its environment's threads, slots or compiled are impossible") from None

    if resources.compiled:
        kernel = kernel_of(loaded.spec)
        if kernel and (missing := missing_to_train(kernel, recipe, loaded.spec.task)):
            who = "the engine trained it, which" if by_engine else "its program was compiled, and compiling"
            raise ValueError(f"{who} needs {missing}")
        check_cache()
    return resources


def _recorded(loaded: Checkpoint) -> dict[str, Any]:
    """Return the environment that it was trained in, as far as its provenance says."""
    environment = loaded.provenance.get("environment")
    return OLDER | environment if isinstance(environment, dict) else OLDER


@contextmanager
def _denormals_as(recorded: dict[str, Any]) -> Iterator[None]:
    """Let the engine treat denormal numbers as when it trained a checkpoint."""
    before = os.environ.get(DENORMALS)
    os.environ[DENORMALS] = "kept" if recorded["denormals"] == "kept" else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[DENORMALS]
        else:
            os.environ[DENORMALS] = before


def train_again(loaded: Checkpoint, request: Request, watch: Callable[[int], None] = lambda step: None) -> Rerun:
    """Train to the step of the checkpoint's θ and compare. `watch` gets the steps so far at each evaluation.

    A checkpoint's θ is the best of all evaluations, so at its own step it is the best so far. No seed is given up:
    that rule ends a seed, and changes nothing in one that goes on.
    """
    recorded = _recorded(loaded)
    device = _device(recorded)
    with _denormals_as(recorded):
        configuration, before = request.configuration, 0
        if request.stages:
            theta, before = request.stages.train(request, device, watch)
            configuration = replace(configuration, start=InitialTheta(configuration.trained, {ANY: theta}))

        pair = configuration.pair(request.seed)
        bank = bank_of(configuration.trained, [pair], request.slots, request.resources, device)
        watch(before)

        # Beyond its step in two cases: what is finished at the end is finished again, and in stages a seed's other
        # tries decide which of its nets is handed on.
        recipe = configuration.recipe
        to_the_end = request.step == recipe.steps or recipe.stages
        while (bank.result(0).steps < request.step or to_the_end) and bank.advance():
            watch(before + bank.result(0).steps)
        return _compare(loaded, request, bank)


def _device(recorded: dict[str, Any]) -> str:
    """Return "cuda" if a GPU is here, unless the engine or a CPU of this machine's kind trained the θ."""
    here = platform.machine()
    on_cpu = recorded.get("device", here) == here or recorded.get("engine") in ENGINES
    return "cpu" if on_cpu or not torch.cuda.is_available() else "cuda"


def _compare(loaded: Checkpoint, request: Request, bank: Bank | RoadBank) -> Rerun:
    """Compare a checkpoint's θ with that of the bank's pair, and the environments that they were trained in."""
    spec, recorded = loaded.spec, _recorded(loaded)
    result = own_numbers(bank.result(0))
    theta_SP = torch.stack([loaded.theta_P, result.theta_P])
    bits_SP = theta_SP.view(torch.int32)  # as numbers 0 and -0 would be the same, and nan not the same as itself
    different = int((bits_SP[0] != bits_SP[1]).sum())
    apart_P = (theta_SP[0] - theta_SP[1]).abs()
    largest = {name: float(t.max()) for name, t in spec.layout.split(apart_P[None]).items()}
    problems = step.tokens_of(spec, *selection(spec.task))
    exact_S = step.evaluate(spec, theta_SP, problems)["exact"]

    here = environment_of(bank, request.resources)
    recipes = [request.configuration.recipe, *request.earlier_recipes]
    for stage in road_of(request.configuration.recipe):
        recipes += stage.recipes
    is_finished = any(recipe.finish_above < 1 for recipe in recipes)
    by_curvature = is_finished and not recorded["finish"] == here["finish"] == "engine"

    ignored: set[str] = set() if is_finished else {"finish"}
    by_engine = recorded.get("engine") in ENGINES and here["engine"] in ENGINES
    if by_engine and not by_curvature:
        ignored |= NOT_OF_THE_ENGINE
    matters = [fact for fact in here if fact in recorded and fact not in ignored]
    return Rerun(
        seed=str(result.pair.seed),
        params=spec.params,
        numbers_different=different,
        largest_difference=float(apart_P.max()),
        largest_in=max(largest, key=largest.__getitem__) if different else None,
        step=(request.step, result.best_step),
        stages=len(request.earlier_recipes) + 1,
        exact=(float(exact_S[0]), float(exact_S[1])),
        environment=here,
        differs={fact: (recorded[fact], here[fact]) for fact in matters if recorded[fact] != here[fact]},
        not_recorded=tuple(fact for fact in here if fact not in recorded),
        by_curvature=by_curvature,
    )
