"""How many seeds share a bank, and the room of a machine or cluster."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model import Spec
from search.errors import UserError, reraise_as
from search.run import mps
from search.run.gpu_cost import fastest_share, speed_of
from search.study.resources import CPU_SLOTS, Resources
from search.study.schema import Study
from search.study.trial import Configuration, Program
from trainer.engine.cuda.driver import gpus
from trainer.files.cores import usable_cores
from trainer.files.installed import SHIPPED, check_cache, missing_for_compilation


@dataclass(frozen=True)
class Capacity:
    """Number of trials that a machine or cluster has room for at once, and each one's share of a GPU."""

    concurrent: int = 1
    gpu: float = 0.0

    @property
    def on_gpu(self) -> bool:
        return self.gpu > 0


RAY_NAMES, ACCELERATOR = {"cpu": "CPU", "gpu": "GPU"}, "accelerator_type:"
"""Ray's names of resources, and the prefix of an accelerator's kind."""

UNTIL_SLOTS = 4
"""Slots of a CPU's bank in a study that ends once enough have grokked. With fewer slots the first seeds end
sooner, and less trains for nothing then. One slot alone is a fifth slower a step.
"""


class BankShapes:
    """Numbers of slots of a study's banks, which spread a program's seeds over its share of the banks that fit at once.

    They depend on the file and the machine alone: a seed has the same slots in every round and after every
    interruption.
    """

    def __init__(self, study: Study):
        self.study, start = study, study.start
        self.programs = {c: Configuration(*c).program for c in study.listed}
        self._seeds: Counter[Program] = Counter()
        """First seeds of each program, for each θ that the study starts from."""
        for configuration, program in self.programs.items():
            self._seeds[program] += len(study.seeds_of(configuration)) * (start.count if start else 1)
        self._slots: dict[tuple[Program, Capacity], int] = {}
        self.base = study.listed[0][0] if study.listed else study.base_spec if study.model else None
        """The first spec; None if a checkpoint that is not read yet has it."""

    def seeds_of_programs(self) -> list[tuple[Spec | None, int]]:
        """Return the spec and the first seeds of each program; of a search, its base and all seeds that it plans."""
        if self.study.proposes:
            return [(self.base, self.study.planned * len(self.study.first_seeds))]
        return [(program[0], seeds) for program, seeds in self._seeds.items()]

    def most_slots(self, fits: Capacity) -> int:
        return max((self._most(spec, fits) for spec, _ in self.seeds_of_programs()), default=1)

    def _most(self, spec: Spec | None, fits: Capacity) -> int:
        at_once = speed_of(spec).slots(fits.gpu) if fits.on_gpu else CPU_SLOTS
        return self.study.resources.slots or at_once

    def slots_of(self, program: Program, fits: Capacity) -> int:
        """Return the number of slots of a program's banks."""
        if (program, fits) not in self._slots:
            self._slots[program, fits] = self._slots_of(program, fits)
        return self._slots[program, fits]

    def _slots_of(self, program: Program, fits: Capacity) -> int:
        study, slots = self.study, self._most(program[0], fits)
        if study.until.grokked and not (study.resources.slots or fits.on_gpu):
            slots = min(slots, UNTIL_SLOTS)
        programs, seeds = len(self._seeds), self._seeds[program]
        if study.proposes:
            programs, seeds = 1, study.planned * len(study.first_seeds)
        share = -(-seeds // max(1, fits.concurrent // programs))
        return max(1, min(slots, study.resources.seeds_per_trial or slots, share))


def placement_of(study: Study, *nodes: Mapping[str, float], by_mps: bool = False) -> tuple[dict[str, float], Capacity]:
    """Return `placement` of a study's trials, with `gpu: auto` as is expected to be fastest.

    by_mps: trials with shares of a GPU train side by side there.
    """
    resources = study.resources
    if resources.gpu == "auto":
        share = fastest_share(BankShapes(study).seeds_of_programs(), resources.cpu, nodes, by_mps)
        resources = resources.model_copy(update={"gpu": share})
    return placement(resources, *nodes)


def placement(resources: Resources, *nodes: Mapping[str, float]) -> tuple[dict[str, float], Capacity]:
    """Return what Ray reserves for a trial, and how many fit on these nodes. Raises UserError if none does.

    A trial is on one node. nodes: the resources of each, by Ray's names.
    """
    share = share_of(resources, *nodes)
    fits = sum(_fitting(share, node) for node in nodes)
    if not fits:
        raise UserError(_missing(share, nodes))
    return share, Capacity(fits, share["gpu"])


def share_of(resources: Resources, *nodes: Mapping[str, float]) -> dict[str, float]:
    """Return what Ray reserves for a trial, as far as that is known before there is room."""
    gpu = float(any(n.get("GPU", 0) for n in nodes)) if resources.gpu == "auto" else float(resources.gpu)
    # a little of a node's accelerator stands for its kind, as Ray has it
    kind = {f"{ACCELERATOR}{resources.accelerator_type}": 0.001} if resources.accelerator_type else {}
    return {"cpu": resources.cpu, "gpu": gpu, **kind}


def _fitting(share: Mapping[str, float], node: Mapping[str, float]) -> int:
    return int(min(node.get(RAY_NAMES.get(k, k), 0) / v for k, v in share.items() if v) + 1e-6)  # ten tenths


def _missing(share: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> str:
    if not any(node.get("CPU") for node in nodes):  # a head without CPUs is none that trains
        return "there is no node"
    for name, wanted in share.items():
        available = max(node.get(RAY_NAMES.get(name, name), 0) for node in nodes)
        if name.startswith(ACCELERATOR) and not available:
            return f"resources.accelerator_type: no node has {name.removeprefix(ACCELERATOR)}"
        if wanted > available:
            where = " on one node" if len(nodes) > 1 else ""
            return f"resources.{name}: a bank asks for {wanted:g}, there are {available:g}{where}"
    return "resources: no node has all that a bank asks for"


def local_resources() -> dict[str, float]:
    """Return what this process may use of its machine, by Ray's names. A GPU that does not answer is none."""
    return {"CPU": usable_cores(), "GPU": len(gpus()[0])}


def check_resources(resources: Resources) -> str | None:
    """Raise UserError at once if this machine cannot place a trial; a cluster is asked later.

    Return what is to be said first, if anything: there is no C++ compiler, or GPUs are silent or shared in turns.
    """
    if os.environ.get("RAY_ADDRESS"):
        return None
    placement(resources, local_resources())
    if not resources.compiled:
        return None
    with reraise_as("resources.compiled"):
        check_cache()
    if (missing := missing_for_compilation()) and not SHIPPED.exists():  # a wheel's trials say what they lack
        return f"without {missing} training is a hundred times slower (apt-get install g++)"
    visible, why = gpus() if resources.gpu else ((), "")
    if visible and resources.gpu != "auto" and resources.gpu < 1 and not mps.is_available():
        return mps.without(resources.gpu)
    return f"{why}; training by the CPU engine" if why else None
