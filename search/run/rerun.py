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
from trainer.engine.native import missing_to_train
from trainer.files.cores import usable_cores
from trainer.files.installed import check_cache
from trainer.retired import Retired
from trainer.step import step

MADE_BY = {"finished_from": "finish", "compressed_from": "compress", "folded_from": "fold", "imported_from": "import"}
"""Key of a provenance -> the command that made the checkpoint."""
THREADS_A_CORE = 16
"""More would take the machine and show nothing."""
ENGINES = {"native", "cuda", "cuda, then native"}
"""Engines whose bits are the same, by their names in records."""
NOT_OF_THE_ENGINE = {"cpu", "device", "driver", "nvrtc", "engine", "threads", "slots"}
"""What θ's bits depend on by torch's programs, and not by the engine: it compares across machines."""


@dataclass(frozen=True)
class Request:
    """A bank of one pair like the one that trained a checkpoint, and the step to train to.

    stages: those of the same run before it, where it had several (lab/stages.py).
    """

    configuration: Configuration
    seed: Seed
    slots: int
    resources: Resources
    step: int
    stages: Any = None

    @property
    def earlier_recipes(self) -> list[Recipe]:
        return self.stages.recipes if self.stages else []

    @property
    def steps(self) -> int:
        """The most steps of all stages."""
        return sum(recipe.steps for recipe in self.earlier_recipes) + self.step


@dataclass(frozen=True)
class Rerun:
    """Two θ of one configuration and seed, and what their environments differ in.

    Pairs are (recorded, trained again). `exact` is exact match on the selection problems.
    """

    seed: str
    params: int
    numbers_different: int
    largest_difference: float
    largest_in: str | None
    """The slice of the layout that the largest absolute difference is in."""
    step: tuple[int, int]
    """Of the last stage."""
    stages: int
    exact: tuple[float, float]
    environment: dict[str, Any]
    """This machine and bank, as they are recorded of a seed."""
    differs: dict[str, tuple[Any, Any]]
    """What may explain another θ: nothing of CPU, threads and slots where the engine trained both."""
    not_recorded: tuple[str, ...]
    by_curvature: bool
    """True if its recipe may finish it by curvature, which torch did then or here: it rounds as the machine does."""

    @property
    def same(self) -> bool:
        """True if both θ have the same bits."""
        return self.numbers_different == 0


def read_request(loaded: Checkpoint) -> Request:
    """Return what to train, from a checkpoint's provenance. Raises ValueError saying what is missing or wrong."""
    start = _start(loaded)
    earlier = loaded.provenance.get("stages")
    stages = part("stages", "rerun of a run in several stages")(earlier) if earlier else None
    if not loaded.recipe:
        raise ValueError("it has no recipe")
    if not {"init_seed", "data_seed"} <= loaded.seed.keys():
        raise ValueError("it has no seed")
    try:
        recipe = Recipe.from_record(loaded.recipe)
    except Retired:
        raise
    except (TypeError, ValueError) as error:
        raise ValueError(f"recipe: {error}") from None
    if not 0 < loaded.step <= recipe.steps or loaded.step % recipe.eval_every:
        raise ValueError(f"step {loaded.step} is none at which its recipe evaluates")
    seed = Seed(loaded.seed["init_seed"], loaded.seed["data_seed"])
    if not all(0 <= n <= LARGEST_SEED for n in (seed.init_seed, seed.data_seed)):
        raise ValueError(f"seeds are 0 to {LARGEST_SEED}, got {seed}")
    configuration = Configuration(loaded.spec, recipe, start)
    if start:
        configuration.pair(seed).check(configuration.trained)
    like = _resources(loaded, recipe)
    return Request(configuration, seed, like.slots or CPU_SLOTS, like, loaded.step, stages)


def _start(loaded: Checkpoint) -> InitialTheta | None:
    """Return where its θ began, if not at its own initial values. Raises ValueError if its provenance lacks it."""
    origin, began = loaded.provenance.get("trained"), loaded.provenance.get("start")
    lacks_parent = origin == "from a parent" and not isinstance(began, dict)
    if made := [command for key, command in MADE_BY.items() if key in loaded.provenance]:
        raise ValueError(f"made by {made[0]}; only what a run trained can be trained again")
    if origin not in ("from scratch", "from a parent") or lacks_parent:
        raise ValueError("its provenance does not say that it was trained from scratch, or from which θ")
    if not isinstance(began, dict):
        return None
    try:
        theta = began["theta"]
        return InitialTheta.of({"spec": began["spec"], "thetas": {ANY: theta} if theta else {}, "lineage": []})
    except (TypeError, ValueError, LookupError) as error:
        raise ValueError(f"its provenance has no start: {error}") from None


def _resources(loaded: Checkpoint, recipe: Recipe) -> Resources:
    """Return the resources of its trial. Raises ValueError if they are wrong or not available here."""
    recorded = _recorded(loaded)
    if by_engine := recorded.get("engine") in ENGINES:  # whatever its threads and slots were
        recorded = {}
    limit = THREADS_A_CORE * usable_cores()
    if isinstance(threads := recorded.get("threads"), int) and threads > limit:
        raise ValueError(f"its bank had {threads} threads, and this machine runs {limit} at most")
    names = {"cpu": "threads", "slots": "slots", "compiled": "compiled"}
    try:
        like = Resources(**{name: recorded[column] for name, column in names.items() if column in recorded})
    except ValueError:
        raise ValueError("its environment's threads, slots or compiled are impossible") from None
    kernel = loaded.spec.kernel()
    if like.compiled and kernel and (missing := missing_to_train(kernel, recipe, loaded.spec.task)):
        who = "the engine trained it, which" if by_engine else "its program was compiled, and compiling"
        raise ValueError(f"{who} needs {missing}")
    if like.compiled:
        check_cache()
    return like


def _recorded(loaded: Checkpoint) -> dict[str, Any]:
    """Return the environment that it was trained in, as far as its provenance says."""
    environment = loaded.provenance.get("environment")
    return {"denormals": "kept", "finish": "torch"} | (environment if isinstance(environment, dict) else {})


@contextmanager
def _denormals_as(recorded: dict[str, Any]) -> Iterator[None]:
    """Have the engine do with denormal numbers what it did when it trained a checkpoint."""
    before = os.environ.get(DENORMALS)
    os.environ[DENORMALS] = str(recorded.get("denormals"))
    try:
        yield
    finally:
        if before is None:
            del os.environ[DENORMALS]
        else:
            os.environ[DENORMALS] = before


def train_again(loaded: Checkpoint, request: Request, watch: Callable[[int], None] = lambda step: None) -> Rerun:
    """Train to the step of the checkpoint's θ and compare. `watch` gets the steps so far at each evaluation.

    θ of a checkpoint is the best of all its evaluations, so at its own step it is the best so far. No seed is
    given up: that rule ends a seed, and changes nothing in one that goes on.
    """
    device = _device(recorded := _recorded(loaded))
    with _denormals_as(recorded):
        configuration, before = request.configuration, 0
        if request.stages:
            theta, before = request.stages.train(request, device, watch)
            configuration = replace(configuration, start=InitialTheta(configuration.trained, {ANY: theta}))
        pair, slots, resources = configuration.pair(request.seed), request.slots, request.resources
        bank = bank_of(configuration.trained, [pair], slots, resources, device, futility=None)
        watch(before)
        # what is finished at the end is finished again
        at_end = request.step == request.configuration.recipe.steps
        while (bank.result(0).steps < request.step or at_end) and bank.advance():
            watch(before + bank.result(0).steps)
        return _compare(loaded, request, bank)


def _device(recorded: dict[str, Any]) -> str:
    """Return "cuda" if a GPU is here, unless the engine or a CPU of this machine's kind trained the θ."""
    like_here = recorded.get("device", platform.machine()) == platform.machine()
    on_cpu = like_here or recorded.get("engine") in ENGINES
    return "cpu" if on_cpu or not torch.cuda.is_available() else "cuda"


def _compare(loaded: Checkpoint, request: Request, bank: Bank) -> Rerun:
    spec, recorded = loaded.spec, _recorded(loaded)
    result = own_numbers(bank.result(0))
    theta_SP = torch.stack([loaded.theta_P, result.theta_P])
    bits_SP = theta_SP.view(torch.int32)
    apart_P = (theta_SP[0] - theta_SP[1]).abs()
    largest = {name: float(t.max()) for name, t in spec.layout.split(apart_P[None]).items()}
    exact_S = step.evaluate(spec, theta_SP, step.tokens_of(spec, *selection(spec.task)))["exact"]
    different = int((bits_SP[0] != bits_SP[1]).sum())
    here = environment_of(bank, request.resources)
    recipes = [request.configuration.recipe, *request.earlier_recipes]
    is_finished = any(recipe.finish_above < 1 for recipe in recipes)
    by_curvature = is_finished and not recorded["finish"] == here["finish"] == "engine"
    both = {recorded.get("engine"), here["engine"]} <= ENGINES and not by_curvature
    matters = [k for k in here if k in recorded and not (both and k in NOT_OF_THE_ENGINE)]
    matters = [k for k in matters if k != "finish" or is_finished]
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
        differs={k: (recorded[k], here[k]) for k in matters if recorded[k] != here[k]},
        not_recorded=tuple(k for k in here if k not in recorded),
        by_curvature=by_curvature,
    )
